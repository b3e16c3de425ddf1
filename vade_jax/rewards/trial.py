"""Tries the user's reward functions on a few rows before a run starts.

Otherwise a function that fails or has no verdicts would be noticed only after the model has loaded and
answered, and a function that rewards empty answers would never be noticed.
"""

import math
import statistics
import typing
from collections.abc import Callable, Iterable, Sequence

from vade_jax.rewards import answers, functions

if typing.TYPE_CHECKING:  # types imports jax, which rewards must not
    from vade_jax import types


def check(
    judge: functions.Judge,
    items: Sequence["types.Item"],
    form: str,
    encode: Callable[[str], Sequence[int]],
    opening: str = "",
) -> str:
    """Calls the judge on the right answer to some items, in the required `form`, and on an empty one.

    Like a policy's answers, these lack the `opening`, a tag at the end of the prompt. Returns a line for the
    user, and a warning if the data's own answers earn no more than empty ones.

    Raises:
        ValueError: a function fails, has no verdict on any answer, or gives 0 for the data's own answers and
            no less for empty ones.
    """
    pairs = []  # of judgements, on the right answer and on an empty one
    try:
        for item in items:
            own = answers.in_form(item.answer or "No.", form)
            own = own.removeprefix(opening.strip()).lstrip() if opening else own
            pairs.append(judge(item, [own, ""], [encode(own), encode("")]))
    except functions.RewardFailure as error:
        raise ValueError(str(error)) from error
    num_unknown = sum(not one.is_known for pair in pairs for one in pair)
    if num_unknown == 2 * len(pairs):
        raise ValueError(
            f"reward.function: no verdict on {len(pairs)} rows, right answers and empty ones "
            f"({pairs[0][0].reason}): look at the function, or raise reward.timeout_s"
        )
    # "No." is not an answer of the data.
    answered = [pair for item, pair in zip(items, pairs, strict=True) if item.answer]
    own_N, empty_N = zip(*(answered or pairs), strict=True)
    own, empty = (_mean(one.reward for one in each if one.is_known) for each in (own_N, empty_N))
    correct = _mean(one.correct for one in own_N if one.is_known)
    message = (
        f"reward.function on {len(items)} rows: the data's own answers get {own:.3g} on average, and "
        f"{correct:.0%} of them count as correct; empty ones get {empty:.3g}"
    )
    if num_unknown:
        message += f"; no verdict on {num_unknown} of {2 * len(pairs)}"
    if not answered or not own <= empty:
        return message
    if not any(one.is_known and one.reward for one in own_N):
        raise ValueError(
            f"reward.function: all of the data's own answers on {len(answered)} rows earn 0, and empty "
            f"ones {empty:.3g}: look at the function, the columns that it reads and the golds"
        )
    return message + (
        f"\nWARNING: reward.function pays the data's own answers {own:.3g} and empty ones "
        f"{empty:.3g}: a policy learns to answer nothing; look at it before you train on"
    )


def _mean(numbers: Iterable[float]) -> float:
    """Returns the mean; NaN, which compares as neither above nor below, without numbers."""
    return statistics.fmean(known) if (known := [*numbers]) else math.nan
