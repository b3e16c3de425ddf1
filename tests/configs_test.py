"""Every config builds; the paper's have Table 4's values; a misspelt word gets the right one."""

import importlib
import json
import pathlib

import pytest

from configs import arguments
from experiments import hooks
from experiments.arenas import runs
from vade_jax import samplers, settings
from vade_jax.run import build, checks, gpus

ROOT = pathlib.Path(__file__).parents[1]
HELPERS = {"__init__", "arenas", "arguments", "arms", "default", "qwen", "tiny"}
NAMES = sorted({p.stem for p in (ROOT / "configs").glob("*.py")} - HELPERS)
RUNS = [n for n in NAMES if n.startswith(("tiny_", "qwen"))]


def selector(name, arg=""):
    """The selector of a config, and of its argument `vade`."""
    own = {"tiny_dapo": "dapo", "tiny_diva": "diva", "qwen7b_diva": "diva"}
    return own.get(name, "vade") if "vade" not in arg else "vade"


def check(c):
    """Returns the settings of a config that passes all checks."""
    run = settings.Run.from_dict(c.to_dict())
    checks.check(run, hooks.ALL)
    return run


def load(name, arg=None):
    return importlib.import_module(f"configs.{name}").get_config(arg)


@pytest.mark.parametrize("arg", ["smoke", "smoke,uniform", "smoke,seed=3", "selector=vade,smoke"])
@pytest.mark.parametrize("name", RUNS)
def test_builds_in_smoke_form(name, arg):
    c = load(name, arg)
    check(c)
    assert c.seed == (3 if "seed" in arg else 0)
    assert c.selector.name == ("uniform" if "uniform" in arg else selector(name, arg))
    assert (c.num_steps, c.data.train) == (2, "procedural")
    assert (c.model.checkpoint, c.model.preset, c.model.size) == ("", "tiny", "")


def test_ones_own_data_start_from_the_policy_that_can_read():
    c = load("my_data", "seed=3")
    run = check(c)
    assert (run.seed, run.model.preset) == (3, "tiny_reader")
    assert (ROOT / run.data.train).is_file() and run.data.validation_share == 0.2
    c.data.validation = "held_out.jsonl"
    assert check(c).data.validation_share == 0.0
    c.data.validation_share = 0.1
    with pytest.raises(ValueError, match="give one of them"):
        check(c)


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("tiny_")])
@pytest.mark.parametrize("arg", ["", "smoke"])
def test_all_of_ones_own_rows_are_taken_unless_one_says_otherwise(name, arg):
    c = load(name, arg)
    assert (c.data.num_train, c.data.num_validation) == ((16, 8) if arg else (512, 256))
    c.data.train = "rows.jsonl"
    data = settings.Run.from_dict(c.to_dict()).data
    assert (data.num_train, data.num_validation) == (0, 8 if arg else 256)
    c.data.validation, c.data.num_train = "held_out.jsonl", 100
    data = settings.Run.from_dict(c.to_dict()).data
    assert (data.num_train, data.num_validation) == (100, 0)


@pytest.mark.parametrize("size", ["3b", "7b"])
@pytest.mark.parametrize("algorithm", ["grpo", "gspo"])
def test_table_4(size, algorithm):
    c = load(f"qwen{size}_{algorithm}")
    assert (c.model.size, c.model.preset) == (size, "")
    assert (c.num_epochs, c.num_prompts, c.num_rollouts) == (15, 512, 8)
    assert c.batch.prompts_per_minibatch == 128
    assert c.data.max_prompt_length == 8192
    assert (c.sampling.max_tokens, c.sampling.temperature) == (2048, 1.0)
    assert (c.optimizer.learning_rate, c.optimizer.weight_decay) == (1e-6, 0.01)
    assert (c.optimizer.clip_norm, c.optimizer.warmup_steps) == (1.0, 0)
    assert (c.loss.kl, c.loss.kl_coef) == ("k3", 0.01)
    assert (c.reward.format, c.reward.format_weight) == ("think_boxed", 0.1)
    assert c.selector.to_dict() == {
        "name": "vade",
        "options": {
            "decay_selected": 0.2,
            "decay_rest": 0.999,
            "info_gain": "p(1-p)^2",
            "draw": "thompson",
            "history": "two_scale",
            "warmup": "full",
            "max_consecutive": 0,  # these two are not in the paper: off
            "uniform_share": 0.0,
            "per": "answer",
        },
        "arrays": {},
    }
    clip = (c.loss.ratio, c.loss.clip_low, c.loss.clip_high, c.loss.aggregate)
    if algorithm == "grpo":
        assert clip == ("token", 0.2, 0.2, "token-mean")
    else:
        assert clip == ("sequence", 3e-4, 4e-4, "seq-mean-token-mean")
        assert c.loss.dual_clip == 0  # none


def test_geometry3k_compares_selectors_without_categories():
    c = load("geo3k", "local")
    check(c)
    assert load("geo3k", "selector=dps").selector.name == "dps"
    found = runs.planned(load("geo3k", "arms,local"), "w")
    chosen = {run.arm: run.settings for run in found if run.seed == 2}
    assert [*chosen] == ["uniform", "dapo", "vade", "pooled"] and len(found) == 12
    assert all(run.selector.name == arm for arm, run in chosen.items())
    assert not chosen["pooled"].selector.arrays and chosen["dapo"].budget == 3
    assert all(run.data.train == c.data.train for run in chosen.values())
    with pytest.raises(ValueError, match="name no selector"):
        load("geo3k", "arms,uniform")
    smoke = load("geo3k", "smoke,selector=dapo")
    check(smoke)
    assert (smoke.data.train, smoke.model.preset) == ("procedural", "tiny")


def test_divas_baseline_at_full_size_has_as_many_steps_and_answers():
    """Its command, as the file says it."""
    diva, uniform = (load("qwen7b_diva", arg) for arg in ("local", "local,uniform"))
    uniform.num_prompts, uniform.num_rollouts = 64, 10
    uniform.batch.prompts_per_minibatch = 64
    runs = [settings.Run.from_dict(c.to_dict()) for c in (diva, uniform)]
    found = [run.with_items(6400, build.make_selector(run).needs.places) for run in runs]
    answers = [run.num_steps * run.num_prompts * run.num_rollouts for run in found]
    assert [run.num_steps for run in found] == [500, 500] and answers[0] == answers[1]


@pytest.mark.parametrize("slots", [2, 4])
def test_divas_baseline_has_the_same_problems_and_answers(slots):
    c, small = load("tiny_diva", "arms"), load("tiny_diva", "arms,smoke")
    c.run.selector.options.num_variants = small.run.selector.options.num_variants = slots - 1
    found = {run.arm: run.settings for run in runs.planned(c, "w")}
    diva, grpo = found["diva"], found["grpo"]
    assert (diva.selector.name, grpo.selector.name) == ("diva", "uniform")
    assert diva.num_prompts == slots * grpo.num_prompts == 32
    for of in (diva, grpo):
        assert of.num_prompts * of.num_rollouts == 256
        assert of.num_prompts == 4 * of.batch.prompts_per_minibatch
    # Fewer prompts than slots in a micro-batch.
    runs.planned(small, "w")
    with pytest.raises(ValueError, match="'arms,uniform': name no selector"):
        load("tiny_diva", "arms,uniform")


def test_the_uniform_baseline_differs_in_nothing_but_the_selector():
    vade, uniform = load("tiny_gspo").to_dict(), load("tiny_gspo", "uniform").to_dict()
    assert uniform.pop("selector") == {"name": "uniform", "options": {}, "arrays": {}}
    vade.pop("selector")
    assert vade == uniform


@pytest.mark.parametrize("arg", [None, "split"])
@pytest.mark.parametrize("name", ["qwen3b_grpo", "qwen7b_gspo", "qwen3vl_8b"])
def test_the_layouts_of_four_gpus_fit(name, arg, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    c = load(name, arg)
    run = settings.Run.from_dict(c.to_dict())
    gpus.check_layout(run.layout, run.engine)
    trainers = gpus.names(c.layout.train) or ["0", "1", "2", "3"]
    servers = gpus.of_server(run.layout, run.engine)
    assert sorted({*trainers, *servers}) == ["0", "1", "2", "3"]
    assert bool(set(trainers) & set(servers)) == (arg is None)


def test_a_qwen3vl_takes_the_words_and_one_for_grpo():
    for size in ("2b", "4b", "8b"):
        gspo, grpo = load(f"qwen3vl_{size}", "local"), load(f"qwen3vl_{size}", "grpo,local")
        assert gspo.model.size == grpo.model.size == f"qwen3vl-{size}"
        assert (gspo.loss.ratio, grpo.loss.ratio) == ("sequence", "token")
    plain, other = load("geo3k", "local"), load("geo3k", "qwen3vl,local")
    assert other.model.size == "qwen3vl-4b" and "Qwen3-VL-4B" in other.model.checkpoint
    assert other.loss == plain.loss and other.sampling == plain.sampling
    assert load("tiny_diva", "qwen3vl").model.preset == load("tiny_gspo", "qwen3vl").model.preset


def test_without_vllm_the_built_in_engine_decodes():
    c = load("qwen7b_gspo", "local")
    assert (c.engine.name, c.layout.train, c.layout.serve) == ("local", "", "")
    with pytest.raises(ValueError, match=r"'split,local': give one layout, single, "):
        load("qwen7b_gspo", "split,local")


def test_lora_is_a_word_beside_the_layout():
    plain, c = load("qwen7b_gspo", "single"), load("qwen7b_gspo", "lora,single")
    assert (plain.lora.rank, c.lora.rank, c.lora.alpha) == (0, 32, 32.0)
    assert (plain.optimizer.learning_rate, c.optimizer.learning_rate) == (1e-6, 1e-5)
    assert c.layout.to_dict() == plain.layout.to_dict()


def test_bf16_is_a_word_beside_the_layout():
    for words, memory in (("single", (0.85, 0.12)), ("", (0.74, 0.25))):
        c = load("qwen3b_gspo", f"bf16,{words}".strip(","))
        assert c.model.param_dtype == "bfloat16"
        assert (c.layout.train_memory, c.layout.serve_memory) == memory
    plain, c = load("qwen7b_gspo", "split"), load("qwen7b_gspo", "split,bf16")
    assert c.layout.to_dict() == plain.layout.to_dict()
    assert c.batch.to_dict() == plain.batch.to_dict()
    with pytest.raises(ValueError, match="'lora,single,bf16': leave out bf16: "):
        load("qwen7b_gspo", "lora,single,bf16")


@pytest.mark.parametrize("name", ["kalman", "mopps", "greso", "knapsack", "dapo"])
def test_another_selector_has_its_own_options(name):
    c = load("tiny_gspo", f"selector={name}")
    check(c)
    defaults, found = samplers.SAMPLERS[name].options(), c.selector.options.to_dict()
    names = set(samplers.SAMPLERS[name].option_names) - {"num_rollouts", "seed"}
    assert c.selector.name == name and set(found) == names
    assert all(getattr(defaults, k) == v for k, v in found.items())
    assert c.batch.answers_per_row == (2 if name == "knapsack" else 0)
    with pytest.raises(ValueError, match="give one selector"):
        load("tiny_gspo", f"uniform,selector={name}")


# ------------------------------------------------------------------------------ the argument
def test_words_are_cast_like_their_defaults():
    found = arguments.parse("smoke,seed=3,scale=0.5", smoke=False, seed=0, scale=1.0)
    assert found.to_dict() == {"smoke": True, "seed": 3, "scale": 0.5}
    assert arguments.parse(None, seed=0).seed == 0


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("unifrom", r"'unifrom' is unknown: did you mean 'uniform'\?"),
        ("selector=kalmn", r"selector='kalmn': did you mean 'kalman'\? known are "),
        ("zzz", r"'zzz' is unknown: known are .*seed, .*smoke, .*uniform"),
        ("seed=many", r"'seed=many': seed is a int"),
        ("uniform,selector=dapo", r"'uniform,selector=dapo': give one selector"),
        ("uniform=False", r"'uniform=False': uniform takes no value"),
    ],
)
def test_a_wrong_word_is_an_error(arg, message):
    with pytest.raises(ValueError, match=message):
        load("tiny_gspo", arg)


@pytest.mark.parametrize("name", RUNS)
def test_vade_is_the_selector_unless_another_is_named(name):
    named = load(name, f"selector={selector(name)}").to_dict()
    assert named == load(name).to_dict()
    assert load(name, "selector=vade").selector.name == "vade"


def test_dapos_buffer_follows_the_limit_of_answers():
    c = load("tiny_dapo")
    assert (c.selector.name, c.sampling.max_tokens, c.reward.overlong_buffer) == ("dapo", 8, 1)
    c.sampling.max_tokens = 20480  # as an override of the command would
    assert c.reward.overlong_buffer == 4096


def test_a_run_once_more_from_its_config_json(tmp_path):
    c = load("tiny_grpo", "selector=kalman,seed=4")
    c.loss.update(old_logp="trainer", importance="icepop", importance_bounds=(0.5, 2.0))
    c.optimizer.clip_norm = float("inf")
    path = tmp_path / "config.json"
    path.write_text(c.to_json_best_effort())
    assert load("from_json", str(path)).to_dict() == c.to_dict()
    older = json.loads(path.read_text())
    del older["data"]["wrong_golds"]
    path.write_text(json.dumps(older))
    assert load("from_json", str(path)).to_dict() == c.to_dict()
    with pytest.raises(FileNotFoundError, match="'none'"):
        load("from_json", "none")


@pytest.mark.parametrize("content", [b'{"seed": 0,', b"", b'{"\xff": 1}', b"[1]"])
def test_a_config_json_that_is_none_is_named(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"^{path} (is damaged, or not JSON: |holds no config)"
    ) as raised:
        load("from_json", str(path))
    assert type(raised.value) is ValueError  # another one ml_collections could not raise again
