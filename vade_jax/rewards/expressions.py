r"""Compares formulas: numbers here, everything else by math-verify in the workers of `pool`.

What math-verify would forgive is refused before it is asked: prose, "4 = 5" for 5, other brackets
around an interval, and powers that nobody could evaluate.
"""

import functools
import itertools
import re

from vade_jax.rewards import answers, pool, scalars

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
_DEEPEST = 12  # brackets within brackets: the grammar takes seconds for many
_INTERVAL = re.compile(r"([\[(]).*,.*([\])])", re.DOTALL)


def expression(given: str, key: str, **_) -> str:
    """Returns the reason for an answer that is a formula, the right one being one too."""
    right, value = answers.number(key), answers.number(given)
    if right is not None and value is not None:
        return scalars.close(value, right, scalars.ABSOLUTE)
    key, given = clean(key), clean(given)
    if not key or len(key) > answers.MAX_LENGTH or _is_heavy(key):
        return "bad_key"
    given = _right_side(given) if "=" in given and "=" not in key else given
    is_prose = _PROSE.search(given) and not _PROSE.search(key)
    if not given or is_prose or _is_heavy(given):
        return "unreadable"
    if (match := _INTERVAL.fullmatch(key)) and not _alike(match, given):
        return "different"
    return _ask(key, given)


def clean(text: str) -> str:
    r"""Returns the formula without a unit behind it; \text{or} is a comma."""
    text = _CONNECTIVE.sub(",", answers.formula(text))
    return _UNIT.sub("", text).strip() or text


def _is_heavy(text: str) -> bool:
    """Returns whether `text` could only be read or evaluated in seconds, or never."""
    depth = itertools.accumulate((c in "([{") - (c in ")]}") for c in text)
    return max(depth, default=0) > _DEEPEST or _HUGE.search(text) is not None


def _right_side(text: str) -> str:
    """Returns what a name is said to equal, "" if it is no name or more is said."""
    name, _, value = (part.strip() for part in text.partition("="))
    is_name = _NAME.fullmatch(name) and not name.endswith(answers.DENIALS)
    return value if is_name and "=" not in value else ""


def _alike(interval: re.Match[str], given: str) -> bool:
    """Returns whether `given`, if it starts with a bracket, has those of the right interval."""
    given = re.sub(r".*\\in(?![a-z])", "", given).strip()
    match = _INTERVAL.fullmatch(given)
    return bool(match and match.groups() == interval.groups())


def _ask(key: str, given: str) -> str:
    try:
        return _judged(key, given)
    except _FailedError as failure:
        return failure.args[0]


class _FailedError(Exception):
    """The worker gave no reason; raised so that it is not remembered."""


@functools.lru_cache(maxsize=16384)
def _judged(key: str, given: str) -> str:
    """Remembers reasons: the answers of a group are often the same."""
    reason = pool.SHARED.check(key, given)
    if reason in ("timeout", "crash"):
        raise _FailedError(reason)
    return reason
