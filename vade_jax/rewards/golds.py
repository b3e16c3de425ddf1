"""Right answers in the one form that they are kept in, by kind."""

import re
from collections.abc import Sequence

from vade_jax.rewards import answers, expressions, lists, scalars, verify

_LEAD = re.compile(
    r"(?:the )?(?:final |correct )?answer(?: is\s*:?|\s*:)\s*", re.IGNORECASE
)


def normalise_gold(answer: str, kind: str, *, choices: Sequence[str] = ()) -> str:
    r"""Returns a right answer in the form that a data set keeps.

    A choice becomes its letter (also from the text of just one option), yes or no lower case, a
    number digits without thousands commas and unit (percent signs, fractions and decimals stay:
    the tolerance depends on them), a list its elements with ", " between, a formula LaTeX
    without dollars. "The answer is" and "Answer:" before it are left out.

    Args:
      answer: the right answer as a source has it.
      kind: a key of `verify.KINDS`.
      choices: texts of options A, B, ...

    Raises:
      ValueError: if it is no answer of that kind, or would not be accepted as one itself.
    """
    if kind not in verify.KINDS:
        raise ValueError(f"kind={kind!r} is unknown; use one of {list(verify.KINDS)}")
    gold = _NORMALISE[kind](_LEAD.sub("", answer.strip(), count=1), choices)
    if gold is None:
        raise ValueError(f"answer={answer!r} is no answer of kind {kind!r}")
    verdict = verify.verify(f"\\boxed{{{gold}}}", gold, kind, choices=choices)
    if not verdict.correct:
        raise ValueError(
            f"answer={answer!r} of kind {kind!r} does not verify as {gold!r} ({verdict.reason})"
        )
    return gold


def _choice(text: str, choices: Sequence[str]) -> str | None:
    letter = scalars.letter(text)
    if letter is not None and (not choices or ord(letter) - 65 < len(choices)):
        return letter
    words = answers.words(text)
    found = [i for i, choice in enumerate(choices) if answers.words(choice) == words]
    return chr(65 + found[0]) if len(found) == 1 else None


def _number(text: str, choices: Sequence[str]) -> str | None:
    del choices
    if (match := answers.quantity(text)) is None:
        return None
    bottom = f"/{match['bottom']}" if match["bottom"] else ""
    return f"{match['top'].lstrip('+')}{bottom}{match['percent'] or ''}"


def _integer(text: str, choices: Sequence[str]) -> str | None:
    number = answers.number(text)
    if number is None or number[0] != number[0].to_integral_value():
        return None
    return f"{number[0]:f}".split(".")[0] + "%" * number[1]


def _list(text: str, choices: Sequence[str]) -> str | None:
    del choices
    inside = ", ".join(lists.elements(text))
    return rf"\{{{inside}\}}" if lists.is_set(text) else f"[{inside}]"


_NORMALISE = {
    "choice": _choice,
    "yesno": lambda text, _: scalars.yes_or_no(text),
    "int": _integer,
    "float": _number,
    "text": lambda text, _: answers.plain(text) or None,
    "list": _list,
    "expr": lambda text, _: expressions.clean(text) or None,
}
