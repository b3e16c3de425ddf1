"""An engine without a model: items with known pass rates, for tests of selectors."""

import jax.numpy as jnp
import numpy as np

from vade_jax import types


def feedback(
    proposal: types.Proposal, rate_I: np.ndarray, rng: np.random.Generator
) -> types.Feedback:
    """Returns what answers that are right with probability `rate_I` would bring."""
    index_M, num_M = np.asarray(proposal.index_M), np.asarray(proposal.num_rollouts_M)
    group_N = np.repeat(np.arange(len(index_M)), num_M)
    correct_N = (rng.random(len(group_N)) < rate_I[index_M][group_N]).astype(np.float32)
    return types.Feedback(
        index_M=jnp.asarray(index_M),
        successes_M=jnp.asarray(np.bincount(group_N, correct_N), jnp.float32),
        trials_M=jnp.asarray(num_M, jnp.float32),
        group_N=jnp.asarray(group_N),
        reward_N=jnp.asarray(correct_N),
        correct_N=jnp.asarray(correct_N),
        advantage_N=jnp.zeros(len(group_N)),
        length_N=jnp.ones(len(group_N), jnp.int32),
        valid_N=jnp.ones(len(group_N), bool),
    )


def effective(feedback: types.Feedback) -> np.ndarray:
    """Returns which groups have right and wrong answers."""
    successes_M = np.asarray(feedback.successes_M)
    return (successes_M > 0) & (successes_M < np.asarray(feedback.trials_M))
