"""DAPO's dynamic sampling (arXiv 2503.14476): groups without signal are not trained on."""

import dataclasses

import jax

from vade_jax import fields
from vade_jax.samplers import base, uniform, vade

BASES = {spec.name: spec for spec in (uniform.SPEC, vade.SPEC)}
KEEPS = {"mixed": base.keep_mixed, "varied": base.keep_varied}


@dataclasses.dataclass(frozen=True)
class DapoOptions(base.AroundOptions):
    """The hyperparameters of DAPO's filter, and of the selector below it: the paper's is "uniform"."""

    # Groups of right and wrong answers ("mixed"), or those whose training rewards differ ("varied").
    keep: str = fields.choice("mixed", *KEEPS)


def selector(options: DapoOptions) -> base.Sampler:
    """Returns DAPO's filter around another selector, the constraint of Eq. 11 of arXiv 2503.14476.

    Groups are kept with 0 < correct < G. A selector only says which; the paper's dynamic sampling,
    rolling out prompts until a batch of such groups is full, is the training loop's refill in
    rounds. The base proposes, and learns from, every round.
    """
    return base.below(BASES, options)._replace(keep=jax.jit(KEEPS[options.keep]))


SPEC = base.Spec(
    "dapo",
    DapoOptions,
    selector,
    # VADE's comparison allows three times the rollouts at most.
    goes_with={"refill.max_rounds": 3},
)
