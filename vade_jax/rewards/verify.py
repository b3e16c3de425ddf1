"""Verifies boxed answers, and brings golds into the form that a data set keeps."""

import dataclasses
import typing
from collections.abc import Sequence

from vade_jax.rewards import answers, kinds, quantities, reading, tokens

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
    except quantities.Failed as failure:  # of SymPy: a timeout or a crash
        reason = str(failure)
    return Verdict(reason == "ok", well_formed, extracted, reason)


def verify_item(text: str, item: "types.Item", *, form: str = "boxed") -> Verdict:
    """Verifies with the item's answer and kind, and the other arguments from its metadata."""
    names = ("tolerance", "choices", "ordered")
    options: typing.Any = {name: item.metadata[name] for name in names if name in item.metadata}
    return verify(text, item.answer, item.kind, form=form, **options)


# ------------------------------------------------------------------------------ golds
def normalise_gold(answer: str, kind: str, *, choices: Sequence[str] = ()) -> str:
    r"""Returns a right answer of a `kind` in the form that a data set keeps.

    A choice becomes its letter (also from the text of just one of the `choices`), yes or no lower case, a
    number digits without thousands commas and unit (percent signs, fractions and decimals stay: the tolerance
    depends on them), a list or a formula LaTeX without dollars. "The answer is" before it is left out.

    Raises:
        ValueError: it is no answer of that kind, or would not be accepted as one itself.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown; use one of {list(KINDS)}")
    gold = _kept_form(reading.lead(answer), kind, choices)
    if not gold:
        raise ValueError(f"answer={answer!r} is no answer of kind {kind!r}")
    reason = verify(f"\\boxed{{{gold}}}", gold, kind, choices=choices).reason
    if reason != "ok":
        raise ValueError(
            f"answer={answer!r} of kind {kind!r} does not verify as {gold!r} ({reason})"
        )
    return gold


def _kept_form(text: str, kind: str, choices: Sequence[str]) -> str | None:
    """Returns the gold in `text`, None or "" if there is none of its kind."""
    number = kinds.number(text) if kind in ("int", "float") else None
    if number:
        sign, tree = "%" * number.percent, number.tree
        is_minus = tree[0] == "-"
        digits = tree[1] if is_minus else tree
        if kind == "int":
            return f"{number.value}{sign}" if number.value.denominator == 1 else None
        if digits[0] == "n":
            return f"{'-' * is_minus}{digits[1]}{sign}"
        return f"{number.value}{sign}" if number.last is None else tokens.clean(text)
    match kind:
        case "choice":
            letter = kinds.letter(text)
            if letter and (not choices or ord(letter) - 65 < len(choices)):
                return letter
            same = kinds.named(text, choices)  # an option that is there twice names no letter
            return same[0] if len(same) == 1 else None
        case "yesno":
            return kinds.yes_or_no(text)
        case "text":
            return answers.plain(text)
        case "list" | "expr":
            return tokens.clean(text)
