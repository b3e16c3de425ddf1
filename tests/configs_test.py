"""What every config sets, as a snapshot; the paper's values by hand; words and values that follow others.

After a change that is meant: `python -m tests.configs_test` writes the snapshot again.
"""

import collections
import importlib
import io
import json
import pathlib

import numpy as np
import pytest
from PIL import Image

from configs import arguments, easy_vqa
from experiments import hooks
from vade_jax import settings
from vade_jax.run import checks
from vade_jax.store import run_file

SNAPSHOT = pathlib.Path(__file__).with_name("configs.json")
TINY = [f"tiny_{name}" for name in ("gspo", "grpo", "dapo", "diva")]
PAPER = [f"qwen{size}_gspo{loss}" for size in ("3b", "7b") for loss in ("", ":grpo")]
OTHERS = ["qwen7b_diva", "qwen3vl_2b", "qwen3vl_4b", "qwen3vl_8b", "geo3k", "math_text"]
QWEN35 = [f"qwen3_5_{size}" for size in ("0_8b", "2b", "4b", "9b")]
CONFIGS = [*TINY, *PAPER, *OTHERS, *QWEN35, "my_data", "easy_vqa", "torture"]
CONFIGS += [
    f"{name}:smoke" for name in ("tiny_gspo", "tiny_diva", "qwen7b_gspo", "qwen7b_diva", "geo3k")
]
CONFIGS += [
    f"tiny_gspo:{x}"
    for x in ("uniform", "selector=kalman", "selector=knapsack", "qwen3vl", "qwen3_5")
]
CONFIGS += ["tiny_dapo:selector=vade", "tiny_gspo:selector=dapo,seed=3", "qwen3vl_8b:grpo"]
CONFIGS += [f"qwen7b_gspo:{x}" for x in ("split", "local", "lora,single", "split,bf16", "bf16")]
CONFIGS += ["qwen3b_gspo:bf16,single", "geo3k:qwen3vl,local", "qwen7b_diva:uniform"]


def load(text):
    name, _, argument = text.partition(":")
    return importlib.import_module(f"configs.{name}").get_config(argument)


def of_config(text):
    """Returns what a config sets otherwise than the defaults, a line for each."""
    plain = settings.Run.from_dict(load(text).to_dict()).to_dict()
    found = run_file.differences(settings.Run().to_dict(), plain)
    return {line.split(":")[0]: line.rpartition(" there, ")[2][:-4] for line in found}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_config_sets_what_the_snapshot_has(text):
    assert of_config(text) == json.loads(SNAPSHOT.read_text())[text]


@pytest.mark.parametrize("text", [x for x in CONFIGS if "smoke" in x or x in (*TINY, "my_data")])
def test_a_config_that_needs_no_files_passes_all_checks(text):
    checks.check(settings.Run.from_dict(load(text).to_dict()), hooks.ALL)


@pytest.mark.parametrize("name", PAPER)
def test_table_4(name):
    c = load(name)
    assert (c.num_epochs, c.num_prompts, c.num_rollouts) == (15, 512, 8)
    assert (c.batch.prompts_per_minibatch, c.data.max_prompt_length) == (128, 8192)
    assert (c.sampling.max_tokens, c.sampling.temperature) == (2048, 1.0)
    assert (c.optimizer.learning_rate, c.optimizer.weight_decay) == (1e-6, 0.01)
    assert (c.optimizer.clip_norm, c.optimizer.warmup_steps) == (1.0, 0)
    assert (c.loss.kl, c.loss.kl_coef) == ("k3", 0.01)
    assert (c.reward.format, c.reward.format_weight) == ("think_boxed", 0.1)
    options = c.selector.options.to_dict()
    ours = {"max_consecutive": 0, "uniform_share": 0, "per": "answer", "prior_strength": 8}
    assert {x: options.pop(x) for x in ours} == ours
    assert options == {
        **{"decay_selected": 0.2, "decay_rest": 0.999, "info_gain": "p(1-p)^2"},
        **{"draw": "thompson", "history": "two_scale", "warmup": "full"},
    }
    clip = (c.loss.ratio, c.loss.clip_low, c.loss.clip_high, c.loss.aggregate)
    gspo = ("sequence", 3e-4, 4e-4, "seq-mean-token-mean")
    assert clip == (("token", 0.2, 0.2, "token-mean") if ":grpo" in name else gspo)


# ------------------------------------------------------------------------------ words and values
def test_words_are_cast_like_their_defaults():
    found = arguments.parse("smoke,seed=3,scale=0.5", smoke=False, seed=0, scale=1.0)
    assert found.to_dict() == {"smoke": True, "seed": 3, "scale": 0.5}


def test_what_follows_another_value_follows_a_later_one_until_it_is_set():
    c = load("tiny_dapo")
    c.sampling.max_tokens, c.data.train = 20480, "rows.jsonl"  # as overrides of the command would
    assert (c.reward.overlong_buffer, c.data.num_train, c.data.num_validation) == (4096, 0, 256)
    c.data.num_train = 100
    assert settings.Run.from_dict(c.to_dict()).data.num_train == 100
    c = load("my_data")
    c.data.validation = "held_out.jsonl"
    assert c.data.validation_share == 0.0


def test_easy_vqa_has_its_questions_with_their_types_and_pictures():
    pytest.importorskip("easy_vqa")
    rows = easy_vqa.rows("train")
    answers = {}
    for row in rows:
        answers.setdefault(row["subset"], collections.Counter())[row["answer"]] += 1
    sizes = {"color": 5166, "shape": 5002, "has color": 10377, "has shape": 3810}
    sizes |= {"lacks color": 10281, "lacks shape": 3939}
    assert {name: counts.total() for name, counts in answers.items()} == sizes
    assert set(answers["shape"]) == {"circle", "rectangle", "triangle"}
    assert set(answers["has shape"]) == set(answers["lacks color"]) == {"yes", "no"}
    validation = easy_vqa.rows("validation")
    assert (len(validation), validation) == (9673, easy_vqa.rows("validation"))
    (black, *_) = (x for x in rows if x["answer"] == "black")
    shown = np.asarray(Image.open(io.BytesIO(black["images"])).convert("L"))
    assert shown.shape == (64, 64) and shown.min() < 40


def test_a_run_once_more_from_its_config_json(tmp_path):
    for name in ("tiny_grpo:selector=kalman,seed=4", "tiny_diva"):
        c = load(name)
        c.optimizer.clip_norm = float("inf")
        older = json.loads(c.to_json_best_effort())
        del older["data"]["wrong_golds"]  # a field that is new since then
        (tmp_path / "config.json").write_text(json.dumps({"settings": older}))
        again = load(f"from_json:{tmp_path / 'config.json'}")
        assert json.loads(again.to_json_best_effort()) == json.loads(c.to_json_best_effort())


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps({x: of_config(x) for x in CONFIGS}, indent=1) + "\n")
