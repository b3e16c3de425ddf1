"""VCRL (arXiv 2509.19803): only groups of high variance train, and they come back."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base
from vade_jax.types import Array

REPLAYS = ("next_step", "none")


@chex.dataclass(frozen=True)
class State:
    """Visits, and the memory bank: items with a priority above -inf are in it."""

    visits_I: Array  # int32, replays not counted
    priority_I: Array  # float32
    access_I: Array  # int32, the step that put the item in
    replays_I: Array  # int32, how often the item has been taken out
    dropped: Array  # int32, groups that the last step did not train on
    step: Array  # int32


def make(
    *,
    num_rollouts: int = 8,
    threshold_first: float = 0.3,
    threshold: float = 0.8,
    first_steps: int = 20,
    momentum: float = 0.9,
    max_replays: int = 2,
    replay: str = "next_step",
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the VCRL selector (arXiv 2509.19803): uniform's order, filtered by variance.

    A group with c of n right has v = c (n-c) / (floor(n/2) ceil(n/2)), its variance over the
    largest possible. It is trained on if v reaches the threshold, and enters the memory bank with
    priority v; the priorities of the others become momentum P + (1 - momentum) (steps since they
    entered). Departure: the paper fills the slots of dropped groups from the bank in the same
    step; here the next step's batch begins with as many of the bank's best, rolled out anew.

    Args:
        num_rollouts: G, answers to a prompt.
        threshold_first: kappa in the first steps.
        threshold: kappa after them.
        first_steps: how many these are.
        momentum: alpha_m.
        max_replays: how often an item may be taken out of the bank.
        replay: "next_step" as above; "none" leaves the bank to be filled.
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    base.check_num_rollouts(num_rollouts)
    base.check_fraction("threshold_first", threshold_first)
    base.check_fraction("threshold", threshold)
    base.check_at_least("first_steps", first_steps, 0)
    base.check_fraction("momentum", momentum)
    base.check_at_least("max_replays", max_replays, 0)
    base.check_option("replay", replay, REPLAYS)

    def init(num_items: int) -> State:
        zero_I = jnp.zeros(num_items, jnp.int32)
        return State(
            visits_I=zero_I,
            priority_I=jnp.full(num_items, -jnp.inf),
            access_I=zero_I,
            replays_I=zero_I,
            dropped=jnp.zeros((), jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = (jnp.min(state.visits_I) - state.visits_I).astype(jnp.float32)
        score_I = jnp.where(replayed(state, num_prompts), jnp.inf, due_I)
        index_M = base.top_b(score_I, key, num_prompts, mesh=mesh, axis=axis)
        return base.same_num_rollouts(index_M, num_rollouts)

    def keep(state: State, feedback: types.Feedback) -> jax.Array:
        kappa = jnp.where(state.step < first_steps, threshold_first, threshold)
        variance_M = variance(feedback.successes_M, feedback.trials_M)
        return (variance_M >= kappa) & (feedback.trials_M > 0)

    def update(state: State, feedback: types.Feedback) -> State:
        index_M, keep_M, step = feedback.index_M, keep(state, feedback), state.step + 1
        replayed_I = replayed(state, len(index_M))
        replays_I = state.replays_I + replayed_I
        age_I = (step - state.access_I).astype(jnp.float32)
        stays_I = (state.priority_I > -jnp.inf) & ~replayed_I
        aged_I = momentum * state.priority_I + (1 - momentum) * age_I
        aged_I = jnp.where(stays_I, aged_I, -jnp.inf)
        enter_M = keep_M & (replays_I[index_M] < max_replays)
        variance_M = variance(feedback.successes_M, feedback.trials_M)
        priority_M = jnp.where(enter_M, variance_M, aged_I[index_M])
        access_M = jnp.where(enter_M, step, state.access_I[index_M])
        dropped = jnp.sum(~keep_M) if replay == "next_step" else 0
        return State(
            visits_I=state.visits_I.at[index_M].add(~replayed_I[index_M]),
            priority_I=aged_I.at[index_M].set(priority_M),
            access_I=state.access_I.at[index_M].set(access_M),
            replays_I=replays_I,
            dropped=jnp.int32(dropped),
            step=step,
        )

    return base.assemble(init, propose, update, keep=keep, mesh=mesh, axis=axis)


def variance(successes_M: Array, trials_M: Array) -> jax.Array:
    """Returns the variance of binary rewards over the largest possible; 0 for one answer or none."""
    half_M = jnp.floor(trials_M / 2)
    most_M = half_M * (trials_M - half_M)
    return successes_M * (trials_M - successes_M) / jnp.maximum(most_M, 1)


def replayed(state: State, num_prompts: int) -> jax.Array:
    """Returns which items the batch takes from the bank: for each group dropped, the next best."""
    priority_I = jnp.where(jnp.isnan(state.priority_I), -jnp.inf, state.priority_I)
    priority_M, index_M = jax.lax.top_k(priority_I, min(num_prompts, len(priority_I)))
    taken_M = (jnp.arange(len(index_M)) < state.dropped) & (priority_M > -jnp.inf)
    return jnp.zeros(priority_I.shape, bool).at[index_M].set(taken_M)
