"""VADE (arXiv 2511.18902): Thompson draws of every pass rate, scored by information gain."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base, beta, checks
from vade_jax.types import Array

DRAWS = ("thompson", "greedy", "mean")
HISTORIES = ("two_scale", "last_update")
WARMUPS = ("full", "none")


@chex.dataclass(frozen=True)
class State:
    """Decayed counts of every item; the posterior of its pass rate is Beta(alpha+1, beta+1)."""

    alpha_I: Array  # float32, right answers
    beta_I: Array  # float32, wrong answers
    unseen_I: Array  # bool, still to be visited by the warm-up
    streak_I: Array | None = None  # int32, visits in a row up to now; None: not capped


def make(
    *,
    num_rollouts: int = 8,
    decay_selected: float = 0.2,
    decay_rest: float = 0.999,
    info_gain: str = "p(1-p)^2",
    draw: str = "thompson",
    history: str = "two_scale",
    warmup: str = "full",
    half_life_epochs: float = 0.0,
    max_consecutive: int = 0,
    uniform_share: float = 0.0,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the VADE selector, Algorithm 1 of VADE (arXiv 2511.18902).

    Departure: the paper rolls out the whole data set before step 1 and trains on none of it. Here
    `warmup="full"` puts items never visited first, in random order; those steps are ordinary
    on-policy steps that also train, and counts decay in them as in any other. The last three
    options are not in the paper; 0 leaves each out.

    Args:
        num_rollouts: G, answers to a prompt.
        decay_selected: lambda_1 of Eq. 5.
        decay_rest: lambda_2 of Eq. 6, a step.
        info_gain: I(p) of Eq. 4, or its ablation.
        draw: the p that is scored: a "thompson" draw from the posterior, the "greedy" ratio
            alpha / (alpha + beta), or the posterior "mean".
        history: "last_update" overrides the decays by 0 and 1: only a prompt's latest counts.
        warmup: "full" visits every item once before Thompson selection begins, "none" does not.
        half_life_epochs: replaces lambda_2 by 2^(-B / (I h)): counts of items not selected halve
            in h epochs of I / B steps, whatever the size of data set and batch.
        max_consecutive: an item selected in so many steps in a row is left out of the next.
        uniform_share: this share of a batch, rounded down, is drawn evenly from all items.
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.fraction("decay_selected", decay_selected)
    checks.fraction("decay_rest", decay_rest)
    checks.option("info_gain", info_gain, beta.INFO_GAINS)
    checks.option("draw", draw, DRAWS)
    checks.option("history", history, HISTORIES)
    checks.option("warmup", warmup, WARMUPS)
    checks.at_least("half_life_epochs", half_life_epochs, 0)
    checks.at_least("max_consecutive", max_consecutive, 0)
    checks.fraction("uniform_share", uniform_share)
    if half_life_epochs and history == "last_update":
        raise ValueError(
            f"half_life_epochs={half_life_epochs}: history='last_update' never forgets"
            " what was not selected: set one of them to its default"
        )
    if history == "last_update":
        decay_selected, decay_rest = 0.0, 1.0

    def init(num_items: int) -> State:
        return State(
            alpha_I=jnp.zeros(num_items, jnp.float32),
            beta_I=jnp.zeros(num_items, jnp.float32),
            unseen_I=jnp.full(num_items, warmup == "full"),
            streak_I=jnp.zeros(num_items, jnp.int32) if max_consecutive else None,
        )

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        draw_key, tie_key = jax.random.split(key)
        p_I = pass_rate(draw_key, state.alpha_I, state.beta_I, draw)
        score_I = jnp.where(state.unseen_I, jnp.inf, beta.info_gain(p_I, info_gain))
        score_I = varied(score_I, state, jax.random.fold_in(key, 2), num_prompts)
        index_M = base.top_b(score_I, tie_key, num_prompts, mesh=mesh, axis=axis)
        proposal = base.same_num_rollouts(index_M, num_rollouts)
        return proposal.replace(p_M=p_I[index_M])

    def varied(score_I, state, key, num_prompts):
        num_uniform = int(uniform_share * num_prompts)
        score_I = base.mix_uniform(score_I, key, num_uniform, mesh=mesh, axis=axis)
        if max_consecutive:
            tired_I = state.streak_I >= max_consecutive
            score_I = jnp.where(tired_I, -jnp.inf, score_I)
        return score_I

    def update(state: State, feedback: types.Feedback) -> State:
        index_M = feedback.index_M
        rest = decay_rest
        if half_life_epochs:
            rest = half_life(half_life_epochs, len(state.alpha_I), len(index_M))
        alpha_I, beta_I = beta.decay_and_count(
            state.alpha_I,
            state.beta_I,
            index_M,
            feedback.successes_M,
            feedback.trials_M,
            decay_selected=decay_selected,
            decay_rest=rest,
        )
        unseen_I = state.unseen_I.at[index_M].set(False)
        streak_I = state.streak_I
        if max_consecutive:
            streak_M = streak_I[index_M] + 1
            streak_I = jnp.zeros_like(streak_I).at[index_M].set(streak_M)
        return State(
            alpha_I=alpha_I, beta_I=beta_I, unseen_I=unseen_I, streak_I=streak_I
        )

    sharding = None if mesh is None else jax.sharding.NamedSharding(mesh, jax.P(axis))
    return base.Sampler(
        init=jax.jit(init, static_argnames="num_items", out_shardings=sharding),
        propose=jax.jit(propose, static_argnames="num_prompts"),
        keep=jax.jit(base.keep_all),
        update=jax.jit(update, out_shardings=sharding),
    )


def pass_rate(key: jax.Array, alpha_I: Array, beta_I: Array, draw: str) -> jax.Array:
    """Returns the pass rates that get scored. `key` decides the Thompson draws.

    The greedy ratio of an item without counts, 0/0 in the paper, is 1/2.
    """
    if draw == "thompson":
        return beta.draw(key, alpha_I, beta_I)
    if draw == "mean":
        return beta.posterior_mean(alpha_I, beta_I)
    total_I = alpha_I + beta_I
    return jnp.where(total_I == 0, 0.5, alpha_I / jnp.where(total_I == 0, 1, total_I))


def half_life(num_epochs: float, num_items: int, num_prompts: int) -> float:
    """Returns the decay a step that halves in `num_epochs` epochs of num_items / num_prompts steps."""
    return 0.5 ** (num_prompts / (num_items * num_epochs))
