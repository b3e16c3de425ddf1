"""Selectors: which prompts to roll out next. `SAMPLERS[name](**hyperparameters) -> Sampler`."""

from vade_jax.samplers import dapo, pooled, uniform, vade
from vade_jax.samplers.base import Needs, PerItem, Sampler, Spec, State, belief_metrics
from vade_jax.samplers.rivals import (
    arcus,
    bots,
    cures,
    diva,
    dps,
    greso,
    insight,
    kalman,
    kgps,
    knapsack,
    mapp,
    mmr1,
    mopps,
    remind,
    sec,
    strata,
    vcrl,
)

_OWN = (vade, uniform, dapo, pooled)
_RIVALS = (
    *(arcus, bots, cures, diva, dps, greso, insight, kalman),
    *(kgps, knapsack, mapp, mmr1, mopps, sec, strata, vcrl),
)
_BASES = {file.SPEC.name: file.SPEC for file in (*_OWN, *_RIVALS)}
# ReMind goes around any of the others, and is told which there are.
SAMPLERS: dict[str, Spec] = {**_BASES, "remind": remind.spec(_BASES)}

# What of `Needs.items` a pass over all items computes from the answers' tokens:
# (token_NT, length_N, group_N, num_groups) -> one value a group.
FROM_TOKENS = {"self_bleu": mmr1.self_bleu}

__all__ = [
    "FROM_TOKENS",
    "SAMPLERS",
    "Needs",
    "PerItem",
    "Sampler",
    "Spec",
    "State",
    "belief_metrics",
]
