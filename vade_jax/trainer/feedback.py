"""What a selector learns from a step, and what the step's metrics say about its groups."""

from typing import Protocol

import jax.numpy as jnp
import numpy as np

from vade_jax import arrays
from vade_jax.losses import advantages
from vade_jax.trainer.scoring import Scores
from vade_jax.types import Array, Feedback, Metrics, Proposal, Rollouts


class Advantage(Protocol):
    """How much better an answer is than its group, or what a method takes for that."""

    def __call__(
        self,
        reward_N: np.ndarray,
        group_N: np.ndarray,
        num_groups: int,
        valid_N: np.ndarray,
        length_N: np.ndarray,
        proposal: Proposal,
    ) -> Array:
        """Returns float32 `advantage_N`, 0 where `valid_N` is False, of one round's answers."""


def group_normalized(
    reward_N: np.ndarray,
    group_N: np.ndarray,
    num_groups: int,
    valid_N: np.ndarray,
    length_N: np.ndarray,
    proposal: Proposal,
    *,
    std: bool = True,
) -> Array:
    """Implements `Advantage`: see `advantages.group_normalized`.

    Padded to few sizes with invalid answers, which change no bit: rounds of any size compile little.
    """
    del length_N, proposal
    N = len(reward_N)
    pad = lambda x_N: jnp.asarray(arrays.pad_rows(x_N, arrays.bucket(N, 64)))
    advantage_N = advantages.group_normalized(
        pad(reward_N),
        pad(group_N),
        arrays.bucket(num_groups, 8),
        valid_N=pad(valid_N),
        std=std,
    )
    return np.asarray(advantage_N)[:N]


def collect(
    proposal: Proposal,
    rollouts: Rollouts,
    scores: Scores,
    advantage: Advantage = group_normalized,
) -> Feedback:
    """Returns the counts of every chosen prompt and the advantage of every answer."""
    M, group_N = len(proposal.index_M), rollouts.group_N
    valid_N, length_N = np.asarray(rollouts.valid_N), rollouts.length_N
    count = lambda x_N: np.bincount(group_N, x_N * valid_N, M).astype(np.float32)
    advantage_N = advantage(scores.reward_N, group_N, M, valid_N, length_N, proposal)
    return Feedback(
        index_M=np.asarray(proposal.index_M),
        successes_M=count(scores.correct_N),
        trials_M=count(np.ones_like(scores.correct_N)),
        group_N=group_N,
        reward_N=scores.reward_N,
        correct_N=scores.correct_N,
        advantage_N=np.asarray(advantage_N),
        length_N=length_N,
        valid_N=valid_N,
        extra_M=proposal.extra_M,
    )


def metrics(feedback: Feedback, rollouts: Rollouts) -> Metrics:
    """Returns the shares of groups that teach, and scores and lengths, on the host."""
    valid_N = feedback.valid_N
    if not valid_N.any():
        raise RuntimeError(
            f"the engine gave no answer to any of {len(valid_N)} requests"
        )
    asked_M = feedback.trials_M > 0
    mixed_M = (feedback.successes_M > 0) & (feedback.successes_M < feedback.trials_M)
    length_N, reward_N = feedback.length_N[valid_N], feedback.reward_N[valid_N]
    return {
        "vade/effective_ratio": float(np.mean(varied(feedback))),
        "vade/effective_ratio_correct": float(np.mean(mixed_M)),
        "vade/all_right_ratio": float(
            np.mean(asked_M & (feedback.successes_M == feedback.trials_M))
        ),
        "vade/all_wrong_ratio": float(np.mean(asked_M & (feedback.successes_M == 0))),
        "critic/score/mean": float(np.mean(feedback.correct_N[valid_N])),
        "critic/rewards/mean": float(np.mean(reward_N)),
        "critic/advantages/max": float(np.max(feedback.advantage_N)),
        "critic/advantages/min": float(np.min(feedback.advantage_N)),
        "response_length/mean": float(np.mean(length_N)),
        "response_length/max": float(np.max(length_N)),
        "response_length/clip_ratio": float(1 - np.mean(rollouts.finished_N[valid_N])),
        "response/aborted_ratio": float(1 - np.mean(valid_N)),
    }


def varied(feedback: Feedback) -> np.ndarray:
    """Returns which groups have training rewards that are not all equal.

    On the host: rounds of any size compile nothing.
    """
    low_M = np.full(len(feedback.index_M), np.inf)
    high_M = -low_M
    reward_N, valid_N = feedback.reward_N, feedback.valid_N
    np.minimum.at(low_M, feedback.group_N, np.where(valid_N, reward_N, np.inf))
    np.maximum.at(high_M, feedback.group_N, np.where(valid_N, reward_N, -np.inf))
    return low_M < high_M
