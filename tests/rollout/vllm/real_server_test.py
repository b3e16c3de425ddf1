"""The engine against a real vLLM server of two data-parallel ranks, float32 on a CPU: `make test-vllm`."""

import dataclasses
import functools
import importlib.util
import json
import pathlib

import jax
import numpy as np
import pytest
from PIL import Image

from vade_jax import settings
from vade_jax.data import prompts as rendered
from vade_jax.data import tokens
from vade_jax.models.qwen import files, model, tiny_checkpoint, weights
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.trainer import minibatches, update
from vade_jax.types import Item

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="needs vLLM"),
]
LIMITS = {"min_pixels": 56 * 56, "max_pixels": 112 * 112}
T = 24


@dataclasses.dataclass(frozen=True)
class Setup:
    """A server on a tiny checkpoint, and what the trainer knows of it."""

    directory: pathlib.Path
    launched: process.LaunchedServer
    tokenizer: tokens.Tokenizer
    shape: object
    prompts: list
    dtype: type = np.float32

    def params(self, seed):
        return model.init(self.shape, jax.random.key(seed))

    def merge(self, params):
        return model.merge(model.graph(self.shape, dtype=self.dtype), params)

    def engine(self, scratch):
        section = settings.Engine(name="vllm_server", timeout_s=120.0)
        return VllmServerEngine(
            section,
            self.launched,
            model="policy",
            sampling=Sampling(max_tokens=T),
            stop_ids=self.tokenizer.stop_ids,
            banned_ids=self.tokenizer.banned_ids,
            tensors=functools.partial(weights.from_params, self.shape),
            directory=scratch / "weights",
            dtype=np.dtype(self.dtype),
            longest=128 + T,
        )


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vllm") / "model"
    tiny_checkpoint.write(directory, seed=0)
    limit_pixels(directory, LIMITS)
    shape = files.load_config(directory)
    tokenizer = tokens.Tokenizer.load(directory)
    launched = launch(directory, directory.parent / "vllm.log", data_parallel_size=2)
    yield Setup(directory, launched, tokenizer, shape, questions(tokenizer))
    launched.stop()


def launch(directory, log_path, **options):
    return process.launch(
        directory,
        log_path=log_path,
        options={
            "served_model_name": "policy",
            "max_model_len": 512,
            "max_num_seqs": 64,
            "limit_mm_per_prompt": {"image": 2, "video": 0},
            **options,
        },
        env={"VLLM_LOGGING_LEVEL": "WARNING"},
    )


@pytest.fixture(scope="module")
def engine(setup, tmp_path_factory):
    return setup.engine(tmp_path_factory.mktemp("weights"))


def limit_pixels(directory, limits):
    """Writes the sizes of images into a checkpoint, under both names that processors know."""
    size = {"shortest_edge": limits["min_pixels"], "longest_edge": limits["max_pixels"]}
    path = directory / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | limits | {"size": size}))


def questions(tokenizer, **limits):
    """Two prompts without images, two with one, one with two."""
    rng = np.random.default_rng(0)
    picture = lambda *size: Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8))
    shown = [
        ("What is\n 2 + 2 ?", []),
        ("Count them: <image>. é?", [picture(100, 90)]),
        (
            "Which of <image> and <image> is larger",
            [picture(56, 112), picture(99, 200)],
        ),
        ("Name a colour.", []),
        ("What is this?", [picture(140, 60)]),
    ]
    build = rendered.PromptBuilder(
        tokenizer, instruction="Answer.", max_length=128, **(LIMITS | limits)
    )
    return [
        build(Item(uid=f"q{i}", question=q, images=tuple(p), answer="4", kind="int"))
        for i, (q, p) in enumerate(shown)
    ]


def difference(setup, params, rollouts, prompts, temperature=1.0):
    """|trainer's log-prob - vLLM's| of every token that was answered."""
    (batch,) = minibatches.split(
        prompts,
        rollouts,
        np.zeros(len(rollouts.length_N)),
        prompts_per_minibatch=len(prompts),
        prompts_per_microbatch=len(prompts),
        answers_per_row=4,
        length_multiple=16,
    )
    logp = update.make_logp(
        setup.merge,
        temperature=temperature,
        banned=setup.tokenizer.banned_ids,
        chunk=512,
        remat=False,
    )
    logp_ANT = jax.jit(update.make_logprobs(logp))(params, batch)
    inside_ANT = batch.mask_NT > 0
    return np.abs(np.asarray(logp_ANT) - batch.old_logp_NT)[inside_ANT]


def check_close(diff, what):
    print(f"\n{what}: mean {diff.mean():.1e}, max {diff.max():.1e}, {diff.size} tokens")
    assert diff.mean() <= 1e-4 and diff.max() <= 1e-3


def answer(engine, setup, version, *, count=8, **options):
    num_rollouts_M = np.full(len(setup.prompts), count)
    return engine.generate(setup.prompts, num_rollouts_M, jax.random.key(0), version, **options)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_the_trainers_before_and_after_a_sync(setup, engine, temperature):
    sampling = Sampling(temperature=temperature, max_tokens=T)
    found = []
    for version in (1, 2):
        params = setup.params(version)
        engine.sync(params, version)
        rollouts = answer(engine, setup, version, sampling=sampling)
        diff = difference(setup, params, rollouts, setup.prompts, temperature)
        check_close(diff, f"weights {version}, temperature {temperature}")
        assert not np.isin(rollouts.token_NT, setup.tokenizer.banned_ids).any()
        found.append(rollouts)
    others = difference(setup, setup.params(1), found[1], setup.prompts, temperature)
    assert others.mean() > 0.05  # the first weights do not explain the second answers


def test_answers_end_as_the_local_engines_do(setup, engine):
    """Greedy: token for token; the end token is there, and what follows it is padding."""
    params = setup.params(3)
    engine.sync(params, 3)
    greedy = Sampling(temperature=0, max_tokens=T)
    found = answer(engine, setup, 3, count=2, sampling=greedy)
    local = LocalEngine(
        setup.merge,
        params,
        sampling=greedy,
        stop_ids=setup.tokenizer.stop_ids,
        banned_ids=setup.tokenizer.banned_ids,
        answers_per_row=2,
        prompts_per_call=5,
        version=3,
    )
    expected = answer(local, setup, 3, count=2)
    for field in ("token_NT", "length_N", "group_N", "finished_N", "valid_N"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    np.testing.assert_allclose(found.logp_NT, expected.logp_NT, atol=1e-3)
    sampled = answer(engine, setup, 3, count=32)
    last_N = sampled.token_NT[np.arange(160), sampled.length_N - 1]
    ended_N = np.isin(last_N, setup.tokenizer.stop_ids)
    np.testing.assert_array_equal(sampled.finished_N, ended_N)
    assert 0 < ended_N.sum() < 160
    assert (sampled.length_N[~ended_N] == T).all()
