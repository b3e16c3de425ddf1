r"""What an answer says: the last \boxed{}, the plain text or number inside it, and its form.

A policy writes whatever earns a reward, so every function is linear in the length of its input, or
bounded by `MAX_LENGTH`: no answer can make its own verification slow.
"""

import decimal
import functools
import re
import unicodedata

MAX_LENGTH = 200  # characters inside a box; a longer one is no answer

# Words and numbers with signs of prose between them; one word has two letters, and one of two that a
# hyphen joins has three. A letter or a relation may stand alone.
_LETTER = r"[^\W\d_]"
_WORD = rf"(?:{_LETTER}{{2,}}\d*|\d+(?:\.\d+)?(?:{_LETTER}{{2,}})?|{_LETTER})"
_BETWEEN = (
    rf"(?:[\s,;.:'’\"“”()&]+|(?<={_LETTER})-(?={_LETTER}{{3}})|(?<={_LETTER}{{3}})-(?={_LETTER}))"
)
_PROSE = re.compile(
    rf"{_LETTER}|[<>≤≥≠]|(?=.*{_LETTER}{{2}})[(\"“]?{_WORD}(?:{_BETWEEN}{_WORD})*[.)\"”!?]?"
)
_BRACE = re.compile(r"\\boxed\s{0,3}\{|\\[{}]|[{}]")
# Full-width forms, typographic minus signs and spaces; not NFKC, which reads 5² as 52.
_ASCII = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_ASCII |= dict.fromkeys(map(ord, "−–‒﹣"), "-")
_ASCII |= dict.fromkeys(map(ord, "‘’′"), "'")
_ASCII |= dict.fromkeys((0xFE0E, 0xFE0F))  # how an emoji is drawn
_ASCII |= dict.fromkeys(map(ord, "\u3000\u00a0\u2009\u202f\n\t"), " ")
_WRAPPED = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|mathsf|operatorname|boxed)"
    r"\s?\{([^{}]*)\}"
)
_THIN = re.compile(r"(?<=\d)(,?)\\[,!]\s?(?=\d{3}(?!\d))")  # 10,\!000 and 10\,000, as MATH has them
_NOISE = re.compile(
    r"\\[,;:! ()\[\]]|\\(?:left|right|displaystyle|quad|approx|degree)(?![a-zA-Z])"
    r"|\^\s?\{?\s?\\circ\s?\}?|°|\$|≈"
)
# Symbols that LaTeX has a name for, in a formula.
_NAMES = {
    **{"×": "times", "·": "cdot", "⋅": "cdot", "÷": "div", "±": "pm", "∞": "infty"},
    **{"≤": "le", "≥": "ge", "≠": "ne", "∪": "cup", "∩": "cap", "∈": "in"},
    **{"π": "pi", "√": "sqrt"},
}
_NAMES = {ord(symbol): f"\\{name} " for symbol, name in _NAMES.items()}
_NAMES |= {ord(c): f"^{{{i}}}" for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_PI = re.compile(r"(?<![\\a-zA-Z])pi(?![a-zA-Z])")
_ROOT = re.compile(r"\\sqrt\s+(?:([0-9]+|[a-z])|\(([^()]*)\))")
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
UNIT = (
    r"(?:square |sq\.? |cubic )?(?:[mcdk]?m|inch(?:es)?|in|ft|feet|foot|yards?|yd|miles?|mi|"
    r"(?:centi|milli|kilo)?met(?:er|re)s?|[mk]?g|(?:kilo)?grams?|lbs?|pounds?|oz|ounces?|"
    r"s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?|"
    r"deg|degrees?|units?|dollars?|euros?|cents?|percent|points?|objects?|items?|people)"
    r"\.?(?:\s?(?:\^\s?\{?[23]\}?|²|³))?"
)
DENIALS = ("!", "<", ">", "not", "\\ne", "≠")  # what "=" is none behind
_FRACTION = re.compile(  # not behind a number: 3\\frac{1}{2} is not 31/2
    r"(?<![0-9])(?<![0-9] )\\[dt]?frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}"
)
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_QUANTITY = re.compile(
    rf"(?P<top>{_NUMBER})(?:\s?/\s?(?P<bottom>[0-9]+))?\s?"
    rf"(?P<percent>%)?\s?(?:{UNIT})?",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=4)  # the form and the extraction ask for the same text
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
    r"""Returns the content of the last balanced \boxed{}, the inner one of nested ones, or None."""
    found = boxes(text)
    return text[found[-1][1] : found[-1][2] - 1].strip() if found else None


def plain(text: str) -> str:
    """Returns `text` without LaTeX wrapping, full-width forms, outer spaces and trailing dots."""
    # Composed: "é" may be one character or a letter and its accent.
    text = unicodedata.normalize("NFC", text).translate(_ASCII)
    for _ in range(4):  # nested wrappers
        text = _WRAPPED.sub(r"\1", text)
    text = _THIN.sub(r"\1", re.sub(r"\\([%$])", r"\1", text).replace("{,}", ","))
    text = _NOISE.sub(" ", text)
    return " ".join(text.split()).rstrip(" .。")


def words(text: str) -> str:
    """Returns `text` in lower case without punctuation and articles; signs of numbers stay."""
    text = re.sub(r"[^\w\s.-]|[.-](?![0-9])|_", _mark, plain(text).casefold())
    kept = [word for word in text.split() if word not in ("a", "an", "the")]
    return " ".join(kept or text.split())


def _mark(match: re.Match[str]) -> str:
    """Returns a space, or the match where it is part of a letter: the vowels of Hindi, the tones of Thai."""
    return match[0] if unicodedata.category(match[0]) in ("Mn", "Mc") else " "


def is_prose(text: str) -> bool:
    """Returns whether `text` is words that spelling can compare, "x-axis" or "24 cm", and surely no formula.

    `words` drops the signs of `a-b` and `x!`, so these would be taken for `a+b` and `x`.
    """
    return _PROSE.fullmatch(text) is not None


def formula(text: str) -> str:
    """Returns `text` as LaTeX without dollars, sizes, degrees, outer spaces and trailing dots."""
    text = re.sub(r"\\([%$])", r"\1", text.translate(_ASCII).replace("{,}", ","))
    text = _THIN.sub(r"\1", text)
    text = r"\\".join(_NOISE.sub(" ", row) for row in text.split(r"\\"))
    text = _PI.sub(r"\\pi", _ROOT.sub(r"\\sqrt{\1\2}", text.translate(_NAMES)))
    return " ".join(text.replace("%", r"\%").split()).rstrip(" .。")


def number(text: str) -> tuple[decimal.Decimal, bool] | None:
    r"""Returns (value, whether a percent sign follows), or None if `text` is not one number.

    Understands thousands commas, a/b and \frac{a}{b}, "x = 5", currency signs and a unit behind the number.
    """
    match = quantity(text)
    if match is None:
        return None
    value = decimal.Decimal(match["top"])
    if match["bottom"] is not None:
        value /= decimal.Decimal(match["bottom"])
    return value, match["percent"] is not None


def quantity(text: str) -> re.Match[str] | None:
    """Returns the groups top, bottom and percent of the one number that `text` is, or None."""
    text = plain(_FRACTION.sub(r"\1/\2", text)).strip("{} ").lstrip("€£¥~ ")
    if text.count("=") == 1:
        left, text = (side.strip() for side in text.split("="))
        if left.endswith(DENIALS) or _contradict(left, text):
            return None
    match = _QUANTITY.fullmatch(_THOUSANDS.sub("", text))
    is_defined = match is not None and (match["bottom"] or "1").strip("0")
    return match if is_defined else None


def _contradict(left: str, right: str) -> bool:
    """Returns whether both are numbers, but not nearly the same: 3 = 7 does, 1/3 = 0.33 not."""
    x, y = number(left), number(right)
    if x is None or y is None or x[1] != y[1]:
        return False
    return abs(x[0] - y[0]) > abs(y[0]) / 50


def half_unit(text: str) -> decimal.Decimal:
    """Returns half a unit of the last digit of the number that `text` is: 0.005 of 3.14, 5e-6 of 3.2e-4."""
    last = decimal.Decimal(quantity(text)["top"]).as_tuple().exponent
    return decimal.Decimal(5).scaleb(last - 1)


# ------------------------------------------------------------------------------ form
_END = " \n\t.$\\)]"  # what may follow the box: a full stop, the end of a formula


def boxed(text: str) -> bool:
    r"""Returns whether exactly one \boxed{} is there, and nothing but punctuation behind it."""
    found = boxes(text)
    if len(found) != 1 or text.count("\\boxed") != 1:
        return False
    _, inside, end = found[0]
    return bool(text[inside : end - 1].strip()) and not text[end:].strip(_END)


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
