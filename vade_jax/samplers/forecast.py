"""Beliefs by the state alone, for callers that do not have the `Sampler`: it has `believe`."""

import jax

from vade_jax import types
from vade_jax.samplers import beta, diva, gaussian
from vade_jax.samplers.base import State, belief_metrics


def beliefs(state: State, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns what a Beta posterior believes of the chosen prompts; nothing for other states."""
    return jax.jit(beta.believe)(state, proposal) if hasattr(state, "alpha_I") else {}


def diagnostics(state: State, proposal: types.Proposal) -> types.Metrics:
    """Returns the metrics of what the selector believes."""
    for field, believe in (
        ("alpha_I", beta.believe),
        ("mean_I", gaussian.believe),
        ("difficulty_I", diva.believe),
    ):
        if hasattr(state, field):
            return belief_metrics(jax.jit(believe)(state, proposal))
    return {}
