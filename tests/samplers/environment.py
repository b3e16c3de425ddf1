"""An engine without a model: items with known pass rates, for tests of selectors."""

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import types


def counts(index_M, successes_M, trials_M=8, extra_M=None) -> types.Feedback:
    """Returns what is counted of some groups, without their answers: most look at nothing else."""
    successes_M = jnp.array(successes_M, jnp.float32)
    empty_N, index_N = jnp.zeros(0), jnp.zeros(0, jnp.int32)
    return types.Feedback(
        index_M=jnp.array(index_M),
        successes_M=successes_M,
        trials_M=jnp.broadcast_to(jnp.array(trials_M, jnp.float32), successes_M.shape),
        group_N=index_N,
        reward_N=empty_N,
        correct_N=empty_N,
        advantage_N=empty_N,
        length_N=index_N,
        valid_N=jnp.zeros(0, bool),
        extra_M=extra_M,
    )


def feedback(
    proposal: types.Proposal, rate_I: np.ndarray, rng: np.random.Generator
) -> types.Feedback:
    """Returns what answers that are right with probability `rate_I` would bring, as the loop has it."""
    proposal = jax.device_get(proposal)
    index_M, num_M = proposal.index_M, proposal.num_rollouts_M
    group_N = np.repeat(np.arange(len(index_M), dtype=np.int32), num_M)
    correct_N = (rng.random(len(group_N)) < rate_I[index_M][group_N]).astype(np.float32)
    return types.Feedback(
        index_M=index_M,
        successes_M=np.bincount(group_N, correct_N).astype(np.float32),
        trials_M=num_M.astype(np.float32),
        group_N=group_N,
        reward_N=correct_N,
        correct_N=correct_N,
        advantage_N=correct_N
        - (np.bincount(group_N, correct_N) / num_M)[group_N].astype(np.float32),
        length_N=np.ones(len(group_N), np.int32),
        valid_N=np.ones(len(group_N), bool),
        extra_M=proposal.extra_M,
    )


def play(selector, state, rate_I, num_prompts, num_steps, seed=0):
    """Returns the proposal and the feedback of every step, and the last state."""
    rng, steps = np.random.default_rng(seed), []
    for step in range(num_steps):
        key = jax.random.fold_in(jax.random.key(seed), step)
        proposal = selector.propose(state, key, num_prompts)
        seen = feedback(proposal, rate_I, rng)
        keep_M = selector.keep(state, seen)
        assert keep_M.shape == (num_prompts,) and keep_M.dtype == bool
        steps.append((proposal, seen))
        state = selector.update(state, seen)
    return steps, state
