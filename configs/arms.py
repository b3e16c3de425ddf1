"""What a sweep varies: selectors (arms), losses and data. experiments/sweep.py runs the sweep.

Each is a function that changes the config of a run, like those of configs/default.py. It gets the settings
that all runs share, including changes by `--config.run.FIELD=VALUE`.
"""

import functools
import itertools
from collections.abc import Callable

from ml_collections import ConfigDict

from configs import default
from vade_jax import samplers

Change = Callable[[ConfigDict], None]

BUDGET = 3.0  # in VADE's comparison DAPO may use this many times the others' rollouts
# Decays of Eq. 5 and 6: the share that is kept of a selected prompt's counts, and of the others' counts.
DECAYS = ((0.0, 0.2, 0.5, 0.8), (0.95, 0.99, 0.999, 1.0))


def changed(run: ConfigDict, *changes: Change) -> ConfigDict:
    """Returns a copy of `run` with some changes, in this order."""
    c = ConfigDict(run.to_dict())
    both(*changes)(c)
    return c


def both(*changes: Change) -> Change:
    """Returns the change that makes all of these, in this order."""

    def change(c: ConfigDict) -> None:
        for one in changes:
            one(c)

    return change


def nothing(c: ConfigDict) -> None:
    """Changes nothing."""


def wrong_golds(c: ConfigDict) -> None:
    """Makes a tenth of the training golds wrong."""
    c.data.wrong_golds = 0.1


DATA: dict[str, Change] = {"clean": nothing, "wrong10": wrong_golds}
LOSSES: dict[str, Change] = {x: functools.partial(default.loss, name=x) for x in default.LOSSES}


# ------------------------------------------------------------------------------ selectors
def selector(name: str, **options) -> Change:
    """Returns the change to a selector with these options, and to the settings that go with it.

    The run's own selector keeps its other options; another one has the default for the rest.
    """

    def change(c: ConfigDict) -> None:
        if name != c.selector.name:
            default.selector(c, name)
            c.selector.options = ConfigDict()
        c.selector.options.update(options)

    return change


def around_vade(name: str) -> Change:
    """Returns the change to a selector that wraps VADE with the options of the run."""

    def change(c: ConfigDict) -> None:
        selector(name, base="vade", base_options=c.selector.options.to_dict())(c)

    return change


def refilled(c: ConfigDict) -> None:
    """Refills batches until they are full, in any number of rounds, within a budget."""
    c.budget, c.refill.max_rounds = BUDGET, 0


def cero(c: ConfigDict) -> None:
    """CERO plans for the steps of the run."""
    selector("cero", **({"steps": c.num_steps} if c.num_steps else {}))(c)


# The selectors to compare; VADE has the options of the run.
RIVALS: dict[str, Change] = {
    "uniform": selector("uniform"),
    "dapo": both(selector("dapo"), refilled),
    "dapo_three_rounds": selector("dapo"),
    "vade": selector("vade"),
    "vade_measured": selector("vade", warmup="measured"),
    "vade_dapo": both(around_vade("dapo"), refilled),
    "remind_vade": around_vade("remind"),
    "cero": cero,
}
RIVALS |= {name: selector(name) for name in samplers.SAMPLERS if name not in RIVALS}

# VADE with one option changed: ablations of the paper, and some of our own. The simulator has them too.
OPTIONS: dict[str, dict] = {
    "vade_p1p": {"info_gain": "p(1-p)"},
    "vade_greedy": {"draw": "greedy"},
    "vade_last_update": {"history": "last_update"},
    "vade_mean": {"draw": "mean"},
    "vade_no_decay": {"decay_selected": 1.0, "decay_rest": 1.0},
    "vade_decay_selected": {"decay_rest": 1.0},  # only this decay
    "vade_decay_rest": {"decay_selected": 1.0},
    "vade_no_warmup": {"warmup": "none"},
    "vade_full_warmup": {"warmup": "full"},
    "vade_max_3_in_a_row": {"max_consecutive": 3},
    "vade_uniform_quarter": {"uniform_share": 0.25},
    "vade_per_token": {"per": "token"},
}
VARIANTS = {label: selector("vade", **options) for label, options in OPTIONS.items()}
# VADE over lambda_1 (selected prompts) x lambda_2 (all others), in thousandths; 200_999 is the paper's.
DECAY_GRID: dict[str, Change] = {
    f"decay_{1000 * kept:.0f}_{1000 * rest:.0f}": selector(
        "vade", decay_selected=kept, decay_rest=rest
    )
    for kept, rest in itertools.product(*DECAYS)
}
