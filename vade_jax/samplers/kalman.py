"""Kalman: a Gaussian posterior on the logit pass rate that drifts, drawn with little noise.

A candidate of this project, not of a paper; near it is KGPS (arXiv 2607.27610), of which only the
abstract was known.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import types
from vade_jax.samplers import base, beta, checks, gaussian
from vade_jax.types import Array

NOISES = ("learned", "fixed")
SCALE_Q = (2.0 ** np.arange(-4, 5)).astype(np.float32)  # of the noise, those compared


@chex.dataclass(frozen=True)
class State:
    """log(p / (1 - p)) of every item is N(mean, var)."""

    mean_I: Array  # float32
    var_I: Array  # float32
    evidence_Q: (
        Array  # float32, faded log-probability of the counts under each noise scale
    )


def make(
    *,
    num_rollouts: int = 8,
    prior_mean: float = 0.0,
    prior_var: float = 4.0,
    noise_selected: float = 0.15,
    noise_rest: float = 0.002,
    noise: str = "learned",
    memory: float = 0.98,
    temper: float = 0.5,
    info_gain: str = "p(1-p)^2",
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the Kalman selector: tempered Thompson draws, scored as VADE's.

    A step adds `noise_rest` to every variance and `noise_selected` to those of the prompts rolled
    out, then conditions these on their counts; a prompt without valid answers is one of the rest.
    With `noise="learned"`, both noises are multiplied by exp(sum_q w_q log s_q), where s runs over
    1/16 ... 16 and w_q is proportional to the probability of the counts of past steps under s_q.

    Args:
        num_rollouts: G, answers to a prompt.
        prior_mean: of the logit pass rate.
        prior_var: of the logit pass rate.
        noise_selected: variance that a visit adds, before its counts are taken in.
        noise_rest: variance that a step adds to every item.
        noise: "learned" scales both noises by how well they predicted, "fixed" does not.
        memory: what a step leaves of the evidence of the ones before.
        temper: factor on the standard deviation of the draws; 1 is Thompson, 0 the mode.
        info_gain: I(p) of Eq. 4 of VADE (arXiv 2511.18902), or its ablation.
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.positive("prior_var", prior_var)
    checks.at_least("noise_selected", noise_selected, 0)
    checks.at_least("noise_rest", noise_rest, 0)
    checks.option("noise", noise, NOISES)
    checks.fraction("memory", memory)
    checks.at_least("temper", temper, 0)
    checks.option("info_gain", info_gain, beta.INFO_GAINS)

    def init(num_items: int) -> State:
        return State(
            mean_I=jnp.full(num_items, prior_mean, jnp.float32),
            var_I=jnp.full(num_items, prior_var, jnp.float32),
            evidence_Q=jnp.zeros(len(SCALE_Q), jnp.float32),
        )

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        draw_key, tie_key = jax.random.split(key)
        p_I = gaussian.draw(draw_key, state.mean_I, state.var_I, temper)
        score_I = beta.info_gain(p_I, info_gain)
        index_M = base.top_b(score_I, tie_key, num_prompts, mesh=mesh, axis=axis)
        proposal = base.same_num_rollouts(index_M, num_rollouts)
        return proposal.replace(p_M=p_I[index_M])

    def update(state: State, feedback: types.Feedback) -> State:
        index_M, asked_M = feedback.index_M, feedback.trials_M > 0
        counts = feedback.successes_M, feedback.trials_M
        scale = noise_scale(state.evidence_Q) if noise == "learned" else 1.0
        mean_M, rest_I = state.mean_I[index_M], state.var_I + scale * noise_rest
        var_M = rest_I[index_M] + scale * noise_selected * asked_M
        new_mean_M, new_var_M = gaussian.condition(mean_M, var_M, *counts)

        def evidence(scale):
            added = scale * (noise_selected + noise_rest)
            var_M = state.var_I[index_M] + added
            return jnp.sum(asked_M * gaussian.log_evidence(mean_M, var_M, *counts))

        new_Q = jax.vmap(evidence)(SCALE_Q) if noise == "learned" else 0.0
        return State(
            mean_I=state.mean_I.at[index_M].set(new_mean_M),
            var_I=rest_I.at[index_M].set(new_var_M),
            evidence_Q=memory * state.evidence_Q + new_Q,
        )

    return base.assemble(init, propose, update, mesh=mesh, axis=axis)


def noise_scale(evidence_Q: Array) -> jax.Array:
    """Returns the geometric mean of the noise scales, each weighted by its evidence."""
    return jnp.exp(jnp.sum(jax.nn.softmax(evidence_Q) * jnp.log(SCALE_Q)))
