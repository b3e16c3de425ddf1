"""Is the boxed answer the right one? Compared by its kind: microseconds, formulas milliseconds."""

import dataclasses
import typing
from collections.abc import Sequence

from vade_jax.rewards import answers, expressions, formats, lists, scalars

if typing.TYPE_CHECKING:  # types imports jax, which reward workers do without
    from vade_jax import types

RELAXED = 0.05  # the tolerance of ChartQA's own score


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the verifier says of one answer.

    Attributes:
      correct: the boxed answer is right; the only thing that posteriors count.
      well_formed: the answer has the asked form, right or wrong.
      extracted: what was in the box, None without one.
      reason: "ok", "no_box", "too_long", "unreadable", "different", "bad_key" (the right answer
        itself is no answer of its kind), "timeout" or "crash" (of an expression: `pool`).
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
    ordered: bool | None = None,
    form: str = "boxed",
) -> Verdict:
    r"""Compares the last \boxed{} of `text` with the right answer.

    Args:
      text: what the policy wrote.
      answer: the right answer.
      kind: "choice", "yesno", "int", "float", "text", "list" or "expr" (a formula).
      tolerance: relative, for "float" and numbers in a "list"; by default half a unit of the last
        decimal of `answer`.
      choices: texts of options A, B, ...: a "choice" may then be answered by its text as well.
      ordered: whether the order of a "list" counts; by default it does, but not in \{1, 2\}.
      form: name in `formats.FORMATS`.

    Raises:
      ValueError: for an unknown `kind` or `form`.
      RuntimeError: if formulas cannot be compared, for want of math-verify.
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
    options = {"tolerance": tolerance, "choices": choices, "ordered": ordered}
    reason = KINDS[kind](extracted, answer, **options)
    return Verdict(reason == "ok", well_formed, extracted, reason)


def verify_item(text: str, item: "types.Item", *, form: str = "boxed") -> Verdict:
    """Verifies with the item's answer and kind, and what its metadata has of the rest."""
    return verify(
        text,
        item.answer,
        item.kind,
        tolerance=item.metadata.get("tolerance"),
        choices=item.metadata.get("choices", ()),
        ordered=item.metadata.get("ordered"),
        form=form,
    )


KINDS = {
    "choice": scalars.choice,
    "yesno": scalars.yesno,
    "int": scalars.integer,
    "float": scalars.real,
    "text": scalars.text,
    "list": lists.listing,
    "expr": expressions.expression,
}
