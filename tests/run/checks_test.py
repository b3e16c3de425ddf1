"""What can be wrong with settings: one clear sentence, before anything is built."""

import dataclasses
import functools
import importlib.util
import json
import math
import types

import jax
import pytest
from ml_collections import ConfigDict

from configs import default, tiny_gspo
from experiments import hooks
from vade_jax import settings
from vade_jax.models.qwen import files, presets
from vade_jax.run import checks

WRONG = {
    "selector.name": ("vaed", r"selector.name='vaed':.* known are .*vade"),
    "engine.name": ("vlm", r"engine.name='vlm':.* known are local"),
    "engine.retries": (-1, r"engine.retries=-1: must be in \[0, inf\)$"),
    "layout.serve_memory": (0.0, r"layout.serve_memory=0.0: must be in \(0, 1\)"),
    "loss.dual_clip": (0.5, r"loss.dual_clip=0.5: must be above 1, or 0 for none"),
    "sampling.top_p": (1.5, r"sampling.top_p=1.5: must be in \(0, 1\]"),
    "loss.importance": ("token", r"loss.importance='token'.*loss.old_logp='trainer'"),
    "reward.format": ("box", r"reward.format='box':.* known are boxed, think_boxed"),
    "loss.old_logp": ("engine", r"loss.old_logp='engine':.* known are trainer, behaviour"),
    "loss.ratio": ("tokn", r"loss.ratio='tokn':.* known are token, sequence"),
    "model.dtype": ("fp8", r"model.dtype='fp8':.* known are auto, float32, bfloat16"),
    "num_rollouts": (1, r"num_rollouts=1: must be in \[2, inf\), as a group of one"),
    "sampling.temperature": (0.0, r"temperature=0.0: must be in \(0, inf\), as rollouts"),
    "reward.function": ("none.py:f", r"reward.function='none.py:f': the file none.py does not"),
    "reward.weights": ((1.0,), r"reward.weights=\(1.0,\): give one for each of the 0 functions"),
    "reward.overlong_buffer": (
        8,
        r"reward.overlong_buffer=8 leaves .* sampling.max_tokens=8 unpunished: lower",
    ),
    "batch.prompts_per_minibatch": (3, r"prompts_per_minibatch=3 does not divide num_p"),
    "batch.prompts_per_microbatch": (
        3,
        r"prompts_per_microbatch=3 does not divide batch.prompts_per_minibatch=4",
    ),
    "data.num_validation": (0, r"num_validation=0: must be in \[1, inf\) for procedural data"),
    "data.kind": ("formula", r"data.kind='formula':.* known are choice, yesno, .*expr"),
    "data.min_pixels": (1567, r"min_pixels=1567: must be in \[1568, inf\), as an image"),
    "data.mixture": ({"colour": 1}, r"data.mixture: mixture has no part 'colour'; use"),
    "warm_start.mixture": ({"color_9": 1}, r"warm_start.mixture: mixture has no part 'color_9'"),
    "data.max_pixels": (2000, r"min_pixels=12544 is larger than data.max_pixels=2000"),
    "data.num_train": (3, r"num_prompts=4 is larger than the training set of 3 usable"),
    "data.validation": ("", r"data.validation is empty: give 'procedural', a .jsonl"),
    "model.preset": ("", r"model.checkpoint='' and model.preset='': give exactly one"),
    "model.checkpoint": ("somewhere", r"model.checkpoint='somewhere' and .*exactly one"),
    "selector.options.decay_selected": (1.5, r"decay_selected=1.5"),
    "selector.options.draw": ("best", r"draw='best'"),
    "warm_start.noise.color_0": (1.0, r"noise.color_0=1.0: must be in \[0, 1\)"),
    "warm_start.noise.colour_0": (
        0.5,
        r"noise.colour_0: did you mean 'color_0'\? what is taught has color_0, ",
    ),
    "warm_start.noise": ({"color_0": "0.3"}, r"noise.color_0='0.3': must be a number$"),
    "warm_start.noise.color_3": (0.5, r"noise.color_3: did you mean 'color_[01]'\?"),
    "warm_start.noise.zzz": (0.5, r"noise.zzz: what is taught has color_0, "),
    "refill.ask": ("some", r"refill.ask='some':.* known are batch, missing, estimate"),
    "model.size": ("8b", r"model.size='8b':.* known are 3b, 7b, 32b, 72b, qwen3vl-2b, "),
}


def smoke(**fields):
    """Returns a config that passes, with dotted fields changed."""
    c = tiny_gspo.get_config("smoke")
    for name, value in fields.items():
        *parents, last = name.split(".")
        functools.reduce(getattr, parents, c)[last] = value
    return c


def check(c):
    checks.check(settings.Run.from_dict(c.to_dict()), hooks.ALL)


@pytest.mark.parametrize("name", WRONG)
def test_an_impossible_value_names_the_field_and_the_way_out(name):
    value, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as caught:
        check(smoke(**{name: value}))
    assert "\n" not in str(caught.value)


def numbers(section=settings.Run(), prefix=""):  # noqa: B008 (frozen)
    """Yields the dotted name, the interval and the value of every number."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from numbers(value, f"{prefix}{field.name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + field.name, field.metadata.get("interval", ""), value


FLOATS = [name for name, interval, value in numbers() if interval and isinstance(value, float)]


@pytest.mark.parametrize("name", [*FLOATS, "warm_start.noise.color_0"])
def test_nan_is_in_no_range(name):
    with pytest.raises(ValueError, match=rf"{name}=nan: must be in"):
        check(smoke(**{name: math.nan}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer.clip_norm", math.inf),  # no clipping
        ("optimizer.learning_rate", 0.0),
        ("reward.overlong_buffer", 7),  # of 8 tokens
        ("data.min_pixels", 1568),
        ("warm_start.noise.color_0", 0.0),
        ("warm_start.noise.hidden_0", 0.9),
    ],
)
def test_an_edge_that_belongs_to_its_range(name, value):
    check(smoke(**{name: value}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_stps": 3}, r"no setting 'num_stps': did you mean 'num_steps'"),
        ({"loss": {"clp": 1}}, r"no setting 'loss.clp': did you mean 'kl'|'loss.clp'"),
        ({"num_steps": "3"}, r"num_steps='3': must be of type int, not str"),
        ({"num_steps": True}, r"num_steps=True: must be of type int, not bool"),
        ({"data": {"train": 3}}, r"data.train=3: must be of type str, not int"),
        ({"engine": {"urls": "a"}}, r"engine.urls='a': must be of type tuple"),
        ({"engine": {"urls": ["a:8000"]}}, r"engine.urls: 'a:8000' is no URL of a server: write"),
        ({"engine": {"urls": ["http://[a"]}}, r"engine.urls: 'http://\[a' is no URL: "),
        ({"data": {"length_multiple": 9000}}, r"data.length_multiple=9000 is more than .*=8192: "),
        ({"engine": {"urls": ["a", 1]}}, r"engine.urls\[1\]=1: must be of type str, not int"),
        ({"optimizer": {"frozen": (1,)}}, r"optimizer.frozen\[0\]=1: must be of type str"),
        ({"model": "tiny"}, r"model='tiny': must be a mapping of its settings: checkpoint, "),
    ],
)
def test_a_wrong_name_or_type_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        settings.Run.from_dict(values)


def test_settings_survive_json():
    run = settings.Run.from_dict(tiny_gspo.get_config("smoke").to_dict())
    run = dataclasses.replace(run, engine=settings.Engine(urls=("http://a", "http://b")))
    again = settings.Run.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again == run and again.engine.urls == ("http://a", "http://b")


@pytest.mark.parametrize("split", ["train", "validation"])
def test_how_many_items_may_be_all_of_a_file_but_not_of_procedural_data(split):
    number, path = f"data.num_{split}", f"data.{split}"
    check(smoke(**{number: 0, path: "rows.jsonl"}))
    with pytest.raises(ValueError, match=rf"{number}=-1: must be in \[0, inf\)"):
        check(smoke(**{number: -1, path: "rows.jsonl"}))
    with pytest.raises(ValueError, match=rf"{number}=0: must be in \[1, inf\) for"):
        check(smoke(**{number: 0}))


def test_a_run_is_not_validated_on_the_rows_that_it_trains_on(tmp_path, monkeypatch):
    both = lambda train, validation: {"data.train": train, "data.validation": validation}
    path = tmp_path / "rows.jsonl"
    path.touch()
    monkeypatch.chdir(tmp_path)
    of_one_split = (("rows.jsonl", path), (tmp_path, tmp_path), ("o/n:train", "o/n:train"))
    for train, validation in of_one_split:
        with pytest.raises(
            ValueError, match=rf"data.train='{train}' and .* are the same rows: val"
        ):
            check(smoke(**both(str(train), str(validation))))
    (tmp_path / "train.jsonl").touch()
    check(smoke(**both(str(tmp_path), str(tmp_path))))
    check(smoke(**both("o/n", "o/n")))


def test_a_validation_is_given_or_held_out_and_not_both():
    share = {"data.train": "rows.jsonl", "data.validation": "", "data.validation_share": 0.1}
    check(smoke(**share))
    with pytest.raises(ValueError, match=r"validation is empty: .* --config.data.validation_share"):
        check(smoke(**share | {"data.validation_share": 0.0}))
    with pytest.raises(ValueError, match=r"validation_share=0.1 with data.validation='x.jsonl'"):
        check(smoke(**share | {"data.validation": "x.jsonl"}))
    with pytest.raises(ValueError, match="the built-in data have their own, 'procedural'"):
        check(smoke(**share | {"data.train": "procedural"}))


def test_golds_of_files_are_never_made_wrong():
    check(smoke(**{"data.wrong_golds": 0.1}))
    check(smoke(**{"data.wrong_golds": 0.0, "data.train": "rows.jsonl"}))
    with pytest.raises(ValueError, match=r"wrong_golds=0.1 with .*'rows.jsonl': golds of"):
        check(smoke(**{"data.wrong_golds": 0.1, "data.train": "rows.jsonl"}))


@pytest.mark.parametrize("preset", ["tyni", "3b", "7b"])
def test_the_only_model_that_is_made_is_the_tiny_one(preset):
    with pytest.raises(ValueError, match=rf"model.preset='{preset}':.* known are tiny"):
        check(smoke(**{"model.preset": preset}))


@pytest.mark.parametrize(("name", "value"), [("top_p", 0.9), ("top_k", 5)])
def test_the_engines_logps_are_refused_under_truncation(name, value):
    c = smoke(**{f"sampling.{name}": value, "loss.old_logp": "trainer"})
    check(c)
    c.loss.old_logp = "behaviour"
    with pytest.raises(ValueError, match=r"'behaviour' is of the truncated .*'trainer'"):
        check(c)
    c.loss.old_logp, c.loss.importance = "trainer", "token"
    with pytest.raises(ValueError, match=r"importance='token' is of the truncated .*=''$"):
        check(c)


def test_the_base_of_an_adapter_has_no_dtype_of_its_own():
    c = smoke(**{"model.param_dtype": "bfloat16"})
    check(c)
    c.lora.rank = 8
    with pytest.raises(ValueError, match=r"lora.rank=8 an adapter does, .* leave it at 'float32'"):
        check(c)


def test_indices_of_64_bits_are_refused():
    with jax.enable_x64(True), pytest.raises(ValueError, match="JAX_ENABLE_X64 is set"):
        checks.check(settings.Run.from_dict(tiny_gspo.get_config().to_dict()))


def test_tensorboard_needs_its_package(monkeypatch):
    c = smoke(tensorboard=True)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: types.SimpleNamespace(origin=f"{name}.py")
    )
    check(c)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs tensorboardX: pip .*\[tracking\]"):
        check(c)


@pytest.mark.parametrize(
    ("folder", "fields"),
    [("vllm", {"engine.name": "vllm_server"}), ("wandb", {"wandb": "project"})],
)
def test_a_folder_of_a_packages_name_is_no_package(folder, fields, tmp_path, monkeypatch):
    name = f"{folder}_that_is_a_folder"
    (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: find_spec(name))
    with pytest.raises(ValueError, match=rf"needs .*pip install -e .*{folder}|needs the package"):
        check(smoke(**fields))


@pytest.mark.parametrize(
    ("field", "value"), [("urls", ("http://a:1",)), ("options", {"max_num_seqs": 8})]
)
def test_what_vllm_alone_reads_is_refused_with_the_built_in_engine(field, value):
    c = smoke()
    c.engine[field] = value
    with pytest.raises(ValueError, match=rf"engine.{field}=.* set engine.name='vllm_server'"):
        check(c)


def test_the_answers_to_a_prompt_are_the_runs():
    c = smoke()
    c.selector.options.num_rollouts = 4
    with pytest.raises(ValueError, match=r"options.num_rollouts=4: .* set num_rollouts$"):
        check(c)


def test_an_option_that_the_sampler_does_not_have():
    c = tiny_gspo.get_config("smoke")
    c.selector.name = "uniform"  # and still VADE's options
    with pytest.raises(ValueError, match=r"selector.options.decay_.*uniform takes"):
        check(c)


def test_vectors_of_items_come_from_no_metadata_field():
    c = smoke()
    default.selector(c, "informed")
    c.selector.arrays = ConfigDict({"features": "embedding"})
    with pytest.raises(ValueError, match=r"selector.arrays.features='embedding': .* leave it out"):
        check(c)


@pytest.mark.parametrize(("name", "value"), [("max_rounds", 3), ("ask", "missing")])
def test_a_refill_without_a_selector_that_drops_is_useless(name, value):
    c = smoke(**{f"refill.{name}": value})
    with pytest.raises(
        ValueError,
        match=rf"refill.{name}={value!r}, but the selector vade drops no group",
    ):
        check(c)
    default.selector(c, "dapo")
    check(c)


def test_each_selector_that_drops_has_its_refill():
    found = {}
    for name in ("dapo", "greso", "vcrl", "uniform"):
        c = smoke()
        default.selector(c, name)
        check(c)
        found[name] = (c.refill.max_rounds, c.refill.ask)
    assert found == {
        "dapo": (3, "batch"),
        "greso": (3, "estimate"),
        "vcrl": (2, "missing"),
        "uniform": (1, "batch"),
    }
    default.selector(c, "dapo")
    default.selector(c, "mopps")
    check(c)


def test_a_budget_of_less_than_an_answer_is_not_unlimited():
    run = settings.Run(num_steps=3)
    whole = 3 * run.num_prompts * run.num_rollouts
    found = [dataclasses.replace(run, budget=x).max_rollouts for x in (0.0, 1e-9, 0.5, 1.0)]
    assert found == [0, 1, whole / 2, whole]


def test_the_bank_of_vcrl_needs_a_second_round():
    c = smoke()
    default.selector(c, "vcrl")
    c.refill.max_rounds = 1
    with pytest.raises(ValueError, match=r"vcrl .*refill.max_rounds=2, .*'next_step'"):
        check(c)
    c.selector.options.replay = "next_step"
    check(c)


def test_options_are_held_against_the_answers_of_the_run():
    c = smoke(num_rollouts=16)
    default.selector(c, "knapsack")
    values = c.to_dict()
    values["selector"]["options"] = {"min_rollouts": 12}
    checks.check(settings.Run.from_dict(values))


def test_a_pass_is_refused_around_the_bank_of_vcrl():
    c = smoke()
    default.selector(c, "vcrl")
    c.selector.name = "remind"
    c.selector.options = ConfigDict({"base": "vcrl"})
    check(c)
    c.measure.every = 10
    with pytest.raises(ValueError, match=r"remind .*measure.every=0"):
        check(c)


@pytest.mark.parametrize("name", ["vcrl", "diva"])
def test_a_pass_over_the_data_is_refused_where_a_selector_could_not_read_it(name):
    c = smoke()
    default.selector(c, name)
    check(c)
    c.measure.every = 10
    with pytest.raises(ValueError, match=r"measure\.every"):
        check(c)


def test_divas_advantages_have_a_std():
    c = smoke()
    default.selector(c, "diva")
    c.scale_by_std = False
    with pytest.raises(ValueError, match="scale_by_std=False with diva"):
        check(c)


def test_both_rounds_of_vcrl_need_items():
    """A second round without items would be none, and the next step would be taken for it."""
    c = smoke()
    default.selector(c, "vcrl")
    run = settings.Run.from_dict(c.to_dict())
    checks.selector.check_data_size(run, 2 * run.num_prompts)
    with pytest.raises(ValueError, match=r"each of vcrl's 2 rounds .*'next_step'"):
        checks.selector.check_data_size(run, 2 * run.num_prompts - 1)
    c.selector.options.replay = "next_step"
    checks.selector.check_data_size(settings.Run.from_dict(c.to_dict()), run.num_prompts)


def test_options_are_checked_before_they_are_counted_with():
    c = smoke()
    default.selector(c, "diva")
    c.selector.options.num_variants = -1
    with pytest.raises(ValueError, match="num_variants=-1"):
        checks.selector.check_data_size(settings.Run.from_dict(c.to_dict()), 100)


def test_variants_take_places_and_no_items(capsys):
    """8 places are 4 problems with a variant each."""
    c = smoke()
    default.selector(c, "diva")
    c.num_prompts, c.selector.options.num_variants = 8, 1
    run = settings.Run.from_dict(c.to_dict())
    checks.selector.check_data_size(run, 4)
    checks.selector.warn_without_choice(run, 5)
    assert "nothing to choose" not in capsys.readouterr().out
    checks.selector.warn_without_choice(run, 4)
    assert "nothing to choose" in capsys.readouterr().out
    with pytest.raises(ValueError, match="larger than the training set of 3"):
        checks.selector.check_data_size(run, 3)


def test_a_selector_with_nothing_to_choose_is_said(capsys):
    run = settings.Run.from_dict(smoke().to_dict())
    checks.selector.warn_without_choice(run, run.num_prompts + 1)
    assert not capsys.readouterr().out
    checks.selector.warn_without_choice(run, run.num_prompts)
    assert (
        "takes all usable items of the training set at every step, so vade"
        in capsys.readouterr().out
    )


def test_a_budget_is_enough_for_one_step_and_for_the_pass_before_it():
    c = smoke()
    steps = c.num_steps * c.num_prompts * c.num_rollouts
    c.budget = 0.4 / c.num_steps
    with pytest.raises(ValueError, match=r"budget=.* less than the \d+ of one step: give .* or 0"):
        check(c)
    c.budget = 1 / c.num_steps
    check(c)
    c.selector.options.warmup = "measured"
    every = c.data.num_train * c.num_rollouts
    with pytest.raises(ValueError, match=rf"one step behind the pass over all items, .* {every}: "):
        check(c)
    c.budget = every / steps + 1 / c.num_steps
    check(c)


def test_streaks_of_visits_need_steps_of_one_round():
    c = smoke()
    c.selector.options.max_consecutive = 2
    check(c)
    default.selector(c, "dapo")
    c.selector.options.update(base="vade", base_options={"max_consecutive": 2})
    with pytest.raises(ValueError, match=r"refill.max_rounds=1, .* max_consecutive=0 of vade"):
        check(c)


# --------------------------------------------------------------------- the checkpoint's size
# One prompt for each fake device.
EIGHT_WAYS = {
    "num_prompts": 8,
    "batch.prompts_per_minibatch": 8,
    "batch.prompts_per_microbatch": 8,
}


@pytest.mark.parametrize("size", ["", "3b"])
def test_a_checkpoint_of_the_wanted_size_passes(size, monkeypatch):
    monkeypatch.setattr(files, "load_config", lambda _: presets.PRESETS["3b"])
    checks.model.check_model(make(**EIGHT_WAYS, **{"model.size": size}), "somewhere")


def test_qwen25_math_has_the_size_of_its_base(monkeypatch):
    """It has 4,096 positions and another theta, and no other weights."""
    shape = presets.PRESETS["qwen2.5-1.5b"]
    text = dataclasses.replace(shape.text, rope_theta=1e4, max_positions=4096)
    checks.model.check_size("qwen2.5-1.5b", dataclasses.replace(shape, text=text), "somewhere")
    with pytest.raises(ValueError, match=r"has the shape of 'qwen2\.5-1\.5b'"):
        checks.model.check_size("qwen2.5-3b", dataclasses.replace(shape, text=text), "somewhere")


@pytest.mark.parametrize(
    ("wanted", "found", "message"),
    [
        ("7b", "3b", r"model.size='7b', but .* in somewhere has the shape of '3b'"),
        ("3b", "tiny", r"model.size='3b', but .* in somewhere has the shape of 'tiny'"),
        ("3b", None, r"model.size='3b', but .* the shape of '9 layers of width 2048'"),
    ],
)
def test_another_size_is_refused_before_weights_are_read(wanted, found, message, monkeypatch):
    shape = presets.PRESETS[found or "3b"]
    if not found:
        text = dataclasses.replace(shape.text, num_layers=9)
        shape = dataclasses.replace(shape, text=text)
    monkeypatch.setattr(files, "load_config", lambda _: shape)
    with pytest.raises(ValueError, match=message):
        checks.model.check_model(make(**EIGHT_WAYS, **{"model.size": wanted}), "somewhere")


def make(**fields):
    return settings.Run.from_dict(smoke(**fields).to_dict())


def _stop(*_, **__):
    raise InterruptedError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"old_logp": "behaviour"},
            r"max_lag=1: .*loss.old_logp='trainer' and loss.importance='tok",
        ),
        ({}, r"max_lag=1: .*loss.importance is empty.*'none' to go without"),
        ({"importance_bounds": (0.5, 2.0)}, r"importance_bounds=\(0.5, 2.0\) are of 'icepop' and"),
        ({"importance": "icepop", "importance_bounds": (1.5, 2.0)}, r"\(1.5, 2.0\): give two numb"),
    ],
)
def test_answers_of_older_weights_need_a_correction_that_is_asked_for(changes, message):
    c = smoke(**{"engine.max_lag": 1, "loss.old_logp": "trainer"})
    c.loss.update(changes)
    with pytest.raises(ValueError, match=message):
        check(c)
    check(smoke(**{"engine.max_lag": 1, "loss.old_logp": "trainer", "loss.importance": "none"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora.targets": "q_proj"}, r"lora.targets='q_proj' is not read with lora.rank=0"),
        ({"lora.vision": True}, r"lora.vision=True is not read"),
        ({"loss.importance_cap": 9.0}, r"importance_cap=9.0 is not read with loss.importance=''"),
        ({"reward.overlong_factor": 0.5}, r"is not read with reward.overlong_buffer=0"),
        ({"batch.answers_per_row": 16}, r"answers_per_row=16: .* num_rollouts=4: give at most"),
    ],
)
def test_a_setting_that_nothing_would_read_is_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        check(smoke(**changes))


def test_no_batch_waits_between_passes_over_all_items():
    c = tiny_gspo.get_config("smoke,selector=mmr1")
    c.engine.max_lag, c.measure.every = 1, 5
    c.loss.update({"old_logp": "trainer", "importance": "token"})
    with pytest.raises(ValueError, match=r"max_lag=1: .*'mmr1' rolls out all items every 5 steps"):
        check(c)
