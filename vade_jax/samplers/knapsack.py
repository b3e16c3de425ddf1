"""Knapsack RL (arXiv 2509.25849): a step's rollouts go to the prompts where one more pays."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import allocation, base, checks, uniform, vade
from vade_jax.types import Array

POSTERIORS = ("newest", "vade")


@chex.dataclass(frozen=True)
class State:
    """The newest answers to every item, counted."""

    alpha_I: Array  # float32, right
    beta_I: Array  # float32, wrong
    visits_I: Array  # int32


def make(
    *,
    num_rollouts: int = 8,
    min_rollouts: int = 2,
    max_rollouts: int = 128,
    negative_rollouts: int = 2,
    positive_rollouts: int = 2,
    confidence: float = 0.9,
    fallback: bool = True,
    buffer: int = 16,
    min_count: int = 8,
    posterior: str = "newest",
    decay_selected: float = 0.2,
    decay_rest: float = 0.999,
    warmup: str = "full",
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the Knapsack selector (arXiv 2509.25849): B prompts share B num_rollouts answers.

    N answers to a prompt are worth (1 - p^N - (1-p)^N) p (1-p)^2 (their Eq. for Value). This is
    concave in N, so handing out one answer after the other, always where it adds most, solves the
    knapsack exactly. Departures from the public code: it is exact (the code's recursion scores a
    prompt without extra answers as 0), no group exceeds `max_rollouts`, prompts not yet rolled out
    do not share the surplus of those all wrong, and a batch of mixed prompts only is no error.

    Args:
        num_rollouts: G, the mean number of answers to a prompt, and that of unknown ones.
        min_rollouts: the least for a prompt with right and wrong answers.
        max_rollouts: the most for any prompt.
        negative_rollouts: for a prompt whose newest answers are all wrong, before any surplus.
        positive_rollouts: the same for all right.
        confidence: a mixed prompt can use ln(1 - confidence) / ln(max(p, 1-p)) answers.
        fallback: what the mixed ones of a batch cannot use goes evenly to those all wrong, else
            to the other ones; False leaves it with the mixed.
        buffer: p is of this many newest answers, more if the newest group is larger.
        min_count: answers from which on p counts as known.
        posterior: "newest" takes p from the newest answers and prompts in uniform's order; "vade"
            takes both from VADE: its choice, and the mean value under its Beta posterior.
        decay_selected: lambda_1 of VADE's Eq. 5, for posterior="vade".
        decay_rest: lambda_2 of its Eq. 6.
        warmup: VADE's, "full" or "none".
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.within("min_rollouts", min_rollouts, 2, num_rollouts)
    checks.at_least("max_rollouts", max_rollouts, num_rollouts)
    checks.within("negative_rollouts", negative_rollouts, 2, num_rollouts)
    checks.within("positive_rollouts", positive_rollouts, 2, num_rollouts)
    checks.within("confidence", confidence, 0, 1 - 1e-6)
    checks.at_least("buffer", buffer, 1)
    checks.at_least("min_count", min_count, 1)
    checks.option("posterior", posterior, POSTERIORS)
    place = {"mesh": mesh, "axis": axis}
    even = uniform.make(num_rollouts=num_rollouts, **place)
    bayes = vade.make(
        num_rollouts=num_rollouts,
        decay_selected=decay_selected,
        decay_rest=decay_rest,
        warmup=warmup,
        **place,
    )

    def propose_vade(state, key: jax.Array, num_prompts: int) -> types.Proposal:
        proposal = bayes.propose(state, key, num_prompts)
        alpha_M, beta_M = counts(state, proposal)
        gain_MG = allocation.expected_gain(alpha_M, beta_M, max_rollouts)
        low_M = jnp.full(num_prompts, min_rollouts)
        order_MG = jnp.full(gain_MG.shape, allocation.WITHIN)
        budget = num_rollouts * num_prompts
        num_M = allocation.fill(gain_MG, low_M, order_MG, budget)
        return proposal.replace(num_rollouts_M=num_M)

    if posterior == "vade":
        propose_vade = jax.jit(propose_vade, static_argnames="num_prompts")
        return bayes._replace(propose=propose_vade)

    def init(num_items: int) -> State:
        zero_I = jnp.zeros(num_items, jnp.float32)
        visits_I = jnp.zeros(num_items, jnp.int32)
        return State(alpha_I=zero_I, beta_I=zero_I, visits_I=visits_I)

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        visits = uniform.State(visits_I=state.visits_I)
        proposal = even.propose(visits, key, num_prompts)
        num_M = share(*counts(state, proposal), num_rollouts * num_prompts)
        return proposal.replace(num_rollouts_M=num_M)

    def share(alpha_M, beta_M, budget):
        total_M = alpha_M + beta_M
        known_M = total_M > min_count - 0.5  # the counts are sums of fractions
        wrong_M, right_M = known_M & (alpha_M == 0), known_M & (beta_M == 0)
        mixed_M = known_M & ~wrong_M & ~right_M
        low_M = jnp.select(
            [mixed_M, wrong_M, right_M],
            [min_rollouts, negative_rollouts, positive_rollouts],
            num_rollouts,
        )
        p_M = jnp.where(known_M, alpha_M / jnp.maximum(total_M, 1), 0.5)
        gain_MG, useful = allocation.gain(p_M, max_rollouts), jnp.inf
        if fallback:
            useful = allocation.usable(p_M, mixed_M, confidence, max_rollouts)
        order_MG = allocation.fill_order(gain_MG, low_M, mixed_M, wrong_M, useful)
        # Of prompts that are not mixed, the one with the fewest answers is next.
        level_G = -jnp.arange(max_rollouts, dtype=jnp.float32)
        gain_MG = jnp.where(mixed_M[:, None], gain_MG, level_G)
        return allocation.fill(gain_MG, low_M, order_MG, budget)

    def update(state: State, feedback: types.Feedback) -> State:
        index_M, trials_M = feedback.index_M, feedback.trials_M
        alpha_M, beta_M = state.alpha_I[index_M], state.beta_I[index_M]
        # How much of the older answers still fits: they have no order, so a share of both.
        room_M = jnp.maximum(buffer - trials_M, 0) / jnp.maximum(alpha_M + beta_M, 1)
        room_M = jnp.minimum(room_M, 1)
        new_alpha_M = room_M * alpha_M + feedback.successes_M
        new_beta_M = room_M * beta_M + trials_M - feedback.successes_M
        return State(
            alpha_I=state.alpha_I.at[index_M].set(new_alpha_M),
            beta_I=state.beta_I.at[index_M].set(new_beta_M),
            visits_I=state.visits_I.at[index_M].add(1),
        )

    return base.assemble(init, propose, update, **place)


def counts(state, proposal: types.Proposal) -> tuple[Array, Array]:
    """Returns right and wrong answers of the prompts proposed."""
    return state.alpha_I[proposal.index_M], state.beta_I[proposal.index_M]
