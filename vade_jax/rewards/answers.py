r"""The text of an answer: the last \boxed{}, its plain words, and whether it has the asked form.

A policy writes whatever earns a reward, so every function is linear in the length of its input, or
bounded by `MAX_LENGTH`: no answer can make its own verification slow.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence

from vade_jax.rewards import tokens

MAX_LENGTH = 200  # characters in a box; a longer text is not an answer

# Words and numbers with signs of prose between them; one word has two letters, and one of two that a
# hyphen joins has three. A letter or a relation may stand alone.
_LETTER = r"[^\W\d_]"
_WORD = rf"(?>{_LETTER}{{2,}}\d*|\d+(?:\.\d+)?(?:{_LETTER}{{2,}})?|{_LETTER})"
_BETWEEN = (
    rf"(?>[\s,;.:'’\"“”()&]+|(?<={_LETTER})-(?={_LETTER}{{3}})|(?<={_LETTER}{{3}})-(?={_LETTER}))"
)
_PROSE = re.compile(
    rf"{_LETTER}|[<>≤≥≠]|(?=.*{_LETTER}{{2}})[(\"“]?{_WORD}(?:{_BETWEEN}{_WORD})*+[.)\"”!?]?"
)
_TWO = re.compile(rf"{_LETTER}{{2}}")
_BRACE = re.compile(r"\\boxed\s{0,3}\{|\\[{}]|[{}]")
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
# What `words` drops of a formula: relations, arrows and operators, and "-" unless it joins words;
# "x!" and "A'", but not "Red!" and quotes; the sharp of C#.
_SIGN = re.compile(
    rf"([<>=+/^_%√|±×÷·←-⇿∀-⋿]|(?!(?<={_LETTER})-{_LETTER}{{3}}|(?<={_LETTER}{{3}})-{_LETTER})-"
    rf"|!(?==)|(?<!{_LETTER}{{2}})(?<!!)!|(?<=\b{_LETTER})(?<!'{_LETTER})'(?!\w)|(?<=\b{_LETTER})#)"
)


@functools.lru_cache(maxsize=4)  # the format and the extraction require the same text
def boxes(text: str) -> tuple[tuple[int, int, int], ...]:
    r"""Returns (start, start of the content, end) of every \boxed{} with balanced braces, by start.

    Places, not contents: those of ten thousand nested boxes would be gigabytes.
    """
    found, opened = [], []
    for match in _BRACE.finditer(text):
        token = match.group()
        if token in ("\\{", "\\}"):
            continue
        if token.endswith("{"):
            opened.append(match.span() if token != "{" else None)
        elif opened and (opening := opened.pop()):
            found.append((*opening, match.end()))
    return tuple(sorted(found))


def extract_boxed(text: str) -> str | None:
    r"""Returns the content of the last \boxed{} that is not empty, the inner one of nested ones, or None.

    Several at the end that only commas, "and" or "or" join are one list: \boxed{2} or \boxed{3} is "2 or 3".
    """
    return _last(text)[0]


def _last(text: str) -> tuple[str | None, int, int]:
    """Returns (answer, boxes that it is in, end of the last)."""
    parts: list[str] = []
    first = end = 0
    for start, inside, after in reversed(boxes(text)):
        content = text[inside : after - 1].strip()
        joint = _joint(text[after:first]) if parts else ""
        if not content or joint is None:
            if not content and not parts:
                continue
            break
        content = _EMPHASIS.sub(r"\2", content)
        parts = [content, joint, *parts] if parts else [content]
        first, end = start, end or after
    return "".join(parts) or None, len(parts) // 2 + bool(parts), end


def _joint(between: str) -> str | None:
    """Returns the comma or the word that joins two boxes of one list, or None; "x =" before one may be there."""
    bare = _BESIDES.sub("", between) if len(between) <= _FARTHEST else ""
    match = _JOINT.fullmatch(bare)
    return match and (" or " if match[1] in ("or", "或") else ", ")


def said(text: str) -> str:
    """Returns what comes after the thoughts, "" if they do not end: a guess within them is no answer."""
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

    The A of Vitamin A is no article, nor is that of Team A wins: no word follows, or it is a capital inside.
    """
    found = re.sub(r"[^\w\s.-]|[.-](?![0-9])|_", _mark, plain(text)).split()
    kept = [word for i, word in enumerate(found) if not _is_article(word, i, found)]
    text = " ".join(kept or found)
    return text.casefold() if _TWO.search(text) else text  # n is not N


def _is_article(word: str, place: int, words: Sequence[str]) -> bool:
    if word.casefold() != "a":
        return word.casefold() in ("an", "the")
    follows = len(words) > place + 1 and len(words[place + 1]) > 1
    return follows and (word == "a" or place == 0)


def _mark(match: re.Match[str]) -> str:
    """Returns a space, or the match where it is part of a letter: the vowels of Hindi, the tones of Thai."""
    return match[0] if unicodedata.category(match[0]) in ("Mn", "Mc") else " "


def is_prose(text: str) -> bool:
    """Returns whether `text` is words that spelling can compare, "x-axis" or "24 cm", and surely no formula.

    `words` drops the signs of `a-b` and `x!`, so these would be taken for `a+b` and `x`.
    """
    return _PROSE.fullmatch(text) is not None


def is_formula(text: str) -> bool:
    """Returns whether a right answer has commands or signs and is no prose: words cannot compare it."""
    return "\\" in text or (_SIGN.search(text) is not None and not is_prose(text))


def signed_words(text: str) -> tuple[str, ...]:
    """Returns words, a sign, words, ... of a plain text; the text itself if it has no words, such as "?"."""
    parts = _SIGN.split(text)
    found = list(map(words, parts[::2]))
    if not any(found):
        return (text,)
    parts[::2] = found
    return tuple(parts)


# ------------------------------------------------------------------------------ form
_END = " \n\t.。,;:!！$\\)]*_`~'\"”’"  # may follow the box: a full stop, the end of a formula or of bold type


def boxed(text: str) -> bool:
    r"""Returns whether there is one answer in boxes, and nothing of substance after it.

    That is one \boxed{}, or those of one list (`extract_boxed`).
    """
    answer, count, end = _last(text)
    if answer is None or not count == len(boxes(text)) == text.count("\\boxed"):
        return False
    rest = text[end:].strip(_END)
    return all(unicodedata.category(char) in ("So", "Mn", "Cf") for char in rest.replace(" ", ""))


def think_boxed(text: str) -> bool:
    r"""Returns whether `text` is <think>reasoning</think> and then one \boxed{} at the end."""
    if text.count("<think>") != 1 or text.count("</think>") != 1:
        return False
    reasoning, answer = text.split("</think>")
    return reasoning.lstrip().startswith("<think>") and boxed(answer)


FORMATS = {"boxed": boxed, "think_boxed": think_boxed}


def in_form(answer: str, form: str) -> str:
    """Returns a whole text that gives `answer` in a form of `FORMATS`."""
    box = f"\\boxed{{{answer}}}"
    return box if form == "boxed" else f"<think>\n\n</think>\n\n{box}"
