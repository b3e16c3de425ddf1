"""Selectors: which prompts to roll out next. `SAMPLERS[name](**hyperparameters) -> Sampler`."""

from vade_jax.samplers import (
    dapo,
    diva,
    greso,
    kalman,
    knapsack,
    mmr1,
    mopps,
    sec,
    uniform,
    vade,
    vcrl,
)
from vade_jax.samplers.base import Sampler
from vade_jax.samplers.forecast import beliefs, diagnostics

SAMPLERS = {
    "dapo": dapo.make,
    "diva": diva.make,
    "greso": greso.make,
    "kalman": kalman.make,
    "knapsack": knapsack.make,
    "mmr1": mmr1.make,
    "mopps": mopps.make,
    "sec": sec.make,
    "uniform": uniform.make,
    "vade": vade.make,
    "vcrl": vcrl.make,
}

__all__ = ["SAMPLERS", "Sampler", "beliefs", "diagnostics"]
