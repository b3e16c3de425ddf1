"""Verifies boxed answers."""

import dataclasses
import typing
from collections.abc import Sequence

from vade_jax.rewards import answers, kinds, pool

if typing.TYPE_CHECKING:  # types imports jax, which reward workers do not need
    from vade_jax import types

KINDS = {
    "choice": kinds.choice,
    "yesno": kinds.yesno,
    "int": kinds.integer,
    "float": kinds.real,
    "text": kinds.text,
    "list": kinds.listing,
    "expr": kinds.expression,
}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verifier's verdict on one answer."""

    correct: bool  # whether the boxed answer is right; posteriors count only this
    well_formed: bool  # whether the answer has the required format
    extracted: str | None  # what was in the box, None without one
    # "ok", "no_box", "too_long", "unreadable", "different", "bad_key" (the right answer itself is no
    # answer of its kind), "timeout" or "crash" (of an expression: `pool`).
    reason: str


def verify(
    text: str,
    answer: str,
    kind: str,
    *,
    tolerance: float | None = None,
    choices: Sequence[str] = (),
    ordered: bool | None = None,
    form: str = "boxed",
) -> Verdict:
    r"""Compares the last \boxed{} of `text`, or those of a list at its end, with the right answer.

    Args:
        text: the policy's text; what it thinks, between <think> and </think>, is not its answer.
        answer: the right answer.
        kind: "choice", "yesno", "int", "float", "text", "list" or "expr" (a formula).
        tolerance: relative, for "float" and numbers in a "list"; by default half a unit of the last
            decimal of `answer`.
        choices: texts of options A, B, ...: a "choice" may then be answered by its text as well.
        ordered: whether the order of a "list" counts; by default it does, but not in \{1, 2\}.
        form: a key of `answers.FORMATS`.

    Raises:
        ValueError: an unknown `kind` or `form`.
        RuntimeError: SymPy is not installed, so formulas cannot be compared.
    """
    for name, value, known in (("kind", kind, KINDS), ("form", form, answers.FORMATS)):
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown; use one of {list(known)}")
    well_formed = answers.FORMATS[form](text)
    extracted = answers.extract_boxed(answers.said(text))
    if extracted is None:
        return Verdict(False, well_formed, None, "no_box")
    if len(extracted) > answers.MAX_LENGTH:
        return Verdict(False, well_formed, extracted, "too_long")
    options: typing.Any = {"tolerance": tolerance, "choices": choices, "ordered": ordered}
    try:
        reason = KINDS[kind](extracted, answer, **options)
    except pool.Failed as failure:  # of SymPy: a timeout or a crash
        reason = str(failure)
    return Verdict(reason == "ok", well_formed, extracted, reason)


def verify_item(text: str, item: "types.Item", *, form: str = "boxed") -> Verdict:
    """Verifies with the item's answer and kind, and the other arguments from its metadata."""
    names = ("tolerance", "choices", "ordered")
    options: typing.Any = {name: item.metadata[name] for name in names if name in item.metadata}
    return verify(text, item.answer, item.kind, form=form, **options)
