"""Selectors: which prompts to roll out next. `SAMPLERS[name](**hyperparameters) -> Sampler`."""

import functools

from vade_jax import fields, imports
from vade_jax.samplers import baselines, categories, gaussian, informed, vade
from vade_jax.samplers.base import Needs, PerItem, Sampler, Spec, State, belief_metrics, require
from vade_jax.samplers.rivals import arcus, bots, cero, counting, dps, filters, mmr1, queues, shares

_SPECS = (
    *(vade.SPEC, baselines.UNIFORM, baselines.DAPO, categories.POOLED, informed.SPEC, arcus.SPEC),
    *(bots.SPEC, cero.SPEC, counting.CURES, counting.DARE, dps.SPEC, shares.GDRO, filters.GRESO),
    *(counting.INSIGHT, gaussian.KALMAN, gaussian.KGPS, shares.KNAPSACK, counting.MAPP),
    *(mmr1.SPEC, counting.MOPPS, queues.RETIRE, categories.SEC, categories.STRATA, filters.VCRL),
)
SAMPLERS: dict[str, Spec] = {spec.name: spec for spec in _SPECS}
# ReMind wraps any of the others, so it needs to know them.
_remind = functools.partial(queues.remind, dict(SAMPLERS))
SAMPLERS["remind"] = Spec("remind", queues.RemindOptions, _remind)


def find(name: str, setting: str = "selector.name") -> Spec:
    """Returns the selector `name`, or one in a user's file: "path/to/file.py:NAME" or "module:NAME".

    Raises:
        ValueError: there is no such selector; the message names the setting and the nearest name.
    """
    if ":" not in name:
        fields.check_word(setting, name, SAMPLERS)
        return SAMPLERS[name]
    spec = imports.load(name, setting)
    if not isinstance(spec, Spec):
        raise ValueError(f"{setting}={name!r}: {type(spec).__name__} is not a samplers.Spec")
    return spec


# Values of `Needs.items` that a pass over all items computes from the tokens of its answers:
# (token_NT, length_N, group_N, num_groups) -> one value per group.
FROM_TOKENS = {"self_bleu": mmr1.self_bleu}

__all__ = ["FROM_TOKENS", "SAMPLERS", "Needs", "PerItem", "Sampler", "Spec", "State"]
__all__ += ["belief_metrics", "find", "require"]
