"""The parts of a round: who is asked, what comes back, which groups wait for the training step."""

import chex
import jax
import jax.numpy as jnp

from experiments.simulation.worlds import Groups
from vade_jax import types
from vade_jax.losses import advantages
from vade_jax.types import Array


@chex.dataclass(frozen=True)
class Pending:
    """The groups kept so far for the next training step."""

    groups: Groups
    count: Array  # int32
    rounds: Array  # int32
    used_I: Array  # bool, items that the step has rolled out


def answer(
    key: jax.Array, pass_rate_I: Array, proposal: types.Proposal, total: int
) -> types.Feedback:
    """Returns the feedback of answers right with their item's pass rate; `total` is N."""
    index_M, num_M = proposal.index_M, proposal.num_rollouts_M
    size = len(index_M)
    group_N = jnp.repeat(jnp.arange(size), num_M, total_repeat_length=total)
    luck_N = jax.random.uniform(key, (total,))
    correct_N = (luck_N < pass_rate_I[index_M][group_N]).astype(jnp.float32)
    return types.Feedback(
        index_M=index_M,
        successes_M=jax.ops.segment_sum(correct_N, group_N, size),
        trials_M=num_M.astype(jnp.float32),
        group_N=group_N,
        reward_N=correct_N,
        correct_N=correct_N,
        advantage_N=advantages.group_normalized(correct_N, group_N, size),
        length_N=jnp.ones(total, jnp.int32),
        valid_N=jnp.ones(total, bool),
    )


def empty(num_prompts: int, num_items: int) -> Pending:
    """Returns the slots of a training step, none of them filled."""
    zero_M = jnp.zeros(num_prompts, jnp.float32)
    groups = Groups(
        index_M=jnp.zeros(num_prompts, jnp.int32),
        successes_M=zero_M,
        trials_M=zero_M,
        trained_M=jnp.zeros(num_prompts, bool),
    )
    return Pending(
        groups=groups,
        count=jnp.int32(0),
        rounds=jnp.int32(0),
        used_I=jnp.zeros(num_items, bool),
    )


def unused(propose, num_prompts: int, max_rounds: int, used_I: Array) -> types.Proposal:
    """Returns the proposal of a round, without items that the step has rolled out.

    As the trainer: what the selector names of unused ones, then those of a larger proposal with the
    same key. Used ones come last, for pools that have no others.
    """
    first = propose(num_prompts)
    if max_rounds == 1:
        return first
    more = propose(min(max_rounds * num_prompts, len(used_I)))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, more)
    place_M, seen_I = jnp.arange(len(both.index_M)), used_I.at[first.index_M].set(True)
    again_M = jnp.where(
        place_M < num_prompts, used_I[both.index_M], seen_I[both.index_M]
    )
    order_M = jnp.argsort(again_M, stable=True)[:num_prompts]
    return jax.tree.map(lambda x: x[order_M], both)


def collect(pending: Pending, feedback: types.Feedback, keep_M: Array) -> Pending:
    """Returns the step with the kept groups put in, as far as there is room."""
    count = pending.count + jnp.cumsum(keep_M)
    size = len(pending.groups.index_M)
    slot_M = jnp.where(keep_M, count - 1, size)  # a slot beyond the last one: dropped
    put = lambda x_M, new_M: x_M.at[slot_M].set(new_M, mode="drop")
    groups = Groups(
        index_M=put(pending.groups.index_M, feedback.index_M),
        successes_M=put(pending.groups.successes_M, feedback.successes_M),
        trials_M=put(pending.groups.trials_M, feedback.trials_M),
        trained_M=put(pending.groups.trained_M, True),
    )
    count = jnp.minimum(count[-1], size).astype(jnp.int32)
    return Pending(
        groups=groups,
        count=count,
        rounds=pending.rounds + 1,
        used_I=pending.used_I.at[feedback.index_M].set(True),
    )


def mixed(successes_M: Array, trials_M: Array) -> jax.Array:
    """Returns which groups have right and wrong answers."""
    return (successes_M > 0) & (successes_M < trials_M)


def prob_mixed(p: Array, num: Array) -> jax.Array:
    """Returns the chance of right and wrong answers among `num` with a known pass rate."""
    return 1 - p**num - (1 - p) ** num
