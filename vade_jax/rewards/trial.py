"""Tries the user's reward functions on a few rows before a run starts.

Otherwise a function that fails, or has no verdict on anything, would be found only after the model was loaded
and had given its first answers; a function that pays for empty answers would never be found.
"""

import itertools
import statistics
import typing
from collections.abc import Callable, Sequence

from vade_jax.rewards import functions
from vade_jax.rewards.answers import in_form
from vade_jax.rewards.mix import Judgement

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
    answers = [_answers(item, form, opening) for item in items]
    try:
        found = [
            [one(item, pair, [encode(text) for text in pair]) for one in judge.judges]
            for item, pair in zip(items, answers, strict=True)
        ]
        for one in judge.judges:
            if isinstance(one, functions.UserFunction):
                one.metrics()
    except functions.RewardFailure as error:
        raise ValueError(str(error)) from error
    judged = [map(judge.together, zip(*each, strict=True)) for each in found]
    right, empty = zip(*judged, strict=True)
    known = [one for one in right + empty if one.is_known]
    if not known:
        raise ValueError(
            f"reward.function: no verdict on {len(right)} rows, right answers and empty ones "
            f"({right[0].reason}): look at the function, or raise reward.timeout_s"
        )
    means = [_mean(side) for side in (right, empty)]
    said = (
        f"reward.function on {len(items)} rows: the data's own answers get {means[0]} on "
        f"average, empty ones {means[1]}"
    )
    if unknown := len(right + empty) - len(known):
        said += f"; no verdict on {unknown} of {len(right + empty)}"
    if all(one.correct is None for each in found for side in each for one in side):
        said += (
            "\nreward.function returns rewards alone: an answer counts as correct above "
            f"reward.correct_above={judge.correct_above}"
        )
    has_answer = [bool(item.answer) for item in items]  # "No." is no answer of the data
    return said + _verdict(*(list(itertools.compress(side, has_answer)) for side in (right, empty)))


def _answers(item: "types.Item", form: str, opening: str) -> tuple[str, str]:
    """Returns the right answer to an item, and an empty one."""
    own = in_form(item.answer or "No.", form)
    return own.removeprefix(opening.strip()).lstrip() if opening else own, ""


def _verdict(own: Sequence[Judgement], empty: Sequence[Judgement]) -> str:
    """Returns a warning if the data's own answers earn no more than empty ones; ValueError if all earn 0."""
    own_rewards, empty_rewards = ([x.reward for x in side if x.is_known] for side in (own, empty))
    if not own_rewards or not empty_rewards:
        return ""
    earned, for_nothing = map(statistics.fmean, (own_rewards, empty_rewards))
    if earned > for_nothing:
        return ""
    if not any(own_rewards):
        raise ValueError(
            f"reward.function: all of the data's own answers on {len(own)} rows earn 0, and empty ones "
            f"{for_nothing:.3g}: look at the function, the columns that it reads and the golds"
        )
    return (
        f"\nWARNING: reward.function pays the data's own answers {earned:.3g} and empty ones "
        f"{for_nothing:.3g}: a policy learns to answer nothing; look at it before you train on"
    )


def _mean(judged: Sequence[Judgement]) -> str:
    """Returns the mean reward of those with a verdict."""
    rewards = [one.reward for one in judged if one.is_known]
    return f"{statistics.fmean(rewards):.3g}" if rewards else "no verdict"
