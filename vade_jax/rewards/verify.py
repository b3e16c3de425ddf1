"""Is the boxed answer the right one? Compared by the kind of answer, in microseconds."""

import dataclasses
import decimal
import re
import typing
from collections.abc import Sequence

from vade_jax.rewards import answers, formats

if typing.TYPE_CHECKING:  # types imports jax, which reward workers do without
    from vade_jax import types

_ABSOLUTE = decimal.Decimal("1e-6")
_FRACTION = decimal.Decimal("0.002")  # relative room around a/b
# A lone letter in any case, or a capital with a delimiter and text: "(B)", "b.", "B. 30", "B 30".
_LONE = re.compile(r"\W{0,5}([a-j])\W{0,5}", re.IGNORECASE | re.ASCII)
_LABEL = re.compile(r"\W{0,5}([A-J])(?:\s?[.:)\]}]|\s(?=[0-9$\\(-]))\s?\S", re.ASCII)
_LEAD = re.compile(r"(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?:? ", re.I)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the verifier says of one answer.

    Attributes:
      correct: the boxed answer is right; the only thing that posteriors count.
      well_formed: the answer has the asked form, right or wrong.
      extracted: what was in the box, None without one.
      reason: "ok", "no_box", "too_long", "unreadable", "different" or "bad_key" (the given answer
        itself is no answer of its kind).
    """

    correct: bool
    well_formed: bool
    extracted: str | None
    reason: str


def verify(
    text: str,
    answer: str,
    kind: str,
    *,
    tolerance: float | None = None,
    choices: Sequence[str] = (),
    form: str = "boxed",
) -> Verdict:
    r"""Compares the last \boxed{} of `text` with the right answer.

    Args:
      text: what the policy wrote.
      answer: the right answer.
      kind: "choice", "yesno", "int", "float" or "text".
      tolerance: relative, for "float"; by default half a unit of the last decimal of `answer`.
      choices: texts of options A, B, ...: a "choice" may then be answered by its text as well.
      form: name in `formats.FORMATS`.

    Raises:
      ValueError: for an unknown `kind` or `form`.
    """
    for name, value, known in (("kind", kind, KINDS), ("form", form, formats.FORMATS)):
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown; use one of {list(known)}")
    well_formed = formats.FORMATS[form](text)
    extracted = answers.extract_boxed(text)
    if extracted is None:
        return Verdict(False, well_formed, None, "no_box")
    if len(extracted) > answers.MAX_LENGTH:
        return Verdict(False, well_formed, extracted, "too_long")
    reason = KINDS[kind](extracted, answer, tolerance=tolerance, choices=choices)
    return Verdict(reason == "ok", well_formed, extracted, reason)


def verify_item(text: str, item: "types.Item", *, form: str = "boxed") -> Verdict:
    """Verifies with the item's answer, kind and, from its metadata, tolerance and choices."""
    return verify(
        text,
        item.answer,
        item.kind,
        tolerance=item.metadata.get("tolerance"),
        choices=item.metadata.get("choices", ()),
        form=form,
    )


def _compare(given, key) -> str:
    """Returns the reason for two normalised values, None (or "") being unreadable."""
    if not key:
        return "bad_key"
    if not given:
        return "unreadable"
    return "ok" if given == key else "different"


def _letter(text: str) -> str | None:
    """Returns the capital letter that `text` chooses, or None."""
    text = _LEAD.sub("", answers.plain(text), count=1)
    match = _LONE.fullmatch(text) or _LABEL.match(text)
    return match[1].upper() if match else None


def _choice(given: str, key: str, *, choices: Sequence[str], **_) -> str:
    """Compares letters; the text of an option stands for it, and equal options for each other."""
    key = _letter(key)
    if key is None or not choices:
        return _compare(_letter(given), key)
    options = {chr(65 + i): answers.words(text) for i, text in enumerate(choices)}
    text = answers.words(given)
    chosen = text if text in options.values() else options.get(_letter(given) or "")
    return _compare(chosen, options.get(key))


def _yesno(given: str, key: str, **_) -> str:
    def read(text: str) -> str | None:
        found = {"yes", "no"}.intersection(words := answers.words(text).split())
        return words[0] if len(found) == 1 and words[0] in found else None

    return _compare(read(given), read(key))


def _int(given: str, key: str, **_) -> str:
    right, value = answers.number(key), answers.number(given)
    if right is None or right[0] != right[0].to_integral_value():
        return "bad_key"
    return "unreadable" if value is None else _close(value, right, decimal.Decimal(0))


def _float(given: str, key: str, *, tolerance: float | None, **_) -> str:
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
    return _close(value, right, room + _ABSOLUTE)


def _close(
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


def _text(given: str, key: str, **_) -> str:
    return _compare(answers.words(given), answers.words(key))


KINDS = {
    "choice": _choice,
    "yesno": _yesno,
    "int": _int,
    "float": _float,
    "text": _text,
}
