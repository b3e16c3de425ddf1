"""Runs in which an adapter learns, and one in bfloat16 weights: resumed, exported, converted."""

import json
import shutil

import jax
import numpy as np
import pytest

from configs import tiny_gspo
from experiments import convert
from tests.experiments.train_test import killed, latest
from vade_jax import run, settings
from vade_jax.models.qwen import files, lora, peft
from vade_jax.run import build
from vade_jax.store import metrics, run_file
from vade_jax.trainer import mesh

pytestmark = pytest.mark.usefixtures("one_device")
REWARD = """
from vade_jax.rewards import functions


def even(completions, **_):
    return [float(len(text) % 2 == 0) for text in functions.texts(completions)]
"""


def twice(base, checkpoint, *, rank=4, param_dtype="float32"):
    """Makes a run of 2 steps, and the same one resumed after the first; returns its settings."""
    (base / "reward.py").write_text(REWARD)
    c = tiny_gspo.get_config("smoke")
    c.model.preset, c.model.checkpoint, c.model.param_dtype = "", str(checkpoint), param_dtype
    c.lora.rank, c.lora.targets = rank, "proj$" if rank else ""
    # Answers of a random policy have another reward now and then.
    c.reward.function = f"{base / 'reward.py'}:even"
    c.loss.kl_coef = 0.1
    c.loss.kl = "k2"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 0.02, 0
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 2
    c = settings.Run.from_dict(c.to_dict())
    run.train(c, str(base / "whole"))
    killed(base / "whole", base / "resumed", 1)
    run.train(c, str(base / "resumed"))
    return c


@pytest.fixture(scope="module")
def runs(one_device, small_checkpoint, tmp_path_factory):
    base = tmp_path_factory.mktemp("lora")
    twice(base, small_checkpoint)
    return base


def test_one_and_one_steps_are_two_and_only_the_adapter_is_stored(runs):
    whole, resumed = latest(runs / "whole"), latest(runs / "resumed")
    leaves = jax.tree.leaves_with_path(whole)
    for (path, a), b in zip(leaves, jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))
    arrays = {mesh.path_name(path): x for path, x in leaves if x.ndim}
    arrays = {path: x for path, x in arrays.items() if not path.startswith("selector")}
    assert arrays and all("/lora/lora_" in path for path in arrays)
    learned = [x for path, x in arrays.items() if path.startswith("policy") and path.endswith("_b")]
    assert any(np.abs(x).max() > 0 for x in learned)


def test_the_reference_is_the_base(runs):
    """The first mini-batch is without divergence; after an update of the adapter there is one."""
    records = metrics.read(runs / "whole")[1:]
    assert records[0]["actor/kl_loss"] > 0 or records[1]["actor/kl_loss"] > 0
    assert all(record["training/rollout_logprobs_diff_max"] < 1e-4 for record in records)


def test_the_policy_is_the_base_with_the_adapter_and_convert_makes_it_again(runs, tmp_path):
    whole = runs / "whole"
    directory = run_file.settings_of(whole)["model"]["checkpoint"]
    shape, base = files.load(directory)
    wanted = settings.Lora(rank=4, targets="proj$")
    params = lora.join(base, latest(whole)["policy"], peft.choose(wanted).scale)
    files.save(tmp_path / "expected", shape, params)
    _, expected = files.load(tmp_path / "expected")
    convert.convert(str(whole), str(tmp_path / "converted"))
    for made in (whole / "policy", tmp_path / "converted"):
        _, found = files.load(made)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), expected, base)
    assert moved["text"]["layers"]["mlp"]["up"]["kernel"] > 1e-4
    assert moved["vision"]["blocks"]["qkv"]["kernel"] == moved["embedding"] == 0
    named = json.loads((whole / "adapter" / "adapter_config.json").read_text())
    assert named["base_model_name_or_path"] == directory


def test_another_model_of_the_same_shape_is_not_what_the_adapter_learned_on(runs, tmp_path):
    checkpoint = run_file.settings_of(runs / "whole")["model"]["checkpoint"]
    moved = shutil.copytree(checkpoint, tmp_path / "moved")
    other = shutil.copytree(checkpoint, tmp_path / "other")
    shape, params = files.load(checkpoint)
    files.save(other, shape, jax.tree.map(lambda x: x * 1.01, params))
    with pytest.raises(
        ValueError, match=r"--model=.*other is another model than the run's adapter learned on"
    ):
        convert.convert(runs / "whole", tmp_path / "converted", base=other)
    convert.convert(runs / "whole", tmp_path / "converted", base=moved)


# ------------------------------------------------------------------------------ bfloat16 weights
def test_bfloat16_weights_are_trained_resumed_and_exported(small_checkpoint, tmp_path):
    c = twice(tmp_path, small_checkpoint, rank=0, param_dtype="bfloat16")
    whole, resumed = latest(tmp_path / "whole"), latest(tmp_path / "resumed")
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)
    assert {x.dtype.name for x in jax.tree.leaves(whole["policy"])} == {"bfloat16"}
    _, exported = files.load(tmp_path / "whole" / "policy")
    jax.tree.map(np.testing.assert_array_equal, exported, whole["policy"])
    policy = build.load_policy(c, str(small_checkpoint))
    state, learner = build.make_learner(c, policy)
    assert learner.reference is policy.params
    num_weights = sum(x.size for x in jax.tree.leaves(policy.params))
    held = sum(x.nbytes for x in jax.tree.leaves((state.params, state.opt_state)))
    assert held == 10 * num_weights + 8  # two counters
