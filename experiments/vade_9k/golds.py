"""Brings right answers into the form that a data set keeps."""

from collections.abc import Sequence
from typing import Any

from vade_jax.rewards import answers, reading, tokens, verify


def normalise(answer: str, kind: str, *, choices: Sequence[str] = (), **options: Any) -> str:
    r"""Returns a right answer of a `kind` in the form of the data set.

    A choice becomes its letter (also from the text of just one of the `choices`), yes or no lower case, a
    number digits without thousands commas and unit (percent signs, fractions and decimals stay: the tolerance
    depends on them), a list or a formula LaTeX without dollars. "The answer is" before it is left out.

    Raises:
        ValueError: it is not an answer of that kind, or `verify.verify` with these `options` does not accept
            it.
    """
    if kind not in verify.KINDS:
        raise ValueError(f"kind={kind!r} is unknown; use one of {list(verify.KINDS)}")
    gold = _kept_form(reading.lead(answer), kind, choices)
    if not gold:
        raise ValueError(f"answer={answer!r} is not an answer of kind {kind!r}")
    reason = verify.verify(f"\\boxed{{{gold}}}", gold, kind, choices=choices, **options).reason
    if reason != "ok":
        raise ValueError(
            f"answer={answer!r} of kind {kind!r} does not verify as {gold!r} ({reason})"
        )
    return gold


def _kept_form(text: str, kind: str, choices: Sequence[str]) -> str | None:
    """Returns the gold in `text`, None or "" if there is none of its kind."""
    number = verify.number(text) if kind in ("int", "float") else None
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
            letter = verify.letter(text)
            if letter and (not choices or ord(letter) - 65 < len(choices)):
                return letter
            same = verify.named(text, choices)  # an option that occurs twice has no unique letter
            return same[0] if len(same) == 1 else None
        case "yesno":
            return verify.yes_or_no(text)
        case "text":
            return answers.plain(text)
        case "list" | "expr":
            return tokens.clean(text)
