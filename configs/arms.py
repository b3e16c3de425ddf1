"""What a sweep varies: selectors (arms), losses, data and seeds. experiments/sweep.py runs the sweep."""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from configs import default
from vade_jax import samplers

Changes = dict[str, Any]  # the fields of a config that change, nested like the config

DATA = {
    "clean": {},
    "wrong10": {"data": {"wrong_golds": 0.1}},
}
# Decays of Eq. 5 and 6: the share that is kept of a selected prompt's counts, and of the others' counts.
DECAYS = ((0.0, 0.2, 0.5, 0.8), (0.95, 0.99, 0.999, 1.0))
PAPER = ("uniform", "dapo", "vade")
BUDGET = 3  # in VADE's comparison DAPO may use this many times the others' rollouts
LOSSES = {"gspo": default.gspo, "grpo": default.grpo}
PPO_STYLE = LOSSES | {"dapo": default.dapo, "dr_grpo": default.dr_grpo}  # all clip ratios


def make(
    run: ConfigDict,
    name: str,
    *,
    arms: Mapping[str, Changes],
    chosen: str,
    losses: Mapping[str, Changes],
    baseline: str,
) -> ConfigDict:
    """Returns a sweep: every chosen arm with every chosen loss, data and seed.

    Args:
        run: the settings that all runs share; the command line changes them by `--config.run.FIELD=VALUE`.
        name: the folder of tables and figures.
        arms: label -> changes; an arm with another `selector.name` starts without options.
        chosen: the arms that run by default, with commas between.
        losses: label -> changes; all of them run by default.
        baseline: the arm that the others are compared with, seed by seed.
    """
    c = ConfigDict()
    c.name = name
    c.arms = chosen
    c.losses = ",".join(losses)
    c.data = "clean"
    c.seeds = "0,1,2"
    c.baseline = baseline
    c.run = run
    c.known = ConfigDict()  # what the words above stand for
    c.known.arms = ConfigDict(dict(arms))
    c.known.losses = ConfigDict(dict(losses))
    c.known.data = ConfigDict(DATA)
    return c


def changes(run: ConfigDict, put: Callable[[ConfigDict], None]) -> Changes:
    """Returns the changes that `put`, such as `default.gspo`, makes to `run`.

    A value that `put` derives from the length limit of answers (as `default.dapo` does) stays a reference
    to the limit of `run`, and follows it when it changes.
    """
    c = ConfigDict(run.to_dict())
    c.sampling.max_tokens = run.sampling.get_oneway_ref("max_tokens")
    put(c)
    return _difference(run.to_dict(), c)


def loss_name(run: ConfigDict) -> str:
    """Returns the loss of `run`, or the loss that needs the fewest changes to `run`."""
    return min(PPO_STYLE, key=lambda name: len(changes(run, PPO_STYLE[name]).get("loss", {})))


def selector(run: ConfigDict, name: str, **options) -> Changes:
    """Returns the changes to a selector with these options, and to the settings that go with it."""

    def put(c):
        default.selector(c, name)
        c.selector.options = ConfigDict(options)

    return {"selector": {"name": name}} | changes(run, put)


def rivals(run: ConfigDict) -> dict[str, Changes]:
    """Returns the selectors to compare, by label; VADE has the options of `run`."""
    own = run.selector.options.to_dict()
    rest = [name for name in samplers.SAMPLERS if name not in PAPER]
    return {
        "uniform": selector(run, "uniform"),
        "dapo": budgeted(selector(run, "dapo")),
        "dapo_three_rounds": selector(run, "dapo"),
        "vade": selector(run, "vade", **own),
        "vade_measured": selector(run, "vade", **own | {"warmup": "measured"}),
        "vade_dapo": budgeted(selector(run, "dapo", base="vade", base_options=own)),
        "remind_vade": selector(run, "remind", base="vade", base_options=own),
        **{name: selector(run, name) for name in rest},
    }


def budgeted(changes: Changes) -> Changes:
    """Returns the changes with batches refilled until full, in any number of rounds, within a budget."""
    return changes | {"budget": float(BUDGET), "refill": {**changes["refill"], "max_rounds": 0}}


def variants(run: ConfigDict) -> dict[str, Changes]:
    """Returns VADE with one option changed, by label: ablations of the paper, and some of our own."""
    part = functools.partial(selector, run, "vade")
    return {
        "vade_p1p": part(info_gain="p(1-p)"),
        "vade_greedy": part(draw="greedy"),
        "vade_last_update": part(history="last_update"),
        "vade_mean": part(draw="mean"),
        "vade_no_decay": part(decay_selected=1.0, decay_rest=1.0),
        "vade_decay_selected": part(decay_rest=1.0),  # only this decay
        "vade_decay_rest": part(decay_selected=1.0),
        "vade_no_warmup": part(warmup="none"),
        "vade_full_warmup": part(warmup="full"),
        "vade_max_3_in_a_row": part(max_consecutive=3),
        "vade_uniform_quarter": part(uniform_share=0.25),
        "vade_per_token": part(per="token"),
    }


def decay_grid(run: ConfigDict) -> dict[str, Changes]:
    """Returns VADE over lambda_1 (selected prompts) x lambda_2 (all others), labelled in thousandths.

    decay_200_999 is the paper's choice.
    """
    own = run.selector.options.to_dict()
    return {
        f"decay_{1000 * selected:.0f}_{1000 * rest:.0f}": selector(
            run, "vade", **own | {"decay_selected": selected, "decay_rest": rest}
        )
        for selected, rest in itertools.product(*DECAYS)
    }


def _difference(before: Mapping[str, Any], after: ConfigDict) -> Changes:
    # Only what differs: `--config.run.FIELD=VALUE` can then still change the other fields of an arm.
    found = {}
    for name, value in after.items(preserve_field_references=True):
        if isinstance(value, ConfigDict):
            if before.get(name) != value.to_dict():
                found[name] = _difference(before.get(name, {}), value)
        elif before.get(name) != after[name]:
            found[name] = value
    return found
