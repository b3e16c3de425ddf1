"""Selectors: which prompts to roll out next. `SAMPLERS[name](**hyperparameters) -> Sampler`."""

from vade_jax.samplers import (
    arcus,
    bots,
    cures,
    dapo,
    diva,
    dps,
    greso,
    importance,
    insight,
    kalman,
    kgps,
    knapsack,
    mapp,
    mmr1,
    mopps,
    pooled,
    progress,
    remind,
    sec,
    strata,
    uniform,
    vade,
    vcrl,
)
from vade_jax.samplers.base import Method, Sampler, belief_metrics

_FILES = (
    arcus,
    bots,
    cures,
    dapo,
    diva,
    dps,
    greso,
    importance,
    insight,
    kalman,
    kgps,
    knapsack,
    mapp,
    mmr1,
    mopps,
    pooled,
    progress,
    sec,
    strata,
    uniform,
    vade,
    vcrl,
)
_BASES = {file.METHOD.name: file.METHOD for file in _FILES}
# ReMind goes around any of the others, and is told which there are.
SAMPLERS: dict[str, Method] = {**_BASES, "remind": remind.method(_BASES)}

# What of `Sampler.measures` a pass over all items computes from the answers' tokens:
# (token_NT, length_N, group_N, num_groups) -> one value a group.
FROM_TOKENS = {"self_bleu": mmr1.self_bleu}

__all__ = ["FROM_TOKENS", "SAMPLERS", "Method", "Sampler", "belief_metrics"]
