"""What can be wrong with settings: one clear sentence, before anything is built."""

import dataclasses
import functools
import json
import math

import jax
import pytest
from ml_collections import ConfigDict

from configs import default, tiny_gspo
from experiments import hooks
from vade_jax import settings
from vade_jax.models.qwen import files, presets
from vade_jax.run import build, checks


def smoke(selector="", **fields):
    """Returns a config that passes, with dotted fields changed."""
    c = tiny_gspo.get_config("smoke")
    if selector:
        default.selector(c, selector)
    for name, value in fields.items():
        *parents, last = name.split(".")
        functools.reduce(getattr, parents, c)[last] = value
    return c


def make(*args, **fields):
    return settings.Run.from_dict(smoke(*args, **fields).to_dict())


def check(*args, **fields):
    checks.check(make(*args, **fields), hooks.ALL)


LAG = {"engine.max_lag": 1, "loss.old_logp": "trainer"}
ROWS = {"data.train": "rows.jsonl"}
OF_BASE = {"base": "vade", "base_options": {"max_consecutive": 2}}
# What is wrong, with the selector and the settings that lead to it, and what the message must name.
WRONG = [
    # names
    ("", {"selector.name": "vaed"}, r"selector.name='vaed':.* did you mean 'vade'"),
    ("", {"data.mixture": {"colour": 1}}, r"data.mixture: .*'colour'"),
    # numbers that do not fit each other
    ("", {"reward.weights": (1.0,)}, r"reward.weights=\(1.0,\)"),
    ("", {"batch.prompts_per_minibatch": 3}, r"prompts_per_minibatch=3"),
    # log-probs of two distributions, and corrections
    ("", {"loss.importance": "token"}, r"loss.importance='token'.*loss.old_logp='trainer'"),
    ("", {"sampling.top_k": 5}, r"top_k=5"),
    ("", {"engine.max_lag": 1}, r"max_lag=1: .*loss.old_logp='trainer'"),
    ("", LAG, r"max_lag=1: .*loss.importance='' would not"),
    ("mmr1", LAG | {"measure.every": 5, "loss.importance": "token"}, r"max_lag=1: .*'mmr1'"),
    # settings that nothing would read
    ("", {"lora.vision": True}, r"set lora.rank"),
    ("", {"lora.rank": 8, "model.param_dtype": "bfloat16"}, r"lora.rank=8"),
    # data
    ("", {"data.train": ""}, r"data.train is empty"),
    ("", {"data.validation": ""}, r"data.validation='' and .*share=0.0"),
    ("", {"data.validation_share": 0.1}, r"data.validation='proc.* and .*share=0.1"),
    ("", {"data.num_train": 3}, r"num_prompts=4 is larger than the training set of 3"),
    ("", {"model.preset": ""}, r"model.checkpoint='' and model.preset=''"),
    # what a selector needs
    ("", {"selector.options.decay_selected": 1.5}, r"decay_selected=1.5"),
    ("", {"selector.options.num_rollouts": 8}, r"options.num_rollouts"),
    ("", {"selector.name": "uniform"}, r"options of uniform: there is no setting 'decay_"),
    ("vcrl", {"refill.max_rounds": 1}, r"vcrl .*refill.max_rounds=2, .*'next_step'"),
    ("diva", {"measure.every": 10}, r"measure\.every"),
    ("dapo", {"selector.options": OF_BASE}, r"refill.max_rounds=1"),
    ("", {"budget": 0.2}, r"budget=.* less than the \d+ of one step"),
]  # fmt: skip


@pytest.mark.parametrize(("selector", "fields", "message"), WRONG)
def test_an_impossible_value_names_the_field(selector, fields, message):
    fields = {k: ConfigDict(v) if isinstance(v, dict) else v for k, v in fields.items()}
    with pytest.raises(ValueError, match=message) as caught:
        check(selector, **fields)
    assert "\n" not in str(caught.value)


RIGHT = [
    ("", {"reward.overlong_buffer": 7}),  # of 8 tokens
    ("", {"sampling.top_p": 0.9, "loss.old_logp": "trainer"}),
    ("", ROWS | {"data.validation": "", "data.validation_share": 0.1}),
    ("vcrl", {"refill.max_rounds": 1, "selector.options.replay": "next_step"}),
    # options that are held against the answers of the run
    ("knapsack", {"num_rollouts": 16, "selector.options": {"min_rollouts": 12}}),
    ("", {"budget": 0.5}),
]


@pytest.mark.parametrize(("selector", "fields"), RIGHT)
def test_a_value_at_the_edge_of_what_is_possible(selector, fields):
    fields = {k: ConfigDict(v) if isinstance(v, dict) else v for k, v in fields.items()}
    check(selector, **fields)


def numbers(section=settings.Run(), prefix=""):  # noqa: B008 (frozen)
    """Yields the dotted name, the interval and the value of every number."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from numbers(value, f"{prefix}{field.name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + field.name, field.metadata.get("interval", ""), value


@pytest.mark.parametrize(
    "name", [name for name, interval, value in numbers() if interval and isinstance(value, float)]
)
def test_nan_is_in_no_range(name):
    with pytest.raises(ValueError, match=rf"{name}=nan: must be in"):
        check(**{name: math.nan})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_stps": 3}, r"no setting 'num_stps': did you mean 'num_steps'"),
        ({"num_steps": "3"}, r"num_steps='3': must be of type int, not str"),
        ({"reward": {"weights": ("a",)}}, r"reward.weights\[0\]='a': must be of type float"),
        ({"model": "tiny"}, r"model='tiny': must be of type model, not str"),
    ],
)
def test_a_wrong_name_or_type_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        settings.Run.from_dict(values)


def test_settings_survive_json():
    run = make(**{"reward.function": "a.py:f,a.py:g", "reward.weights": (0.5, 2.0)})
    assert settings.Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_indices_of_64_bits_are_refused():
    with jax.enable_x64(True), pytest.raises(ValueError, match="JAX_ENABLE_X64 is set"):
        check()


def test_benchmarks_and_variants_need_their_hooks():
    for run in (make(**{"eval.benchmarks": "chartqa:x"}), make("diva")):
        with pytest.raises(ValueError, match=r"run\.Hooks"):
            checks.check(run)


# ------------------------------------------------------------------------------ sizes
def test_a_budget_of_less_than_an_answer_is_not_unlimited():
    run = settings.Run(num_steps=3)
    total = 3 * run.num_prompts * run.num_rollouts
    limits = [dataclasses.replace(run, budget=x).max_rollouts for x in (0.0, 1e-9, 0.5, 1.0)]
    assert limits == [0, 1, total / 2, total]


def test_a_budget_is_enough_for_the_pass_before_the_first_step():
    c = smoke(**{"selector.options.warmup": "measured"})
    in_all, a_pass = c.num_steps * c.num_prompts * c.num_rollouts, c.data.num_train * c.num_rollouts
    check(**{"selector.options.warmup": "measured", "budget": a_pass / in_all + 1 / c.num_steps})
    with pytest.raises(ValueError, match=rf"the pass over all items before it \({a_pass}\)"):
        check(**{"selector.options.warmup": "measured", "budget": 1 / c.num_steps})


def test_both_rounds_of_vcrl_need_items():
    """A second round without items would be none, and the next step would be taken for it."""
    run = make("vcrl")
    needs = build.make_selector(run).needs
    checks.check_size(run, needs, 2 * run.num_prompts)
    with pytest.raises(ValueError, match=r"each of vcrl's 2 rounds .*'next_step'"):
        checks.check_size(run, needs, 2 * run.num_prompts - 1)


def test_variants_take_places_and_no_items():
    """8 places are 4 problems with a variant each."""
    run = make("diva", **{"num_prompts": 8, "selector.options.num_variants": 1})
    needs = build.make_selector(run).needs
    checks.check_size(run, needs, 4)
    with pytest.raises(ValueError, match="larger than the training set of 3"):
        checks.check_size(run, needs, 3)


# ------------------------------------------------------------------------------ the model
# One prompt for each fake device.
EIGHT_WAYS = {"num_prompts": 8, "batch.prompts_per_minibatch": 8, "batch.prompts_per_microbatch": 8}


def test_another_size_is_refused_before_weights_are_read(monkeypatch):
    monkeypatch.setattr(files, "load_config", lambda _: presets.PRESETS["3b"])
    checks.check_model(make(**EIGHT_WAYS, **{"model.size": "3b"}), "somewhere")
    with pytest.raises(ValueError, match=r"model.size='7b'"):
        checks.check_model(make(**EIGHT_WAYS, **{"model.size": "7b"}), "somewhere")


def test_an_answer_has_positions_after_the_longest_prompt(monkeypatch):
    monkeypatch.setattr(files, "load_config", lambda _: presets.PRESETS["3b"])
    fits, too_long = ({"data.max_prompt_length": 128_000 - n} for n in (8, 7))
    checks.check_model(make(**EIGHT_WAYS, **fits), "somewhere")
    with pytest.raises(ValueError, match="128000 positions"):
        checks.check_model(make(**EIGHT_WAYS, **too_long), "somewhere")
