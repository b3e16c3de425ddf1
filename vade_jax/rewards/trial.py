"""Tries the user's reward functions on a few rows before a run starts.

Otherwise a function that fails, or has no verdict on anything, would be found only after the model was loaded
and had given its first answers; a function that pays for empty answers would never be found.
"""

import statistics
import typing
from collections.abc import Callable, Iterable, Sequence

from vade_jax.rewards import answers, functions

if typing.TYPE_CHECKING:  # types imports jax, which rewards do without
    from vade_jax import types


def check(
    judge: functions.SumOfJudges,
    items: Sequence["types.Item"],
    form: str,
    encode: Callable[[str], Sequence[int]],
    opening: str = "",
) -> str:
    """Calls all judges on the right answer to some items, in the required `form`, and on an empty one.

    The answers lack the `opening`, a tag at the end of the prompt, like a policy's. Returns a line or two for
    the user, with a warning if the data's own answers earn no more than empty ones.

    Raises:
        ValueError: a function or what it counts fails, has no verdict on any answer, or pays nothing for
            the data's own answers and no less for empty ones.
    """
    pairs = []  # of judgements, on the right answer and on an empty one
    rewards_alone = True
    try:
        for item in items:
            own = answers.in_form(item.answer or "No.", form)
            own = own.removeprefix(opening.strip()).lstrip() if opening else own
            each = [one(item, [own, ""], [encode(own), encode("")]) for one in judge.judges]
            rewards_alone &= all(x.correct is None for judged in each for x in judged)
            pairs.append([judge.together(judged) for judged in zip(*each, strict=True)])
        for one in judge.judges:
            if isinstance(one, functions.UserFunction):
                one.metrics()
    except functions.RewardFailure as error:
        raise ValueError(str(error)) from error
    num_unknown = sum(not x.is_known for pair in pairs for x in pair)
    if num_unknown == 2 * len(pairs):
        raise ValueError(
            f"reward.function: no verdict on {len(pairs)} rows, right answers and empty ones "
            f"({pairs[0][0].reason}): look at the function, or raise reward.timeout_s"
        )
    own, empty = (_mean(side) for side in zip(*pairs, strict=True))
    message = (
        f"reward.function on {len(items)} rows: the data's own answers get {_shown(own)} on "
        f"average, empty ones {_shown(empty)}"
    )
    if num_unknown:
        message += f"; no verdict on {num_unknown} of {2 * len(pairs)}"
    if rewards_alone:
        message += (
            "\nreward.function returns rewards alone: an answer counts as correct above "
            f"reward.correct_above={judge.correct_above}"
        )
    # "No." is not an answer of the data.
    answered = [pair for item, pair in zip(items, pairs, strict=True) if item.answer]
    own, empty = (_mean(pair[i] for pair in answered) for i in range(2))
    if own is None or empty is None or own > empty:
        return message
    if not any(pair[0].is_known and pair[0].reward for pair in answered):
        raise ValueError(
            f"reward.function: all of the data's own answers on {len(answered)} rows earn 0, and empty "
            f"ones {empty:.3g}: look at the function, the columns that it reads and the golds"
        )
    return message + (
        f"\nWARNING: reward.function pays the data's own answers {own:.3g} and empty ones "
        f"{empty:.3g}: a policy learns to answer nothing; look at it before you train on"
    )


def _mean(judged: Iterable[functions.Judgement]) -> float | None:
    rewards = [one.reward for one in judged if one.is_known]
    return statistics.fmean(rewards) if rewards else None


def _shown(mean: float | None) -> str:
    return "no verdict" if mean is None else f"{mean:.3g}"
