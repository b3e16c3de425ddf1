"""What a selector thinks of the prompts that it has chosen, before their answers are there."""

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import types
from vade_jax.samplers import beta, gaussian
from vade_jax.samplers.base import State


@jax.jit
def beliefs(state: State, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns what the selector believes of the chosen prompts, one value a prompt.

    Empty for a state without Beta posteriors.
    """
    if not (hasattr(state, "alpha_I") and hasattr(state, "beta_I")):
        return {}
    alpha_M, beta_M = state.alpha_I[proposal.index_M], state.beta_I[proposal.index_M]
    return {
        "alpha": alpha_M,
        "beta": beta_M,
        "posterior_mean": beta.posterior_mean(alpha_M, beta_M),
        "prob_mixed": beta.prob_mixed(alpha_M, beta_M, proposal.num_rollouts_M),
    }


def diagnostics(state: State, proposal: types.Proposal) -> types.Metrics:
    """Returns the metrics of `beliefs`: call it with the state that made the proposal.

    `vade/predicted_effective_ratio` is then a forecast, made before the rollouts. Difficulties are
    those of a plan: of the problems, and of the variants that were made of them.
    """
    if "difficulty" in (proposal.extra_M or {}):
        return _difficulties(proposal)
    if hasattr(state, "mean_I") and hasattr(state, "var_I"):
        belief = _logit_beliefs(state, proposal)
    else:
        belief = beliefs(state, proposal)
    names = {
        "vade/posterior_mean": "posterior_mean",
        "vade/predicted_effective_ratio": "prob_mixed",
    }
    return {k: jnp.mean(belief[name]) for k, name in names.items() if belief}


def _difficulties(proposal):
    variant_M = np.asarray(proposal.extra_M["variant"])
    difficulty_M = np.asarray(proposal.extra_M["difficulty"])
    names = {"problems": variant_M == 0, "variants": variant_M > 0}
    return {
        f"diva/difficulty_{name}": float(difficulty_M[is_one].mean())
        for name, is_one in names.items()
        if is_one.any()
    }


@jax.jit
def _logit_beliefs(state, proposal):
    mean_M, var_M = state.mean_I[proposal.index_M], state.var_I[proposal.index_M]
    num_M = proposal.num_rollouts_M
    return {
        "posterior_mean": gaussian.posterior_mean(mean_M, var_M),
        "prob_mixed": gaussian.prob_mixed(mean_M, var_M, num_M),
    }
