"""MoPPS (arXiv 2507.04632): Thompson draws on a pool of candidates, the nearest to 1/2 win."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base, beta, checks
from vade_jax.types import Array

SELECTIONS = ("topk", "threshold")
OWN = 2**20  # folded into the key of `seed`: a run of the same seed folds in its steps


@chex.dataclass(frozen=True)
class State:
    """The posterior of every item's pass rate is Beta(alpha+1, beta+1), as VADE's."""

    alpha_I: Array  # float32
    beta_I: Array  # float32
    passes_I: Array  # int32, how often the item has been a candidate
    step: Array  # int32


def make(
    *,
    num_rollouts: int = 8,
    decay: float = 1.0,
    prior_alpha: float = 1.0,
    prior_beta: float = 1.0,
    candidates: float = 16,
    selection: str = "topk",
    target: float = 0.5,
    band: tuple[float, float] = (0.3, 0.7),
    seed: int = 0,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the MoPPS selector, Algorithm 1 of arXiv 2507.04632, options as in its public code.

    A step's candidates are the next of a shuffled pass over the data, so each item is one once a
    pass. Departures: a pool that reaches over the end of a pass takes items of the next one,
    where the code's loader drops the remainder; a prompt without valid answers keeps its
    posterior.

    Args:
        num_rollouts: G, answers to a prompt.
        decay: lambda; what is left of the distance to the prior when an item is visited (the
            paper: 1 for mathematics, 0.5 for countdown and geometry). Items not visited keep theirs.
        prior_alpha: alpha_0, at least 1.
        prior_beta: beta_0, at least 1.
        candidates: pool size over batch size (the paper: 16, or 8).
        selection: "topk" takes the draws nearest to `target`; "threshold" random ones within
            `band`, then the nearest to it.
        target: the pass rate sought, gamma*.
        band: the pass rates that are as good as any other, for "threshold".
        seed: of the order of the passes, the shuffled loader's; draws come from the given keys.
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.fraction("decay", decay)
    checks.at_least("prior_alpha", prior_alpha, 1)
    checks.at_least("prior_beta", prior_beta, 1)
    checks.at_least("candidates", candidates, 1)
    checks.option("selection", selection, SELECTIONS)
    checks.fraction("target", target)
    low, high = (target, target) if selection == "topk" else band
    if not 0 <= low <= high <= 1:
        raise ValueError(f"band={band}: give two ascending pass rates from 0 to 1")

    def init(num_items: int) -> State:
        return State(
            alpha_I=jnp.full(num_items, prior_alpha - 1, jnp.float32),
            beta_I=jnp.full(num_items, prior_beta - 1, jnp.float32),
            passes_I=jnp.zeros(num_items, jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )

    def pool(state: State, num_prompts: int) -> jax.Array:
        """Returns the candidates: the same for `propose` and the `update` that follows."""
        size = min(int(candidates * num_prompts), len(state.passes_I))
        due_I = (jnp.min(state.passes_I) - state.passes_I).astype(jnp.float32)
        own = jax.random.fold_in(jax.random.key(seed), OWN)
        key = jax.random.fold_in(own, state.step)
        return base.top_b(due_I, key, size, mesh=mesh, axis=axis)

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        draw_key, tie_key = jax.random.split(key)
        candidate_C = jnp.sort(pool(state, num_prompts))
        alpha_C, beta_C = state.alpha_I[candidate_C], state.beta_I[candidate_C]
        p_C = beta.draw(draw_key, alpha_C, beta_C)
        chosen_M = base.top_b(-distance(p_C, low, high), tie_key, num_prompts)
        proposal = base.same_num_rollouts(candidate_C[chosen_M], num_rollouts)
        return proposal.replace(p_M=p_C[chosen_M])

    def update(state: State, feedback: types.Feedback) -> State:
        first_alpha, first_beta = prior_alpha - 1, prior_beta - 1
        alpha_I, beta_I = beta.decay_and_count(
            state.alpha_I - first_alpha,
            state.beta_I - first_beta,
            feedback.index_M,
            feedback.successes_M,
            feedback.trials_M,
            decay_selected=decay,
            decay_rest=1.0,
        )
        candidate_C = pool(state, len(feedback.index_M))
        return State(
            alpha_I=alpha_I + first_alpha,
            beta_I=beta_I + first_beta,
            passes_I=state.passes_I.at[candidate_C].add(1),
            step=state.step + 1,
        )

    return base.assemble(init, propose, update, mesh=mesh, axis=axis)


def distance(p_C: Array, low: float, high: float) -> jax.Array:
    """Returns how far each pass rate lies outside [low, high]; 0 inside."""
    return jnp.maximum(jnp.maximum(low - p_C, p_C - high), 0.0)
