"""vLLM in this process against the trainer: the same tokens have the same log-probs."""

import dataclasses
import functools
import importlib.util

import jax
import numpy as np
import pytest
from PIL import Image

from tests.models.qwen25vl import oracle
from vade_jax.data import prompts as prompt_module
from vade_jax.data import tokens
from vade_jax.models.qwen25vl import config, files, model, weights
from vade_jax.rollout.engine import EngineFailure, Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.sync import WeightDirectory
from vade_jax.rollout.vllm_inprocess import VllmInProcessEngine
from vade_jax.trainer import minibatches, update
from vade_jax.types import Item

SIZES = ([(84, 140)], [(56, 56), (112, 28)], [], [(112, 112)])  # (height, width)
PIXELS = {"min_pixels": 2 * 28 * 28, "max_pixels": 112 * 112}
SAMPLING = Sampling(temperature=0.8, max_tokens=12)
COUNTS = [3, 5, 2, 4]

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is missing"),
]


@dataclasses.dataclass
class Setup:
    shape: config.Config
    tokenizer: tokens.Tokenizer
    prompts: list
    engine: VllmInProcessEngine

    def params(self, seed, vision_seed=None):
        tensors = oracle.random_tensors(self.shape, seed)
        if vision_seed is not None:
            other = oracle.random_tensors(self.shape, vision_seed)
            tensors |= {n: x for n, x in other.items() if n.startswith("visual.")}
        return jax.tree.map(jax.numpy.asarray, weights.to_params(self.shape, tensors))

    def merge(self, params):
        return model.merge(model.graph(self.shape), params)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    preset = config.PRESETS["tiny"]
    tokenizer = tokens.build(
        folder / "model", ["What is shown?", "How many dots?"], preset.text.vocab_size
    )
    shape = dataclasses.replace(
        preset,
        image_token_id=tokenizer.image_pad,
        video_token_id=tokenizer.video_pad,
        vision_start_token_id=tokenizer.vision_start,
        vision_end_token_id=tokenizer.vision_end,
        bos_token_id=tokenizer.pad,
        eos_token_id=tokenizer.im_end,
    )
    builder = prompt_module.PromptBuilder(
        tokenizer, instruction="", max_length=256, **PIXELS
    )
    made = Setup(shape, tokenizer, [builder(item) for item in items()], None)
    files.save(folder / "model", shape, made.params(0))
    made.engine = VllmInProcessEngine(
        folder / "model",
        tensors=functools.partial(weights.from_params, shape),
        weights=WeightDirectory(folder / "weights", np.float32),
        sampling=SAMPLING,
        stop_ids=tokenizer.stop_ids,
        banned_ids=tokenizer.banned_ids,
        options={"max_model_len": 512, "mm_processor_kwargs": PIXELS},
    )
    yield made
    made.engine.close()


def items():
    rng = np.random.default_rng(0)
    picture = lambda size: Image.fromarray(
        rng.integers(0, 256, (*size, 3), dtype=np.uint8)
    )
    return [
        Item(
            uid=str(i),
            question="What is shown?",
            images=tuple(map(picture, sizes)),
            answer="1",
            kind="int",
        )
        for i, sizes in enumerate(SIZES)
    ]


def trainer_logp(setup, params, rollouts):
    """The trainer's log-probs of the rollouts' tokens, [N, T]."""
    (batch,) = minibatches.split(
        setup.prompts,
        rollouts,
        np.zeros(len(rollouts.length_N)),
        prompts_per_minibatch=4,
        prompts_per_microbatch=4,
        answers_per_row=max(COUNTS),
        length_multiple=16,
    )
    logp = update.make_logp(
        setup.merge,
        temperature=SAMPLING.temperature,
        banned=setup.tokenizer.banned_ids,
        chunk=64,
    )
    micro = jax.tree.map(lambda x: x[0], batch)
    return np.asarray(jax.jit(logp)(params, micro))[np.asarray(micro.mask_NT).any(1)]


def differences(setup, params, rollouts):
    logp_NT = trainer_logp(setup, params, rollouts)
    inside_NT = np.arange(SAMPLING.max_tokens) < rollouts.length_N[:, None]
    return np.abs(logp_NT - rollouts.logp_NT)[inside_NT]


def assert_agree(setup, params, rollouts, what):
    difference = differences(setup, params, rollouts)
    print(f"{what}: mean {difference.mean():.2e} max {difference.max():.2e}")
    assert difference.mean() <= 1e-4
    assert difference.max() <= 1e-3


def test_log_probs_agree_with_the_trainer_before_and_after_a_sync(setup):
    engine = setup.engine
    first = engine.generate(setup.prompts, COUNTS, jax.random.key(0), 0)
    assert_agree(setup, setup.params(0), first, "start")
    engine.sync(setup.params(7), 1)
    second = engine.generate(setup.prompts, COUNTS, jax.random.key(0), 1)
    assert_agree(setup, setup.params(7), second, "after a sync")
    assert differences(setup, setup.params(0), second).mean() > 0.1
    taken = engine.metrics()
    print(taken)
    assert set(taken) == {"timing_s/sync_write", "timing_s/sync_load"}
    assert engine.metrics() == {}


def test_new_vision_weights_alone_reach_the_images(setup):
    """Caches of images and of prefixes would hide them."""
    greedy = dataclasses.replace(SAMPLING, temperature=0.0)
    ask = lambda version: setup.engine.generate(
        setup.prompts, COUNTS, jax.random.key(1), version, greedy
    )
    setup.engine.sync(setup.params(7), 2)
    old = ask(2)
    setup.engine.sync(setup.params(7, vision_seed=9), 3)
    new = ask(3)
    changed_N = (old.logp_NT[:, 0] != new.logp_NT[:, 0]) | (
        old.token_NT[:, 0] != new.token_NT[:, 0]
    )
    np.testing.assert_array_equal(changed_N, old.group_N != 2)  # prompt 2 has no image
    setup.engine.sync(setup.params(7), 4)
    again = ask(4)
    np.testing.assert_array_equal(again.token_NT, old.token_NT)
    np.testing.assert_allclose(again.logp_NT, old.logp_NT, atol=1e-5)


def test_the_layout_is_that_of_the_local_engine(setup):
    params = setup.params(7)
    setup.engine.sync(params, 5)
    local = LocalEngine(
        setup.merge,
        params,
        sampling=SAMPLING,
        stop_ids=setup.tokenizer.stop_ids,
        banned_ids=setup.tokenizer.banned_ids,
        answers_per_row=5,
        prompts_per_call=4,
        version=5,
    )
    key = jax.random.key(2)
    counts = [3, 0, 2, 4]
    seen = {}
    greedy = dataclasses.replace(SAMPLING, temperature=0.0)
    ours = local.generate(setup.prompts, counts, key, 5, greedy)
    theirs = setup.engine.generate(
        setup.prompts, counts, key, 5, greedy, seen.__setitem__
    )
    for name in ("token_NT", "length_N", "group_N", "finished_N", "valid_N"):
        x, y = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_array_equal(x, y, err_msg=name)
        assert x.dtype == y.dtype
    np.testing.assert_allclose(ours.logp_NT, theirs.logp_NT, atol=1e-3)
    assert theirs.logp_NT.dtype == ours.logp_NT.dtype
    assert sorted(seen) == [0, 1, 2, 3]
    assert [len(seen[m]) for m in range(4)] == counts
    for m, token_T in enumerate(seen[3]):
        np.testing.assert_array_equal(token_T, theirs.token_NT[5 + m][: len(token_T)])


def test_a_key_decides_every_draw_and_answers_end_at_the_stop_tokens(setup):
    setup.engine.sync(setup.params(7), 6)
    run = lambda seed: setup.engine.generate(
        setup.prompts, [16] * 4, jax.random.key(seed), 6
    )
    one, other = run(3), run(4)
    np.testing.assert_array_equal(run(3).token_NT, one.token_NT)
    assert (one.token_NT != other.token_NT).any(1).mean() > 0.9
    assert len(np.unique(one.token_NT[:16], axis=0)) > 12  # answers of a group differ
    assert not np.isin(one.token_NT, setup.tokenizer.banned_ids).any()
    stop = setup.tokenizer.stop_ids
    last_N = one.token_NT[np.arange(64), one.length_N - 1]
    np.testing.assert_array_equal(np.isin(last_N, stop), one.finished_N)
    for token_T, length in zip(one.token_NT, one.length_N, strict=True):
        assert not np.isin(token_T[: length - 1], stop).any()
        assert (token_T[length:] == stop[0]).all()


def test_what_cannot_be_right_is_refused(setup):
    setup.engine.sync(setup.params(7), 7)
    ask = functools.partial(setup.engine.generate, num_rollouts_M=[1], key=_key())
    with pytest.raises(ValueError, match="holds version 7"):
        ask(setup.prompts[:1], params_version=6)
    with pytest.raises(ValueError, match="max_model_len 512"):
        ask(setup.prompts[:1], params_version=7, sampling=Sampling(max_tokens=500))
    other = dataclasses.replace(setup.prompts[0], text=setup.prompts[0].text + "!")
    with pytest.raises(EngineFailure, match="vLLM made"):
        ask([other], params_version=7)
    assert ask(setup.prompts[:1], params_version=7).length_N[0] > 0  # and goes on


def _key():
    return jax.random.key(0)
