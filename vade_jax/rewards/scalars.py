"""Compares answers that are one letter, word or number: microseconds each, no process needed.

Every function takes the given and the right answer, and returns the reason of a
`verify.Verdict`.
"""

import decimal
import re
from collections.abc import Sequence

from vade_jax.rewards import answers

ABSOLUTE = decimal.Decimal("1e-6")
_FRACTION = decimal.Decimal("0.002")  # relative room around a/b
_LEAD = re.compile(
    r"(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?:? ", re.IGNORECASE
)
# A lone letter in any case, or a capital with a delimiter and text: "(B)", "b.", "B. 30", "B 30".
_EDGE = r"[^\w\u0300-\u036f]{0,5}"  # an accent makes another letter
_LONE = re.compile(rf"{_EDGE}([a-jA-J]){_EDGE}")
_CAPITAL = r"([A-J])(?:\s?[.:)\]}]|\s(?=[0-9$\\(-]))"
_LABEL = re.compile(rf"\W{{0,5}}{_CAPITAL}\s?(\S.*)", re.ASCII | re.DOTALL)
_SECOND = re.compile(  # "A) or B)"
    rf"(?<![^\W_]){_CAPITAL}|^(?:or|and|not|nor)\b|^[,/&|]", re.ASCII
)
_DOUBT = {"false", "if", "incorrect", "maybe", "neither", "perhaps", "unless", "wrong"}
_RELATIONS = re.compile("[<>]=?|!=|[≤≥≠]")


def compare(given, key) -> str:
    """Returns the reason for two normalised values, None (or "") being unreadable."""
    if not key:
        return "bad_key"
    if not given:
        return "unreadable"
    return "ok" if given == key else "different"


def letter(text: str) -> str | None:
    """Returns the one capital letter that `text` chooses, or None."""
    return _labelled(text)[0]


def _labelled(text: str) -> tuple[str | None, str]:
    """Returns the letter that `text` chooses, or None, and the words behind it."""
    text = _LEAD.sub("", answers.plain(text), count=1)
    if match := _LONE.fullmatch(text):
        return match[1].upper(), ""
    match = _LABEL.match(text)
    if match is None or _SECOND.search(match[2]):
        return None, ""
    return match[1], answers.words(match[2])


def choice(given: str, key: str, *, choices: Sequence[str] = (), **_) -> str:
    """Compares letters; the text of an option stands for it, and equal options for each other.

    A letter with the text of another option behind it is unreadable.
    """
    key = letter(key)
    chosen, behind = _labelled(given)
    if key is None or not choices:
        return compare(chosen, key)
    options = {chr(65 + i): answers.words(text) for i, text in enumerate(choices)}
    text, texts = answers.words(given), options.values()
    if chosen and behind in texts and behind != options.get(chosen):
        return "unreadable"
    return compare(
        text if text in texts else options.get(chosen or ""), options.get(key)
    )


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
        room = decimal.Decimal(5).scaleb(-1 - answers.num_decimals(key))
    if value is None:
        return "unreadable"
    return close(value, right, room + ABSOLUTE)


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
    """Compares words; signs of order count, other punctuation, case and articles do not."""
    reason = compare(answers.words(given), answers.words(key))
    if reason == "ok" and _RELATIONS.findall(given) != _RELATIONS.findall(key):
        return "different"
    return reason
