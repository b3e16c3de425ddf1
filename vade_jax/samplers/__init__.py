"""Selectors: which prompts to roll out next. `SAMPLERS[name](**hyperparameters) -> Sampler`."""

from vade_jax import fields, imports
from vade_jax.samplers import dapo, informed, pooled, uniform, vade
from vade_jax.samplers.base import Needs, PerItem, Sampler, Spec, State, belief_metrics
from vade_jax.samplers.rivals import (
    arcus,
    bots,
    cures,
    dare,
    dps,
    gdro,
    greso,
    insight,
    kalman,
    kgps,
    knapsack,
    mapp,
    mmr1,
    mopps,
    remind,
    retire,
    sec,
    strata,
    vcrl,
)

_OWN = (vade, uniform, dapo, pooled, informed)
_RIVALS = (
    *(arcus, bots, cures, dare, dps, gdro, greso, insight, kalman),
    *(kgps, knapsack, mapp, mmr1, mopps, retire, sec, strata, vcrl),
)
_BASES = {file.SPEC.name: file.SPEC for file in (*_OWN, *_RIVALS)}
# ReMind wraps any of the others, so it needs to know them.
SAMPLERS: dict[str, Spec] = {**_BASES, "remind": remind.spec(_BASES)}


def find(name: str, setting: str = "selector.name") -> Spec:
    """Returns the selector `name`, or one in a user's file: "path/to/file.py:NAME" or "module:NAME".

    Raises:
        ValueError: there is no such selector; the message names the setting and the nearest name.
    """
    if ":" not in name:
        fields.check_word(setting, name, SAMPLERS)
        return SAMPLERS[name]
    found = imports.load(name, setting)
    if not isinstance(found, Spec):
        raise ValueError(f"{setting}={name!r}: it is {type(found).__name__}, no samplers.Spec")
    return found


# Values of `Needs.items` that a pass over all items computes from the tokens of its answers:
# (token_NT, length_N, group_N, num_groups) -> one value per group.
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
    "find",
]
