"""From sampled tokens to text, verdicts and rewards."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from vade_jax.rewards import mix, verify
from vade_jax.types import Item, Rollouts


@dataclasses.dataclass(frozen=True)
class Scores:
    """What every answer was worth. `correct_N` is binary; `reward_N` mixes in the format."""

    text_N: list[str]
    extracted_N: list[str | None]
    reward_N: np.ndarray
    correct_N: np.ndarray


Score = Callable[[Sequence[Item], Rollouts], Scores]


def make(
    decode: Callable[[Sequence[int]], str], *, form: str, format_weight: float
) -> Score:
    """Returns `score(items, rollouts)`: item m judges the answers of group m.

    Args:
        decode: tokens to text, special tokens left out.
        form: the format that `well_formed` checks, a key of `rewards.formats.FORMATS`.
        format_weight: its share of the reward.
    """

    def score(items: Sequence[Item], rollouts: Rollouts) -> Scores:
        text_N = [
            decode(token_T[:length])
            for token_T, length in zip(
                rollouts.token_NT, rollouts.length_N, strict=True
            )
        ]
        verdict_N = [
            verify.verify_item(text, items[m], form=form)
            for text, m in zip(text_N, rollouts.group_N, strict=True)
        ]
        return Scores(
            text_N=text_N,
            extracted_N=[verdict.extracted for verdict in verdict_N],
            reward_N=np.array(
                [mix.reward(verdict, format_weight) for verdict in verdict_N],
                np.float32,
            ),
            correct_N=np.array([verdict.correct for verdict in verdict_N], np.float32),
        )

    return score
