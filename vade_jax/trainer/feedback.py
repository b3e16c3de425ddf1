"""What a selector learns from a step, and what the step's metrics say about its groups."""

import jax.numpy as jnp
import numpy as np

from vade_jax.losses import advantages
from vade_jax.trainer.scoring import Scores
from vade_jax.types import Feedback, Metrics, Proposal, Rollouts


def collect(
    proposal: Proposal, rollouts: Rollouts, scores: Scores, *, scale_by_std: bool = True
) -> Feedback:
    """Returns the counts of every chosen prompt and the advantage of every answer."""
    M = len(proposal.index_M)
    valid_N = np.asarray(rollouts.valid_N)
    count = lambda x_N: np.bincount(rollouts.group_N, x_N * valid_N, M).astype(
        np.float32
    )
    return Feedback(
        index_M=np.asarray(proposal.index_M),
        successes_M=count(scores.correct_N),
        trials_M=count(np.ones_like(scores.correct_N)),
        group_N=rollouts.group_N,
        reward_N=scores.reward_N,
        correct_N=scores.correct_N,
        advantage_N=np.asarray(
            advantages.group_normalized(
                jnp.asarray(scores.reward_N),
                jnp.asarray(rollouts.group_N),
                M,
                valid_N=jnp.asarray(valid_N),
                std=scale_by_std,
            )
        ),
        length_N=rollouts.length_N,
        valid_N=valid_N,
    )


def drop(rollouts: Rollouts, keep_M: np.ndarray) -> Rollouts:
    """Returns the rollouts with the groups that the selector does not keep marked invalid."""
    keep_N = np.asarray(keep_M)[rollouts.group_N]
    return rollouts.replace(valid_N=rollouts.valid_N & keep_N)


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
        "vade/effective_ratio": float(np.mean(_varied(feedback))),
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


def _varied(feedback):
    """Groups whose training rewards are not all equal."""
    return ~np.asarray(
        advantages.is_constant(
            jnp.asarray(feedback.reward_N),
            jnp.asarray(feedback.group_N),
            len(feedback.index_M),
            jnp.asarray(feedback.valid_N),
        )
    )
