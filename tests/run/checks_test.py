"""What can be wrong with settings: one clear sentence, before anything is built."""

import dataclasses
import functools
import importlib.util
import json
import math

import jax
import pytest
from ml_collections import ConfigDict

from configs import default, tiny_gspo
from experiments import hooks
from vade_jax import settings
from vade_jax.models.qwen import files, presets
from vade_jax.run import checks


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
# What is wrong, with the selector and the settings that lead to it, and what the message must say.
WRONG = [
    # names
    ("", {"selector.name": "vaed"}, r"selector.name='vaed':.* known are .*vade"),
    ("", {"engine.name": "vlm"}, r"engine.name='vlm':.* known are local"),
    ("", {"reward.format": "box"}, r"reward.format='box':.* known are boxed, think_boxed"),
    ("", {"reward.function": "none.py:f"}, r"reward.function='none.py:f': the file none.py does"),
    ("", {"data.kind": "formula"}, r"data.kind='formula':.* known are choice, yesno, .*expr"),
    ("", {"data.mixture": {"colour": 1}}, r"data.mixture: mixture has no part 'colour'; use"),
    ("", {"model.preset": "7b"}, r"model.preset='7b':.* known are tiny"),
    ("", {"model.size": "8b"}, r"model.size='8b':.* known are 3b, 7b, 32b, 72b, qwen3vl-2b, "),
    # numbers that do not fit each other
    ("", {"loss.dual_clip": 0.5}, r"loss.dual_clip=0.5: must be above 1, or 0 for none"),
    ("", {"reward.weights": (1.0,)}, r"reward.weights=\(1.0,\): give one for each of the 0"),
    ("", {"reward.overlong_buffer": 8}, r"overlong_buffer=8 leaves .* sampling.max_tokens=8"),
    ("", {"batch.prompts_per_minibatch": 3}, r"prompts_per_minibatch=3 does not divide num_p"),
    ("", {"batch.prompts_per_microbatch": 3}, r"microbatch=3 does not divide batch.*minibatch=4"),
    ("", {"batch.answers_per_row": 16}, r"answers_per_row=16: .* num_rollouts=4: give at most"),
    ("", {"data.max_pixels": 2000}, r"min_pixels=12544 is larger than data.max_pixels=2000"),
    ("", {"data.length_multiple": 9000}, r"data.length_multiple=9000 is more than .*=128: "),
    # log-probs of two distributions, and corrections
    ("", {"loss.importance": "token"}, r"loss.importance='token'.*loss.old_logp='trainer'"),
    ("", {"sampling.top_k": 5}, r"'behaviour' is of the truncated .*'trainer'"),
    ("", {"sampling.top_p": 0.9}, r"'behaviour' is of the truncated .*'trainer'"),
    ("", {"engine.max_lag": 1}, r"max_lag=1: .*loss.old_logp='trainer' and loss.importance='tok"),
    ("", LAG, r"max_lag=1: .*loss.importance is empty.*'none' to go without"),
    ("mmr1", LAG | {"measure.every": 5, "loss.importance": "token"}, r"max_lag=1: .*'mmr1'"),
    # settings that nothing would read
    ("", {"lora.vision": True}, r"lora.vision=True is not read"),
    ("", {"loss.importance_cap": 9.0}, r"importance_cap=9.0 is not read with loss.importance=''"),
    ("", {"reward.overlong_factor": 0.5}, r"is not read with reward.overlong_buffer=0"),
    ("", {"lora.rank": 8, "model.param_dtype": "bfloat16"}, r"rank=8 an adapter .* at 'float32'"),
    ("", {"engine.options": {"a": 8}}, r"engine.options=.* set engine.name='vllm_server'"),
    # data
    ("", {"data.train": ""}, r"data.train is empty: give 'procedural', a .jsonl"),
    ("", {"data.validation": ""}, r"data.validation='' and .*share=0.0: give one of them"),
    ("", {"data.validation_share": 0.1}, r"data.validation='proc.* and .*share=0.1: give one of"),
    ("", {"data.validation": "", "data.validation_share": 0.1}, r"the built-in data have their own"),
    ("", {"data.num_validation": 0}, r"num_validation=0: must be in \[1, inf\) for procedural"),
    ("", {"data.num_train": 3}, r"num_prompts=4 is larger than the training set of 3 usable"),
    ("", ROWS | {"data.wrong_golds": 0.1}, r"data.wrong_golds=0.1 with data.train='rows.jsonl'"),
    ("", {"model.preset": ""}, r"model.checkpoint='' and model.preset='': give exactly one"),
    ("", {"model.checkpoint": "x"}, r"model.checkpoint='x' and .*exactly one"),
    # what a selector needs
    ("", {"selector.options.decay_selected": 1.5}, r"decay_selected=1.5"),
    ("", {"selector.options.draw": "best"}, r"draw='best'"),
    ("", {"selector.options.num_rollouts": 4}, r"options.num_rollouts=4: .* set num_rollouts$"),
    ("", {"selector.name": "uniform"}, r"options of uniform: there is no setting 'decay_"),
    ("informed", {"selector.arrays": {"features": "x"}}, r"arrays.features='x': .* leave them out"),
    ("", {"refill.max_rounds": 3}, r"refill=.*'max_rounds': 3.* vade drops no group"),
    ("vcrl", {"refill.max_rounds": 1}, r"vcrl .*refill.max_rounds=2, .*'next_step'"),
    ("vcrl", {"measure.every": 10}, r"measure\.every"),
    ("diva", {"measure.every": 10}, r"measure\.every"),
    ("diva", {"scale_by_std": False}, "scale_by_std=False with diva"),
    ("dapo", {"selector.options": OF_BASE}, r"refill.max_rounds=1, .* max_consecutive=0 of vade"),
    ("", {"budget": 0.2}, r"budget=.* less than the \d+ of one step: give .* or 0"),
]  # fmt: skip


@pytest.mark.parametrize(("selector", "fields", "message"), WRONG)
def test_an_impossible_value_names_the_field_and_the_way_out(selector, fields, message):
    fields = {k: ConfigDict(v) if isinstance(v, dict) else v for k, v in fields.items()}
    with pytest.raises(ValueError, match=message) as caught:
        check(selector, **fields)
    assert "\n" not in str(caught.value)


RIGHT = [
    ("", {"optimizer.clip_norm": math.inf}),  # no clipping
    ("", {"reward.overlong_buffer": 7}),  # of 8 tokens
    ("", {"sampling.top_p": 0.9, "loss.old_logp": "trainer"}),
    ("", LAG | {"loss.importance": "none"}),
    ("", {"model.param_dtype": "bfloat16"}),
    ("", ROWS | {"data.num_train": 0}),
    ("", ROWS | {"data.validation": "", "data.validation_share": 0.1}),
    ("", {"data.wrong_golds": 0.1}),
    ("", {"data.train": "o/n", "data.validation": "o/n"}),  # its splits
    ("dapo", {"refill.ask": "missing"}),
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
        ({"num_steps": True}, r"num_steps=True: must be of type int, not bool"),
        ({"engine": {"url": "a:8000"}}, r"engine.url: 'a:8000' is no URL of a server: write"),
        ({"reward": {"weights": ("1",)}}, r"reward.weights\[0\]='1': must be of type float"),
        ({"model": "tiny"}, r"model='tiny': must be a mapping of its settings: checkpoint, "),
    ],
)
def test_a_wrong_name_or_type_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        settings.Run.from_dict(values)


def test_settings_survive_json():
    weighed = {"old_logp": "trainer", "importance": "icepop", "importance_bounds": (0.5, 2.0)}
    run = make(**{f"loss.{name}": value for name, value in weighed.items()})
    assert settings.Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_a_run_is_not_validated_on_the_rows_that_it_trains_on(tmp_path, monkeypatch):
    both = lambda train, validation: {
        "data.train": str(train),
        "data.validation": str(validation),
    }
    path = tmp_path / "rows.jsonl"
    path.touch()
    monkeypatch.chdir(tmp_path)
    for train, validation in (("rows.jsonl", path), (tmp_path, tmp_path), ("o/n:a", "o/n:a")):
        with pytest.raises(ValueError, match=rf"data.train='{train}' and .* are the same rows"):
            check(**both(train, validation))
    (tmp_path / "train.jsonl").touch()  # a directory of splits
    check(**both(tmp_path, tmp_path))


def test_indices_of_64_bits_are_refused():
    with jax.enable_x64(True), pytest.raises(ValueError, match="JAX_ENABLE_X64 is set"):
        check()


@pytest.mark.parametrize(
    ("fields", "package"),
    [
        ({"tensorboard": True}, r"tensorboardX .*\[tracking\]"),
        ({"wandb": "project"}, r"wandb .*\[tracking\]"),
        ({"engine.name": "vllm_server"}, r"vllm"),
    ],
)
def test_a_package_that_is_not_installed(fields, package, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=package):
        check(**fields)


def test_each_selector_that_drops_has_its_refill():
    refills = {}
    for name in ("dapo", "greso", "vcrl", "uniform"):
        refill = make(name).refill
        refills[name] = (refill.max_rounds, refill.ask)
    expected = {"dapo": (3, "batch"), "greso": (3, "batch"), "vcrl": (2, "missing")}
    assert refills == expected | {"uniform": (1, "batch")}


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
    with pytest.raises(ValueError, match=rf"one step after the pass .* takes {a_pass}: give"):
        check(**{"selector.options.warmup": "measured", "budget": 1 / c.num_steps})


def test_both_rounds_of_vcrl_need_items():
    """A second round without items would be none, and the next step would be taken for it."""
    run = make("vcrl")
    checks.check_size(run, 2 * run.num_prompts)
    with pytest.raises(ValueError, match=r"each of vcrl's 2 rounds .*'next_step'"):
        checks.check_size(run, 2 * run.num_prompts - 1)


def test_variants_take_places_and_no_items():
    """8 places are 4 problems with a variant each."""
    run = make("diva", **{"num_prompts": 8, "selector.options.num_variants": 1})
    checks.check_size(run, 4)
    with pytest.raises(ValueError, match="larger than the training set of 3"):
        checks.check_size(run, 3)


# ------------------------------------------------------------------------------ the model
# One prompt for each fake device.
EIGHT_WAYS = {
    "num_prompts": 8,
    "batch.prompts_per_minibatch": 8,
    "batch.prompts_per_microbatch": 8,
}
OTHER_TEXT = dataclasses.replace(presets.PRESETS["3b"].text, num_layers=9)
# Qwen2.5-Math has 4,096 positions and another theta, and no other weights than its base.
MATH = dataclasses.replace(presets.PRESETS["qwen2.5-1.5b"].text, rope_theta=1e4, max_positions=4096)


@pytest.mark.parametrize(
    ("size", "preset", "text", "message"),
    [
        ("", "3b", None, ""),
        ("3b", "3b", None, ""),
        ("qwen2.5-1.5b", "qwen2.5-1.5b", MATH, ""),
        ("7b", "3b", None, r"model.size='7b', but .* in somewhere has the shape of '3b'"),
        ("3b", "tiny", None, r"model.size='3b', but .* has the shape of 'tiny'"),
        ("3b", "3b", OTHER_TEXT, r"model.size='3b', but .* '9 layers of width 2048'"),
    ],
)
def test_another_size_is_refused_before_weights_are_read(size, preset, text, message, monkeypatch):
    shape = presets.PRESETS[preset]
    shape = dataclasses.replace(shape, text=text or shape.text)
    monkeypatch.setattr(files, "load_config", lambda _: shape)
    run = make(**EIGHT_WAYS, **{"model.size": size})
    if not message:
        return checks.check_model(run, "somewhere")
    with pytest.raises(ValueError, match=message):
        checks.check_model(run, "somewhere")


def test_prompts_and_answers_fit_in_the_positions_of_the_model(monkeypatch):
    monkeypatch.setattr(files, "load_config", lambda _: presets.PRESETS["3b"])
    run = make(**EIGHT_WAYS, **{"data.max_prompt_length": 128_000 - 7})
    with pytest.raises(ValueError, match="answers of 8 tokens are more than the 128000 positions"):
        checks.check_model(run, "somewhere")
