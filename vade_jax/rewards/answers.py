r"""The text of an answer: the last \boxed{}, its plain words, and whether it has the required form.

A policy may write anything, so every function is linear in the length of its input or bounded by
`MAX_LENGTH`: no answer can make its verification slow.
"""

import functools
import re
import unicodedata

from vade_jax.rewards import tokens

MAX_LENGTH = 200  # characters in a box; a longer text is not an answer

# Words and numbers with punctuation of prose between them; one word has at least two letters, and one of two
# hyphenated words three. A letter or a relation may be alone.
_LETTER = r"[^\W\d_]"
_WORD = rf"(?>{_LETTER}{{2,}}\d*|\d+(?:\.\d+)?(?:{_LETTER}{{2,}})?|{_LETTER})"
_BETWEEN = (
    rf"(?>[\s,;.:'’\"“”()&]+|(?<={_LETTER})-(?={_LETTER}{{3}})|(?<={_LETTER}{{3}})-(?={_LETTER}))"
)
_PROSE = re.compile(
    rf"{_LETTER}|[<>≤≥≠]|(?=.*{_LETTER}{{2}})[(\"“]?{_WORD}(?:{_BETWEEN}{_WORD})*+[.)\"”!?]?"
)
_TWO = re.compile(rf"{_LETTER}{{2}}")
# All but letters, their marks, the vowels of Hindi, the tones of Thai, and signs of numbers
_PUNCTUATION = re.compile(r"[^\w\s.\u0300-\u036f\u0900-\u0dff\u0e30-\u0e4e-]|[.-](?![0-9])|_")
_ARTICLE = re.compile(r"(?<!\S)(?:[aA][nN]|[tT][hH][eE]|a(?= \S\S))(?!\S)|^A(?= \S\S)")
_BRACE = re.compile(r"\\boxed\s{0,3}\{|(?<!\\)[{}]")
_WRAPPED = re.compile(
    rf"\\(?:{tokens.ROMAN}|mathbf|mathit|boldsymbol|underline|boxed)\s?\{{([^{{}}]*)\}}"
)
_FARTHEST = 40  # characters between two boxes of one list
_BESIDES = re.compile(r"\\(?:text|quad|[ ,;()\[\]])|[\s{}$*]|[A-Za-z]\w?\s*=[\s$*]*$")
_JOINT = re.compile("(?!$)[,;、，；]?(and|or|和|或|)")
_EMPHASIS = re.compile(r"^(\*{1,3}|_{1,2}|`{1,3})(.+)\1$", re.DOTALL)  # of Markdown
_THIN = re.compile(r"(?<=\d)(,?)\\[,!]\s?(?=\d{3}(?!\d))")  # 10,\!000 and 10\,000, as MATH has them
_NOISE = re.compile(
    r"\\[,;:! ()\[\]]|\\(?:left|right|displaystyle|quad|approx|degree)(?![a-zA-Z])"
    r"|\^\s?\{?\s?\\circ\s?\}?|°|\$|≈"
)
# What `words` would drop from a formula: relations, arrows and operators, and "-" unless it joins words; "x!"
# and "A'", but not "Red!" and quotes; the sharp of C#.
_SIGN = re.compile(
    rf"([<>=+/^_%√|±×÷·←-⇿∀-⋿]|(?!(?<={_LETTER})-{_LETTER}{{3}}|(?<={_LETTER}{{3}})-{_LETTER})-"
    rf"|!(?==)|(?<!{_LETTER}{{2}})(?<!!)!|(?<=\b{_LETTER})(?<!'{_LETTER})'(?!\w)|(?<=\b{_LETTER})#)"
)


@functools.lru_cache(maxsize=4)  # format and extraction use the same text
def boxes(text: str) -> list[tuple[int, int, int]]:
    r"""Returns (start, start of the content, end) of every \boxed{} with balanced braces, by start.

    It returns positions: the contents of ten thousand nested boxes would be gigabytes.
    """
    spans, opened = [], []
    for match in _BRACE.finditer(text):
        if match[0].endswith("{"):
            opened.append(match.span() if match[0] != "{" else None)
        elif opened and (opening := opened.pop()):
            spans.append((*opening, match.end()))
    return sorted(spans)


def extract_boxed(text: str) -> str | None:
    r"""Returns the content of the last \boxed{} that is not empty, the inner one of nested ones, or None.

    Several at the end, joined only by commas, "and" or "or", are one list: \boxed{2} or \boxed{3} is "2 or
    3".
    """
    return _extracted(text)[0]


def _extracted(text: str) -> tuple[str | None, int, int]:
    """Returns (answer, how many boxes it is in, end of the last)."""
    parts: list[str] = []  # from the last on
    first = end = count = 0
    for start, inside, after in reversed(boxes(text)):
        content = _EMPHASIS.sub(r"\2", text[inside : after - 1].strip())
        between = text[after:first] if first - after < _FARTHEST else ""
        joint = _JOINT.fullmatch(_BESIDES.sub("", between))
        if content and parts and not joint:
            break
        if content:
            joints = [" or " if joint[1] in ("or", "或") else ", "] if joint else []
            parts += [*joints, content]
            first, end, count = start, end or after, count + 1
    return "".join(reversed(parts)) or None, count, end


def after_thoughts(text: str) -> str:
    """Returns the text after the thoughts, "" if they do not end: a guess within them is not an answer."""
    _, ends, after = text.rpartition("</think>")
    return (after if ends else text).partition("<think>")[0]


def plain(text: str) -> str:
    """Returns `text` without LaTeX wrapping, full-width forms, outer spaces and trailing dots."""
    # Composed, because "é" may be one character or a letter and its accent.
    text = unicodedata.normalize("NFC", text).translate(tokens.ASCII)
    for _ in range(4):  # nested wrappers
        text = _WRAPPED.sub(r"\1", text)
    text = _THIN.sub(r"\1", re.sub(r"\\([%$])", r"\1", text).replace("{,}", ","))
    text = " ".join(_NOISE.sub(" ", text).split()).rstrip(" .。")
    return re.sub(rf"(?<={_LETTER}) -(?={_LETTER}{{3}})", "-", text)  # $y$-axis


def words(text: str) -> str:
    """Returns `text` in lower case without punctuation and articles; signs of numbers stay.

    The A of Vitamin A and of Team A wins is not an article: no word follows, or it is a capital inside.
    Without a word of two letters, case is kept: n is not N.
    """
    bare = " ".join(_PUNCTUATION.sub(" ", plain(text)).split())
    bare = " ".join(_ARTICLE.sub("", bare).split()) or bare
    return bare.casefold() if _TWO.search(bare) else bare


def is_prose(text: str) -> bool:
    """Returns whether `text` can be compared by spelling, as "x-axis" or "24 cm", but not a-b or x!."""
    return _PROSE.fullmatch(text) is not None


def is_formula(text: str) -> bool:
    """Returns whether a right answer has commands or signs and is not prose, so words cannot compare it."""
    return "\\" in text or (_SIGN.search(text) is not None and not is_prose(text))


def signed_words(text: str) -> tuple[str, ...]:
    """Splits a plain text into words, a sign, words, ...; without words, such as "?", it stays one."""
    parts = _SIGN.split(text)
    parts[::2] = map(words, parts[::2])
    return tuple(parts) if any(parts[::2]) else (text,)


# ------------------------------------------------------------------------------ form
_END = " \n\t.。,;:!！$\\)]*_`~'\"”’"  # may follow the box: a full stop, the end of a formula or of bold type
_SYMBOLS = ("So", "Mn", "Cf")  # also a tick or another picture


def boxed(text: str) -> bool:
    r"""Returns whether there is one \boxed{} or list of them, followed only by punctuation."""
    answer, count, end = _extracted(text)
    is_alone = answer is not None and count == len(boxes(text)) == text.count("\\boxed")
    return is_alone and all(x in _END or unicodedata.category(x) in _SYMBOLS for x in text[end:])


def think_boxed(text: str) -> bool:
    r"""Returns whether `text` is <think>reasoning</think> and then one \boxed{} at the end."""
    if text.count("<think>") != 1 or text.count("</think>") != 1:
        return False
    reasoning, answer = text.split("</think>")
    return reasoning.lstrip().startswith("<think>") and boxed(answer)


FORMATS = {"boxed": boxed, "think_boxed": think_boxed}


def in_form(answer: str, form: str) -> str:
    """Returns a complete text with `answer` in a form of `FORMATS`."""
    box = f"\\boxed{{{answer}}}"
    return box if form == "boxed" else f"<think>\n\n</think>\n\n{box}"
