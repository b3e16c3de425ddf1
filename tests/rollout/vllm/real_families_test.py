"""A real vLLM server of a tiny Qwen3-VL: its log-probs are the trainer's, before and after a sync."""

import importlib.util

import jax
import pytest

from tests.rollout.vllm import real_server_test as real
from vade_jax.data import tokens
from vade_jax.models.qwen import files, tiny_checkpoint

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="needs vLLM"),
]
LIMITS = {"min_pixels": 64 * 64, "max_pixels": 128 * 128}


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vllm") / "model"
    tiny_checkpoint.write(directory, seed=0, preset="tiny_qwen3vl")
    real.limit_pixels(directory, LIMITS)
    tokenizer = tokens.Tokenizer.load(directory)
    launched = real.launch(directory, directory.parent / "vllm.log")
    questions = real.questions(tokenizer, **LIMITS)
    yield real.Setup(directory, launched, tokenizer, files.load_config(directory), questions)
    launched.stop()


def test_log_probs_are_the_trainers_before_and_after_a_sync(setup, tmp_path):
    """All weights change with version 2: a feature from an old cache would move the log-probs by 1."""
    engine = setup.engine(tmp_path)
    for version in (1, 2):
        params = setup.params(version)
        engine.sync(params, version)
        rollouts = real.answer(engine, setup, version)
        diff = real.difference(setup, params, rollouts, setup.prompts)
        real.check_close(diff, f"version {version}")
    assert not jax.tree.all(
        jax.tree.map(lambda x, y: (x == y).all(), setup.params(1)["vision"], params["vision"])
    )
