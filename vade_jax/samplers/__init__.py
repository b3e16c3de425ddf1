"""Selectors: which prompts to roll out next. `SAMPLERS[name](**hyperparameters) -> Sampler`."""

from vade_jax.samplers import uniform, vade
from vade_jax.samplers.base import Sampler, beliefs, diagnostics

SAMPLERS = {
    "uniform": uniform.make,
    "vade": vade.make,
}

__all__ = ["SAMPLERS", "Sampler", "beliefs", "diagnostics"]
