r"""Compares an answer with the right one, by the kind of answer.

Letters, words and numbers take microseconds; lists are compared element by element; formulas go to the
workers of `pool`, unless both are numbers. Each comparison takes (given, key) and returns the reason
of a `verify.Verdict`: "ok", "different", "unreadable" or "bad_key". When in doubt an answer is
unreadable: a policy finds every phrase that is counted as right by mistake.
"""

import decimal
import functools
import itertools
import re
from collections.abc import Sequence

from vade_jax.rewards import answers, pool

_ABSOLUTE = decimal.Decimal("1e-6")
_FRACTION = decimal.Decimal("0.002")  # relative room around a/b
_LEAD = re.compile(r"(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?:? ", re.IGNORECASE)
# A lone letter in any case, or a capital with a delimiter and text: "(B)", "b.", "B. 30", "B 30".
_EDGE = r"[^\w\u0300-\u036f]{0,5}"  # an accent makes another letter
_LONE = re.compile(rf"{_EDGE}([a-jA-J]){_EDGE}")
_CAPITAL = r"([A-J])(?:\s?[.:)\]}]|\s(?=[0-9$\\(-]))"
_LABEL = re.compile(rf"\W{{0,5}}{_CAPITAL}\s?(\S.*)", re.ASCII | re.DOTALL)
_SECOND = re.compile(  # "A) or B)"
    rf"(?<![^\W_]){_CAPITAL}|^(?:or|and|not|nor)\b|^[,/&|]", re.ASCII
)
_DOUBT = {"false", "if", "incorrect", "maybe", "neither", "perhaps", "unless", "wrong"}
# What `answers.words` drops of a formula: relations, arrows and operators, and "-" unless it joins words;
# "x!" and "A'", but not "Red!" and quotes; the sharp of C#.
_LETTER = r"[^\W\d_]"
_SIGN = re.compile(
    rf"([<>=+/^_%√|±×÷·←-⇿∀-⋿]|(?!(?<={_LETTER})-{_LETTER}{{3}}|(?<={_LETTER}{{3}})-{_LETTER})-"
    rf"|!(?==)|(?<!{_LETTER}{{2}})(?<!!)!|(?<=\b{_LETTER})(?<!'{_LETTER})'(?!\w)|(?<=\b{_LETTER})#)"
)


# ------------------------------------------------------------------------------ letters and words
def compare(given: str | None, key: str | None) -> str:
    """Returns the reason for two normalised values; None and "" are unreadable."""
    if not key:
        return "bad_key"
    if not given:
        return "unreadable"
    return "ok" if given == key else "different"


def letter(text: str) -> str | None:
    """Returns the one capital letter that `text` chooses, or None."""
    return _labelled(text)[0]


def _labelled(text: str) -> tuple[str | None, str]:
    """Returns the letter that `text` chooses, or None, and the text behind it."""
    text = _LEAD.sub("", answers.plain(text), count=1)
    if match := _LONE.fullmatch(text):
        return match[1].upper(), ""
    match = _LABEL.match(text)
    if match is None or _SECOND.search(match[2]):
        return None, ""
    return match[1], match[2]


def choice(given: str, key: str, *, choices: Sequence[str] = (), **_) -> str:
    """Compares letters; the text of an option stands for it, and equal options for each other.

    A letter with the text of another option behind it is unreadable, as is a text that may be of two. A
    lone letter is an option's own, also where the text of another is that letter, as with points of a
    drawing.
    """
    key = letter(key)
    chosen, behind = _labelled(given)
    if key is None or not choices:
        return compare(chosen, key)
    if behind and chosen not in (named(behind, choices) or [chosen]):
        return "unreadable"
    options = {chr(65 + i): answers.plain(text) for i, text in enumerate(choices)}
    # "-b" may be the text of an option.
    is_letter = chosen in options and not behind and not _SIGN.search(answers.plain(given))
    by_text = [] if is_letter else named(given, choices)
    found = {options[x] for x in by_text or [chosen] if x in options}
    return compare(found.pop() if len(found) == 1 else None, options.get(key))


def named(text: str, choices: Sequence[str]) -> list[str]:
    """Returns the letters of the options that have this text: letter by letter or, if none has, by words.

    Signs count: x < 3 and x > 3 are two options, as are 1/2 and -1/2. A percent sign does where there is
    an option without it: 20 is the text of 20% beside 30%, but not beside 20.
    """
    text, options = answers.plain(text), [answers.plain(option) for option in choices]
    if not text:
        return []
    for read in (str, _words_and_signs, _without_percent):
        wanted = read(text)
        if found := [chr(65 + i) for i, option in enumerate(options) if read(option) == wanted]:
            return found
    return []


def _words_and_signs(plain: str) -> tuple[str, ...]:
    """Returns words, a sign, words, ...; the text itself if it has no words, such as "?"."""
    parts = _SIGN.split(plain)
    words = list(map(answers.words, parts[::2]))
    if not any(words):
        return (plain,)
    parts[::2] = words
    return tuple(parts)


def _without_percent(plain: str) -> tuple[str, ...]:
    return _words_and_signs(plain.replace("%", " "))


def yes_or_no(text: str) -> str | None:
    """Returns "yes" or "no" if `text` starts with it and neither doubts nor denies it."""
    words = answers.words(text).split()
    found = {"yes", "no"}.intersection(words)
    if len(found) != 1 or words[0] not in found:
        return None
    doubts = _DOUBT | {"not"} if words[0] == "yes" else _DOUBT
    return None if doubts.intersection(words) else words[0]


def yesno(given: str, key: str, **_) -> str:
    """Compares yes and no."""
    return compare(yes_or_no(given), yes_or_no(key))


def integer(given: str, key: str, **_) -> str:
    """Compares numbers exactly; the right one must be whole."""
    right, value = answers.number(key), answers.number(given)
    if right is None or right[0] != right[0].to_integral_value():
        return "bad_key"
    return "unreadable" if value is None else close(value, right, decimal.Decimal(0))


def real(given: str, key: str, *, tolerance: float | None = None, **_) -> str:
    """Compares numbers within a relative tolerance, or half a unit of the last decimal."""
    right, value = answers.number(key), answers.number(given)
    if right is None:
        return "bad_key"
    if tolerance is not None:
        room = abs(right[0]) * decimal.Decimal(str(tolerance))
    elif "frac" in key or "/" in key:
        room = abs(right[0]) * _FRACTION
    else:
        room = answers.half_unit(key)
    if value is None:
        return "unreadable"
    return close(value, right, room + slack(right))


def slack(right: tuple[decimal.Decimal, bool]) -> decimal.Decimal:
    """Returns the error of rounding that any number may have: 1e-6, or less for a smaller one."""
    return min(_ABSOLUTE, abs(right[0]) * _ABSOLUTE)


def close(
    value: tuple[decimal.Decimal, bool],
    right: tuple[decimal.Decimal, bool],
    room: decimal.Decimal,
) -> str:
    """Returns "ok" within `room`; 50% may stand for 50 and, of one with the sign, for 0.5."""
    (x, x_percent), (y, y_percent) = value, right
    near = abs(x - y) <= room
    if x_percent and not y_percent:
        near = near or abs(x / 100 - y) <= room
    if y_percent and not x_percent:
        near = near or abs(100 * x - y) <= room
    return "ok" if near else "different"


def text(given: str, key: str, **_) -> str:
    """Compares words; signs such as < and - count, punctuation, case and articles do not."""
    reason = compare(answers.words(given), answers.words(key))
    left, right = (_words_and_signs(answers.plain(x)) for x in (given, key))
    return "different" if reason == "ok" and left != right else reason


# ------------------------------------------------------------------------------ lists
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def is_set(text: str) -> bool:
    """Returns whether `text` is written as a set: the order of its elements does not count."""
    return _ascii(text).startswith("{")


def elements(text: str, *, thousands: bool | None = None) -> list[str]:
    """Returns what stands between the outermost commas, brackets around all of it removed.

    Args:
        text: of the list.
        thousands: whether a comma before three digits is one within a number; by default it is
            where other commas have a space behind, as in "1,000, 2,000".
    """
    text = _inside(_ascii(text))
    ends = ";" if ";" in text else ","
    thousands = ", " in text if thousands is None else thousands
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char != ends or depth != 0:
            continue
        behind = re.match(r"[0-9]{3}(?![0-9])", text[i + 1 : i + 5])
        is_in_number = ends == "," and behind and text[i - 1 : i].isdigit()
        if not (thousands and is_in_number):
            parts.append(text[start:i])
            start = i + 1
    *parts, last = [part.strip() for part in (*parts, text[start:])]
    # "red, blue and green": the last one may be two.
    last = re.sub(r"^and\s+", "", re.sub(r"\\text\s?\{\s?and\s?\}", "and", last))
    if not any((*parts, last)):
        return []
    return [*parts, *re.split(r"\s+and\s+", last)]


def listing(
    given: str,
    key: str,
    *,
    ordered: bool | None = None,
    tolerance: float | None = None,
    **_,
) -> str:
    r"""Returns the reason for an answer that is a list, numbers within the relative `tolerance`.

    By default the order counts if `key` is not written \{...\}.
    """
    right = elements(key)
    if not right or not all(right):
        return "bad_key"
    if not elements(given):
        return "unreadable"
    counts_order = not is_set(key) if ordered is None else ordered
    # "[1,000, 2]" has two elements or three: either reading may be the one that was meant.
    for thousands in (False, True):
        left = elements(given, thousands=thousands)
        if len(left) != len(right):
            continue
        if counts_order:
            pairs = zip(left, right, strict=True)
            matches = all(_is_same(x, y, tolerance) for x, y in pairs)
        else:
            matches = _match_in_any_order(left, right, tolerance)
        if matches:
            return "ok"
    return "different"


def _match_in_any_order(left: list[str], right: list[str], tolerance: float | None) -> bool:
    """Returns whether each right element is the same as a given one that no other is matched with."""
    for y in right:
        found = next((x for x in left if _is_same(x, y, tolerance)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is_same(given: str, key: str, tolerance: float | None) -> bool:
    """Compares two elements by what the right one looks like."""
    if answers.number(key) is not None:
        is_whole = tolerance is None and re.fullmatch(r"[-+]?[0-9,]+", key)
        verifier = integer if is_whole else real
    elif key[:1] in _PAIRS and len(elements(key)) > 1:
        verifier = listing
    else:
        verifier = expression if is_formula(key) else text
    return verifier(given, key, tolerance=tolerance) == "ok"


def _ascii(text: str) -> str:
    r"""Returns plain text in which \{ is a bracket like the others."""
    text = re.sub(r"\\(?:left|right)(?![a-z])", "", text)
    text = re.sub(r"\\l?r?brace(?![a-z])|\\([{}])", r"\1", text)
    return answers.formula(text).replace(r"\%", "%").strip()


def _inside(text: str) -> str:
    """Returns `text` without the one pair of brackets that encloses all of it."""
    if not text or _PAIRS.get(text[0]) != text[-1]:
        return text
    depth = 0
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0:
            return text[1:-1].strip() if i == len(text) - 1 else text
    return text


# ------------------------------------------------------------------------------ formulas
_SIZE = r"\^\s?\{?\s?[-+(]?\s?"
_HUGE = re.compile(
    r"[0-9]{51}|[0-9]{5}\s?!|!\s?!"
    rf"|{_SIZE}[0-9]{{6}}|{_SIZE}[0-9]+\s?(?:\^|!|\}}\s?\^)|[0-9]\}}?\)\s?\}}?\s?\^\s?\{{?\s?[0-9]{{4}}"
)
_CONNECTIVE = re.compile(r"\\(?:text|mathrm|mbox)\s?\{\s?(and|or)\s?\}")
_UNIT = re.compile(
    rf"(?:\\(?:text|mathrm|mbox)\s?\{{\s?(?:{answers.UNIT})\s?\}}(?:\s?\^\s?\{{?[23]\}}?)?"
    rf"|\s(?=[a-zA-Z]{{2}})(?:{answers.UNIT}))$",
    re.IGNORECASE,
)
_NAME = re.compile(r"\(?\\?[a-zA-Z][\w\\{}()',^ ]*|\\(?:angle|triangle) ?[A-Z]+")
_PROSE = re.compile(
    r"\\(?:text|mbox)|(?<![\\a-zA-Z])(?!(?:arc)?(?:sin|cos|tan|sqrt|log|infty|frac))[a-zA-Z]{4}"
    r"|\b(?:not|nor|but|yes)\b"
)
# What math-verify does not see: A', A^{\prime} and A^T are A to it, and so is a.
_PRIMES = re.compile(r"\^\s?\{?(?:\s?\\prime(?![a-zA-Z]))+\s?\}?")
_TRANSPOSE = re.compile(r"\\(?:top|intercal)(?![a-zA-Z])")
_MARKED = re.compile(r"([a-zA-Z)\]}])\s?('+|\^\s?(?=\{?\s?T(?![a-zA-Z])))")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_DEEPEST = 12  # brackets within brackets: the grammar takes seconds for many
_INTERVAL = re.compile(r"([\[(]).*,.*([\])])", re.DOTALL)


def is_formula(text: str) -> bool:
    """Returns whether a right answer has commands or signs and is no prose: words cannot compare it."""
    return "\\" in text or (_SIGN.search(text) is not None and not answers.is_prose(text))


def expression(given: str, key: str, **_) -> str:
    """Compares formulas: what math-verify would forgive is refused before it is asked.

    That is prose, "4 = 5" for 5, other brackets around an interval, other primes, transposes and letters,
    and powers that nobody could evaluate.
    """
    right, value = answers.number(key), answers.number(given)
    if right is not None and value is not None:
        return close(value, right, slack(right))
    key, given = clean(key), clean(given)
    if not key or len(key) > answers.MAX_LENGTH or _is_heavy(key):
        return "bad_key"
    given = _right_side(given) if "=" in given and "=" not in key else given
    is_prose = _PROSE.search(given) and not _PROSE.search(key)
    if not given or is_prose or _is_heavy(given):
        return "unreadable"
    if _unseen(key) != _unseen(given) or _is_recased(key, given):
        return "different"
    if interval := _INTERVAL.fullmatch(key):
        # "x \in [0, 1)" may name what lies in it; the brackets must be those of the key.
        found = _INTERVAL.fullmatch(re.sub(r".*\\in(?![a-z])", "", given).strip())
        if not found or found.groups() != interval.groups():
            return "different"
    try:
        return _ask(key, given)
    except _FailedError as failure:
        return failure.args[0]


def clean(text: str) -> str:
    r"""Returns the formula without a unit behind it; \text{or} is a comma, ^{\prime} a ', \top a T."""
    text = _CONNECTIVE.sub(",", answers.formula(text))
    text = _PRIMES.sub(lambda match: "'" * match[0].count("prime"), text)
    text = _TRANSPOSE.sub("T", text)
    return _UNIT.sub("", text).strip() or text


def _is_heavy(text: str) -> bool:
    """Returns whether `text` could only be read or evaluated in seconds, or never."""
    depth = itertools.accumulate((c in "([{") - (c in ")]}") for c in text)
    return max(depth, default=0) > _DEEPEST or _HUGE.search(text) is not None


def _unseen(text: str) -> list[tuple[str, str]]:
    """Returns the primes and transposes of a formula, each with what it stands behind."""
    return sorted((base, mark.strip()) for base, mark in _MARKED.findall(text))


def _is_recased(key: str, given: str) -> bool:
    """Returns whether both have the same letters, some of them in another case."""
    x, y = (re.findall("[a-zA-Z]", _COMMAND.sub(" ", text)) for text in (key, given))
    return set(x) != set(y) and {c.lower() for c in x} == {c.lower() for c in y}


def _right_side(text: str) -> str:
    """Returns what a name is said to equal, "" if it is no name or more is said."""
    name, _, value = (part.strip() for part in text.partition("="))
    is_name = _NAME.fullmatch(name) and not name.endswith(answers.DENIALS)
    return value if is_name and "=" not in value else ""


class _FailedError(Exception):
    """The worker gave no reason; raised so that `_ask` does not remember it."""


@functools.lru_cache(maxsize=16384)  # the answers of a group are often the same
def _ask(key: str, given: str) -> str:
    reason = pool.SHARED.check(key, given)
    if reason in ("timeout", "crash"):
        raise _FailedError(reason)
    return reason
