"""DAPO's dynamic sampling (arXiv 2503.14476): groups without signal are not trained on."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from vade_jax import fields
from vade_jax.samplers import base, uniform, vade

BASES = {method.name: method for method in (uniform.METHOD, vade.METHOD)}


@dataclasses.dataclass(frozen=True)
class DapoOptions(base.Options):
    """The hyperparameters of DAPO's filter, and of the selector below it."""

    # Groups of right and wrong answers ("mixed"), whose training rewards differ ("varied"), or "all".
    keep: str = fields.choice("mixed", *base.KEEPS)
    base: str = fields.choice("uniform", *BASES)  # of prompts; the paper's is "uniform"
    base_options: Mapping[str, Any] = fields.mapping()  # its other hyperparameters

    def __post_init__(self):
        super().__post_init__()
        known = set(BASES[self.base].option_names) - {"num_rollouts"}
        for name in self.base_options:
            fields.check_word(f"{self.base} has no such option; base_options", name, known)


def selector(options: DapoOptions) -> base.Sampler:
    """Returns DAPO's filter around another selector, the constraint of Eq. 11 of arXiv 2503.14476.

    Groups are kept with 0 < correct < G. A selector only says which; the paper's dynamic sampling,
    rolling out prompts until a batch of such groups is full, is the training loop's refill in
    rounds. The base proposes, and learns from, every round.
    """
    below = BASES[options.base]
    sampler = below(num_rollouts=options.num_rollouts, **options.base_options)
    keep = base.KEEPS[options.keep]
    return sampler._replace(keep=jax.jit(keep), drops=keep is not base.keep_all)


METHOD = base.Method(
    "dapo",
    DapoOptions,
    selector,
    # VADE's comparison allows three times the rollouts at most.
    goes_with={"refill.max_rounds": 3},
)
