"""The engine with scripted logits, where every number is known, and with a real model."""

import functools
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.qwen import inputs
from tests.trainer import small
from vade_jax.models.qwen import model
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.trainer import mesh
from vade_jax.types import Prompt

STOP, OTHER_STOP, BANNED, V = 7, 6, (5,), 8


class Scripted:
    """Logits of answer token t to a prompt that starts with token m: params[m, t]."""

    def __init__(self, params, steps):
        self.logits_MTV, self.steps = params, steps

    def prefill(self, prompts):
        which_M = prompts.token_MP[:, 0]
        return self.logits_MTV[which_M, 0], Which(which_M)

    text = types.SimpleNamespace(order=())

    def ends_apart(self):
        return Ends((), jnp.eye(V))

    def own_cache(self, rows, group_size, length):
        return ()

    def decode(self, weights, rows, own, token_N, step):
        jax.debug.callback(self.steps.append, step)
        which_N = jnp.repeat(rows.which_M, len(token_N) // len(rows.which_M))
        return self.logits_MTV[which_N, step + 1], own


class Ends(NamedTuple):
    layers: tuple
    head_DV: jax.Array


class Which:
    def __init__(self, which_M):
        self.which_M = which_M

    def take(self, group_R):
        return Which(self.which_M[group_R])

    def apart(self):
        return self


def scripted(logits_MTV, **options):
    """An engine, and the list of its decode steps; those of one size have the same programs."""
    engine, steps = _scripted(np.shape(logits_MTV), **options)
    engine.sync(jnp.asarray(logits_MTV, jnp.float32), 0)
    steps.clear()
    return engine, steps


@functools.cache
def _scripted(shape, **options):
    steps = []
    defaults = dict(
        sampling=Sampling(max_tokens=4),
        stop_ids=(STOP, OTHER_STOP),
        banned_ids=BANNED,
        answers_per_row=4,
        prompts_per_call=2,
    )
    engine = LocalEngine(
        lambda params: Scripted(params, steps), jnp.zeros(shape), **defaults | options
    )
    return engine, steps


def question(first):
    token_P = np.array([first, 0, 0], np.int32)
    position_PX = np.repeat(np.arange(3)[:, None], 3, 1).astype(np.int32)
    return Prompt(uid="", text="", token_P=token_P, position_PX=position_PX, images=())


def flat(num_prompts=3, T=5):
    """Even logits, no stop before the limit."""
    logits = np.zeros((num_prompts, T, V))
    logits[..., [STOP, OTHER_STOP]] = -60  # not -inf: x 0 in the head is not 0
    return logits


# ------------------------------------------------------------------------------ draws
def test_a_key_decides_every_draw():
    engine, _ = scripted(flat())
    prompts = [question(0)] * 4
    run = lambda seed: engine.generate(prompts, [4] * 4, jax.random.key(seed), 0).token_NT
    np.testing.assert_array_equal(run(0), run(0))
    assert (run(0) != run(1)).any(1).mean() > 0.9
    # 16 identical questions, 5^4 possible answers: slots differ.
    assert len(np.unique(run(0), axis=0)) >= 14


@functools.cache
def of_batches(**options):
    engine, _ = scripted(np.random.default_rng(0).normal(size=(3, 5, V)), **options)
    prompts = [question(m) for m in (0, 1, 2, 0, 1)]
    return engine.generate(prompts, [3, 8, 1, 0, 5], jax.random.key(3), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"prompts_per_call": 1},
        {"answers_per_row": 3},
        {"answers_per_row": 2, "prompts_per_call": 3, "rows_per_call": 4},
        {"answers_per_row": 1, "prompts_per_call": 4, "rows_per_call": 5},
        {"answers_per_row": 8, "prompts_per_call": 3, "rows_per_call": 6},
    ],
)
def test_the_answers_do_not_depend_on_how_they_are_batched(options):
    one, other = of_batches(), of_batches(**options)
    jax.tree.map(np.testing.assert_array_equal, one, other)
    np.testing.assert_array_equal(one.group_N, np.repeat(np.arange(5), [3, 8, 1, 0, 5]))


@pytest.mark.parametrize(("top_p", "top_k"), [(1.0, 0), (0.7, 0), (1.0, 3), (0.8, 4)])
def test_logps_are_of_the_distribution_drawn_from(top_p, top_k):
    """In float64, by sorting: temperature, then the k best, then the nucleus."""
    logits_TV = np.random.default_rng(1).normal(size=(5, V)) * 2
    logits_TV[:, BANNED[0]] = 9  # the policy would love to
    sampling = Sampling(temperature=0.8, top_p=top_p, top_k=top_k, max_tokens=4)
    engine, _ = scripted(logits_TV[None], sampling=sampling)
    rollouts = engine.generate([question(0)] * 2, [64, 64], jax.random.key(0), 0)
    for token_T, logp_T, length in zip(
        rollouts.token_NT, rollouts.logp_NT, rollouts.length_N, strict=True
    ):
        for t in range(length):
            x_V = logits_TV[t] / 0.8
            order = [v for v in np.argsort(-x_V) if v not in BANNED][: top_k or V]
            prob = np.exp(x_V[order]) / np.exp(x_V[order]).sum()
            kept = np.cumsum(prob) - prob < top_p
            assert token_T[t] in np.array(order)[kept]
            expected = prob[order.index(token_T[t])] / prob[kept].sum()
            np.testing.assert_allclose(logp_T[t], np.log(expected), atol=2e-6)
        assert not logp_T[length:].any()


# ------------------------------------------------------------------------------ ends
def test_it_stops_when_every_answer_has_ended():
    """Prompt 0 ends with its second token, prompt 1 with its third: 3 steps of 16."""
    logits = np.zeros((2, 17, V))
    logits[0, 0, 1] = logits[1, 0, 2] = logits[1, 1, 3] = 99
    logits[0, 1, STOP] = logits[1, 2, OTHER_STOP] = 99
    engine, steps = scripted(logits, sampling=Sampling(max_tokens=16))
    found = engine.generate([question(0), question(1)], [1, 2], jax.random.key(0), 0)
    jax.effects_barrier()
    assert sorted(int(step) for step in steps) == [0, 1, 2]
    np.testing.assert_array_equal(found.length_N, [2, 3, 3])
    assert found.finished_N.all() and found.valid_N.all()
    np.testing.assert_array_equal(found.token_NT[0, :2], [1, STOP])
    np.testing.assert_array_equal(found.token_NT[2, :3], [2, 3, OTHER_STOP])


def test_an_answer_cut_at_the_limit_is_not_finished():
    logits = flat()
    logits[0, 3, STOP] = 99
    found = scripted(logits)[0].generate([question(0), question(1)], [1, 1], jax.random.key(0), 0)
    np.testing.assert_array_equal(found.length_N, [4, 4])
    np.testing.assert_array_equal(found.finished_N, [True, False])


# ------------------------------------------------------------------------------ contract
def test_weights_of_another_version_are_an_error():
    engine, _ = scripted(flat())
    with pytest.raises(ValueError, match=r"weights 1 were asked for.*holds version 0"):
        engine.generate([question(0)], [1], jax.random.key(0), 1)
    right = np.array(flat())
    right[:, :, 3] = 99
    engine.sync(jnp.asarray(right, jnp.float32), 1)
    found = engine.generate([question(0)], [2], jax.random.key(0), 1)
    assert (found.token_NT == 3).all() and found.params_version == 1


def test_evaluation_may_sample_in_its_own_way():
    logits = np.random.default_rng(0).normal(size=(3, 9, V))
    logits[..., [STOP, OTHER_STOP]] = -9
    greedy = Sampling(temperature=0, max_tokens=8)
    found = scripted(logits)[0].generate([question(1)], [2], jax.random.key(0), 0, greedy)
    allowed = [v for v in range(V) if v not in BANNED]
    expected = np.array(allowed)[logits[1, :8, allowed].argmax(0)]
    np.testing.assert_array_equal(found.token_NT, [expected, expected])


# ------------------------------------------------------------------------------ a mesh
def real(params, merge=small.merge, **options):
    """An engine of the two-layer model."""
    defaults = dict(
        sampling=Sampling(max_tokens=2),
        stop_ids=small.STOP,
        banned_ids=(),
        answers_per_row=4,
        prompts_per_call=4,
        length_multiple=32,
    )
    return LocalEngine(merge, params, **defaults | options)


@pytest.mark.parametrize("sizes", [[4, 4, 2], pytest.param([3, 8, 1], marks=pytest.mark.slow)])
def test_eight_devices_give_the_answers_of_one(sizes):
    """The first sizes are a row each; rows, prompts and images do not divide by the four ways."""
    prompts, key = small.prompts(len(sizes)), jax.random.key(1)
    devices = mesh.make(2, 2, 2)
    params = jax.device_put(small.params(), mesh.shardings(devices, small.params()))
    options = dict(sampling=Sampling(max_tokens=6), banned_ids=small.BANNED, prompts_per_call=3)
    graph = model.graph(small.SHAPE, place=mesh.Place(devices))
    merge = functools.partial(model.merge, graph)
    one, eight = real(small.params(), **options), real(params, merge, mesh=devices, **options)
    one, eight = (engine.generate(prompts, sizes, key, 0) for engine in (one, eight))
    np.testing.assert_allclose(one.logp_NT, eight.logp_NT, atol=2e-5)
    jax.tree.map(np.testing.assert_array_equal, one.replace(logp_NT=0), eight.replace(logp_NT=0))


# ------------------------------------------------------------------------------ a real model
def test_greedy_equals_transformers(tmp_path):
    """Through a checkpoint directory; two images, one, and none."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from vade_jax.models.qwen import files

    files.save(tmp_path / "model", small.SHAPE, small.params(5))
    reference = transformers.AutoModelForImageTextToText.from_pretrained(
        tmp_path / "model", dtype=torch.float32, attn_implementation="eager"
    )
    reference.eval()
    engine = real(
        small.params(5), sampling=Sampling(temperature=0, max_tokens=10), answers_per_row=1
    )
    found = engine.generate(small.prompts(), [1] * 4, jax.random.key(0), 0)
    for n, example in enumerate(small.examples()):
        expected = _generate(torch, reference, example)
        np.testing.assert_array_equal(
            found.token_NT[n, : found.length_N[n]], expected, err_msg=f"prompt {n}"
        )


def _generate(torch, reference, example):
    ids = torch.tensor([example.ids])
    pictures = {}
    if example.images:
        pixels = np.concatenate([inputs.processor_pixels(i) for i in example.images])
        sides = [[1, i.shape[0] // 14, i.shape[1] // 14] for i in example.images]
        pictures = {"pixel_values": torch.tensor(pixels), "image_grid_thw": torch.tensor(sides)}
    reference.model.rope_deltas = None  # left over from the last prompt
    out = reference.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == small.SHAPE.image_token_id).int(),
        do_sample=False,
        max_new_tokens=10,
        eos_token_id=list(small.STOP),
        pad_token_id=small.STOP[1],
        **pictures,
    )
    return out[0, ids.shape[1] :].numpy()
