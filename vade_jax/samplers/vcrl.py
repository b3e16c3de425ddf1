"""VCRL (arXiv 2509.19803): only groups of high variance train, and they come back."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base, checks
from vade_jax.types import Array

REPLAYS = ("same_step", "next_step", "none")


@chex.dataclass(frozen=True)
class State:
    """Visits, and the memory bank: items with a priority above -inf are in it."""

    visits_I: Array  # int32, replays not counted
    priority_I: Array  # float32
    access_I: Array  # int32, the step that put the item in
    replays_I: Array  # int32, how often the item has been taken out
    last_I: Array  # int32, the step of the latest visit or replay; 0 before the first
    dropped: Array  # int32, groups whose places the next proposal fills from the bank
    step: Array  # int32


def make(
    *,
    num_rollouts: int = 8,
    threshold_first: float = 0.3,
    threshold: float = 0.8,
    first_steps: int = 20,
    momentum: float = 0.9,
    max_replays: int = 2,
    replay: str = "same_step",
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the VCRL selector (arXiv 2509.19803): uniform's order, filtered by variance.

    A group with c of n right has v = c (n-c) / (floor(n/2) ceil(n/2)), its variance over the
    largest possible. It is trained on if v reaches the threshold, and enters the memory bank with
    priority v; the priorities of the others become momentum P + (1 - momentum) (steps since they
    entered). Items of the bank take the places of dropped groups: in the same step, which needs a
    training loop with a second round for them (its refill of 2 rounds, "missing"). They are rolled
    out anew and, as in the paper, trained on whatever their variance; to enter the bank again they
    have to reach the threshold. Places that the bank cannot fill take the next items of the order,
    which the threshold filters: the paper does not say.

    Args:
        num_rollouts: G, answers to a prompt.
        threshold_first: kappa in the first steps.
        threshold: kappa after them.
        first_steps: how many these are.
        momentum: alpha_m.
        max_replays: how often an item may be taken out of the bank.
        replay: when items of the bank come back: in the "same_step", at the beginning of the
            batch of the "next_step", which needs no second round, or in "none".
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.fraction("threshold_first", threshold_first)
    checks.fraction("threshold", threshold)
    checks.at_least("first_steps", first_steps, 0)
    checks.fraction("momentum", momentum)
    checks.at_least("max_replays", max_replays, 0)
    checks.option("replay", replay, REPLAYS)

    def init(num_items: int) -> State:
        zero_I = jnp.zeros(num_items, jnp.int32)
        return State(
            visits_I=zero_I,
            priority_I=jnp.full(num_items, -jnp.inf),
            access_I=zero_I,
            replays_I=zero_I,
            last_I=zero_I,
            dropped=jnp.zeros((), jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )

    within = replay == "same_step"

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = (jnp.min(state.visits_I) - state.visits_I).astype(jnp.float32)
        taken_I = replayed(state, num_prompts, within=within)
        score_I = jnp.where(taken_I, jnp.inf, due_I)
        index_M = base.top_b(score_I, key, num_prompts, mesh=mesh, axis=axis)
        return base.same_num_rollouts(index_M, num_rollouts)

    def keep(state: State, feedback: types.Feedback) -> jax.Array:
        return (feedback.trials_M > 0) & (
            high(state, feedback) | taken(state, feedback)
        )

    def taken(state, feedback):
        index_M = feedback.index_M
        return replayed(state, len(index_M), within=within)[index_M]

    def high(state, feedback):
        early = state.step - refilling(state) < first_steps
        kappa = jnp.where(early, threshold_first, threshold)
        variance_M = variance(feedback.successes_M, feedback.trials_M)
        return (variance_M >= kappa) & (feedback.trials_M > 0)

    def refilling(state):
        """Returns whether a proposal of `state` is its step's second."""
        return (state.dropped > 0) & within

    def update(state: State, feedback: types.Feedback) -> State:
        index_M, taken_M = feedback.index_M, taken(state, feedback)
        step = state.step + ~refilling(state)
        dropped = jnp.sum(~keep(state, feedback))
        dropped = jnp.where(refilling(state) | (replay == "none"), 0, dropped)
        replays_M = state.replays_I[index_M] + taken_M
        priority_I = state.priority_I.at[index_M].add(jnp.where(taken_M, -jnp.inf, 0))
        aged_I = aged(priority_I, step - state.access_I, momentum)
        ends = (dropped == 0) | (not within)
        priority_I = jnp.where(ends, aged_I, priority_I)
        enter_M = high(state, feedback) & (replays_M < max_replays)
        variance_M = variance(feedback.successes_M, feedback.trials_M)
        priority_M = jnp.where(enter_M, variance_M, priority_I[index_M])
        access_M = jnp.where(enter_M, step, state.access_I[index_M])
        return State(
            visits_I=state.visits_I.at[index_M].add(~taken_M),
            priority_I=priority_I.at[index_M].set(priority_M),
            access_I=state.access_I.at[index_M].set(access_M),
            replays_I=state.replays_I.at[index_M].set(replays_M),
            last_I=state.last_I.at[index_M].set(step),
            dropped=jnp.int32(dropped),
            step=step,
        )

    return base.assemble(init, propose, update, keep=keep, mesh=mesh, axis=axis)


def variance(successes_M: Array, trials_M: Array) -> jax.Array:
    """Returns the variance of binary rewards over the largest possible; 0 for one answer or none."""
    half_M = jnp.floor(trials_M / 2)
    most_M = half_M * (trials_M - half_M)
    return successes_M * (trials_M - successes_M) / jnp.maximum(most_M, 1)


def aged(priority_I: Array, age_I: Array, momentum: float) -> Array:
    """Returns the priorities one step later; those that entered in this one, at age 0, stay."""
    later_I = momentum * priority_I + (1 - momentum) * age_I
    later_I = jnp.where(age_I > 0, later_I, priority_I)
    return jnp.where(priority_I > -jnp.inf, later_I, -jnp.inf)


def replayed(state: State, num_prompts: int, *, within: bool = False) -> jax.Array:
    """Returns which items the batch takes from the bank: for each group dropped, the next best.

    Args:
        state: of the selector.
        num_prompts: of the batch.
        within: the batch is of the step that has dropped them, and takes no item twice.
    """
    there_I = state.priority_I > -jnp.inf
    if within:
        there_I &= state.last_I < state.step
    priority_I = jnp.where(there_I, state.priority_I, -jnp.inf)
    priority_M, index_M = jax.lax.top_k(priority_I, min(num_prompts, len(priority_I)))
    taken_M = (jnp.arange(len(index_M)) < state.dropped) & (priority_M > -jnp.inf)
    return jnp.zeros(priority_I.shape, bool).at[index_M].set(taken_M)
