"""DAPO's dynamic sampling (arXiv 2503.14476): groups without a learning signal are dropped."""

import dataclasses

import jax

from vade_jax import fields
from vade_jax.samplers import base, uniform, vade

BASES = {spec.name: spec for spec in (uniform.SPEC, vade.SPEC)}
KEEPS = {"mixed": base.keep_mixed, "varied": base.keep_varied}


@dataclasses.dataclass(frozen=True)
class DapoOptions(base.AroundOptions):
    """The hyperparameters of DAPO's filter and of the selector that it wraps ("uniform" in the paper)."""

    # Groups that are kept: those with right and wrong answers ("mixed"), or those whose training rewards
    # differ ("varied")
    keep: str = fields.choice("mixed", *KEEPS)


def selector(options: DapoOptions) -> base.Sampler:
    """Returns DAPO's filter around another selector: the constraint of Eq. 11 of arXiv 2503.14476.

    It keeps groups with 0 < correct < G. In the paper, dynamic sampling rolls out prompts until a batch
    of such groups is full; here the training loop's refill rounds do that. The wrapped selector proposes
    the prompts of every round and learns from all of its answers.
    """
    return base.below(BASES, options)._replace(keep=jax.jit(KEEPS[options.keep]))


# The comparison in VADE's paper allows at most three times the rollouts.
SPEC = base.Spec("dapo", DapoOptions, selector, goes_with={"refill.max_rounds": 3})
