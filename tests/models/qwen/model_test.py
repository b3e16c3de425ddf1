"""The whole model against transformers, and its three forwards against each other."""

import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.qwen import inputs, oracle
from vade_jax.models.qwen import config, model, presets, weights
from vade_jax.rollout import local

TINY = presets.PRESETS["tiny"]
VARIANTS = {
    "tied": TINY,
    "untied": dataclasses.replace(TINY, tie_embeddings=False),
    "one_kv_head": dataclasses.replace(
        oracle.text(TINY, num_kv_heads=1, mrope_section=(2, 6, 8), num_layers=2),
        vision=dataclasses.replace(TINY.vision, full_blocks=(0,), depth=3),
    ),
    "wide_heads": dataclasses.replace(
        oracle.text(TINY, num_heads=2, mrope_section=(8, 12, 12), rope_theta=1e4),
        vision=dataclasses.replace(TINY.vision, num_heads=6, full_blocks=(0, 2)),
        tie_embeddings=False,
    ),
}

TINY3 = presets.PRESETS["tiny_qwen3vl"]
VARIANTS |= {
    "qwen3vl": TINY3,
    # Heads wider than width / num_heads, fewer turns for h and w than there is room, a table that is shrunk.
    "qwen3vl_untied": dataclasses.replace(
        oracle.text(
            TINY3, own_head_width=40, mrope_section=(10, 6, 4), num_layers=5, num_kv_heads=1
        ),
        vision=dataclasses.replace(
            TINY3.vision, depth=6, width=48, num_heads=4, table_side=5, deepstack=(1, 3, 4)
        ),
        tie_embeddings=False,
    ),
}

TINY35 = oracle.text(presets.PRESETS["tiny_qwen3_5"], interval=4)  # as in the published ones
VARIANTS |= {
    "qwen3_5": TINY35,  # two value heads for each key head
    "qwen3_5_untied": dataclasses.replace(
        oracle.text(
            TINY35,
            num_layers=6,
            interval=3,
            linear=config.LinearConfig(2, 4, 24, 40),
            num_kv_heads=1,
            own_head_width=40,
            mrope_section=(2, 2, 1),
            rotary_share=0.25,
        ),
        tie_embeddings=False,
    ),
}

LINEAR = config.LinearConfig(3, 3, 24, 40)
TEXT = {
    "qwen2.5": presets.PRESETS["tiny_qwen2.5"],
    "qwen3": presets.PRESETS["tiny_qwen3"],
    "llama": presets.PRESETS["tiny_llama"],
    # Llama 3.1's rotation: of 20 frequencies some are kept, some slowed down, some in between.
    "llama3": dataclasses.replace(
        oracle.text(
            presets.PRESETS["tiny_llama"],
            own_head_width=40,
            mrope_section=(20, 0, 0),
            long_rope=config.LongRope(8.0, 1.0, 4.0, 64),
        ),
        tie_embeddings=False,
    ),
    "qwen3_5": dataclasses.replace(
        oracle.text(TINY35, interval=2, linear=LINEAR, mrope_section=(16, 0, 0), interleaved=False),
        vision=None,
    ),
}
TEXT["qwen3_5_no_linear"] = oracle.text(TEXT["qwen3_5"], interval=1, num_layers=2)


@pytest.fixture(autouse=True)
def exact_matmuls():
    with jax.default_matmul_precision("highest"):
        yield


def examples(shape, seed=0, num_text=9):
    """Three images, one ragged; one tall image; one with text on both sides of a large one."""
    rng, patch = np.random.default_rng(seed), shape.vision.patch_size
    sizes = [[(3, 5), (4, 4), (1, 2)], [(6, 1)], [(5, 9)]]
    return [
        inputs.example(rng, s, shape.image_token_id, num_text + i, patch)
        for i, s in enumerate(sizes)
    ]


def padded(batch, shape):
    """Prompts in a program with more of everything than they have."""
    return inputs.batch(batch, shape.image_token_id, length=90, num_images=6, num_windows=7)


@functools.partial(jax.jit, static_argnums=0)
def forward(graph, params, prompts):
    """Logits and features; compiled once for all tests with the same sizes."""
    qwen = model.merge(graph, params)
    return qwen.logits(qwen.hidden(prompts)), qwen.image_features(prompts.images)


def run(shape, params, prompts, **kwargs):
    return jax.tree.map(np.asarray, forward(model.graph(shape, **kwargs), params, prompts))


def valid_features(features, batch):
    """The features of all images, for each kind: those that replace tokens, then those of DeepStack."""
    images, patch = [image for e in batch for image in e.images], batch[0].patch
    cells = [tuple(np.transpose(inputs.cells(image, patch))) for image in images]
    kinds = [features.cell_BWCD, *features.deep_KBWCD]
    return [np.concatenate([x[b][cell] for b, cell in enumerate(cells)]) for x in kinds]


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_transformers(name):
    """Of each family one variant with padding of every kind, the others with none in the largest row."""
    pytest.importorskip("transformers")
    shape, seed = VARIANTS[name], list(VARIANTS).index(name)
    tensors = oracle.random_tensors(shape, seed)
    batch = examples(shape, seed)
    has_padding = shape in (TINY, TINY3, TINY35)
    prompts = padded(batch, shape) if has_padding else inputs.batch(batch, shape.image_token_id)
    logits_MPV, features = run(shape, weights.to_params(shape, tensors), prompts)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((logits_MPV, features)))
    reference = oracle.build(shape, tensors)
    pixels, exactly, atol = inputs.processor_pixels, contextlib.nullcontext(), 2e-5
    if shape.text.linear:  # our rounding alone is up to 2.3e-5, with theirs it is more
        reference, exactly, atol = reference.double(), oracle.in_float64(), 4e-5
        pixels = lambda *image: inputs.processor_pixels(*image).astype(np.float64)
    with exactly:
        logits, expected = oracle.forward(reference, batch, pixels, shape.image_token_id)
    for m, row in enumerate(logits):
        np.testing.assert_allclose(logits_MPV[m, : len(row)], row, atol=atol, rtol=0)
    np.testing.assert_allclose(valid_features(features, batch), expected, atol=atol, rtol=0)


@pytest.mark.parametrize("name", TEXT)
def test_a_text_model_equals_transformers(name):
    """The decoder without a vision tower; shorter than a convolution, of one chunk, and of several."""
    pytest.importorskip("transformers")
    shape, rng = TEXT[name], np.random.default_rng(7)
    tensors = oracle.random_tensors(shape, 3)
    batch = [
        inputs.example(rng, [], shape.image_token_id, size) for size in (5, 17, 2, 64, 65, 150)
    ]
    prompts = inputs.batch(batch, shape.image_token_id)
    params = weights.to_params(shape, tensors)
    logits_MPV = jax.jit(
        lambda p: (m := model.merge(model.graph(shape), p)).logits(m.hidden(prompts))
    )(params)
    reference = oracle.build(shape, tensors)
    logits, _ = oracle.forward(reference, batch, None, shape.image_token_id)
    for m, row in enumerate(logits):
        np.testing.assert_allclose(logits_MPV[m, : len(row)], row, atol=2e-5, rtol=0)


def grouped_examples(shape, rng):
    """Three prompts: of a chunk, one token more, and shorter than a convolution."""
    sizes = [[(3, 5), (4, 4)], [(6, 1)], []] if shape.vision else [[], [], []]
    patch = shape.vision.patch_size if shape.vision else 14
    return [
        inputs.example(rng, s, shape.image_token_id, n - sum(a * b + 2 for a, b in s), patch)
        for s, n in zip(sizes, (64, 65, 2), strict=True)
    ]


def grouped_case(shape):
    """Two answers to each of the prompts."""
    rng = np.random.default_rng(0)
    batch = grouped_examples(shape, rng)
    token_NT = rng.integers(0, 300, (6, 5)).astype(np.int32)
    weight_NT = rng.standard_normal(token_NT.shape).astype(np.float32)
    return inputs.batch(batch, shape.image_token_id), token_NT, weight_NT


def answer_logps(qwen, hidden_NTD, token_NT):
    logp_NTV = jax.nn.log_softmax(qwen.logits(hidden_NTD))
    return jnp.take_along_axis(logp_NTV, jnp.asarray(token_NT)[..., None], -1)[..., 0]


@functools.partial(jax.jit, static_argnums=0)
def plain_step(graph, params, rows, weight_MQ):
    """The log-probs of all rows' tokens but the first, their weighted sum, and its gradient."""

    def loss(params):
        qwen = model.merge(graph, params)
        logp_MPV = jax.nn.log_softmax(qwen.logits(qwen.hidden(rows)))
        logp_MQ = jnp.take_along_axis(logp_MPV[:, :-1], rows.token_MP[:, 1:, None], -1)[..., 0]
        return jnp.sum(logp_MQ * weight_MQ), logp_MQ

    return jax.value_and_grad(loss, has_aux=True)(params)


class Plain:
    """A shape, its parameters, log-probs and gradients of one plain row per answer."""

    def __init__(self, shape):
        self.shape, self.tensors = shape, oracle.random_tensors(shape, 3)
        self.params, self.graph = weights.to_params(shape, self.tensors), model.graph(shape)
        prompts, token_NT, weight_NT = grouped_case(shape)
        self.rows = inputs.join(prompts, token_NT, np.repeat(np.arange(3), 2))
        T = token_NT.shape[1]
        index_NT = self.rows.length_M[:, None] - T - 1 + np.arange(T)
        weight_MQ = np.zeros_like(self.rows.token_MP[:, 1:], np.float32)
        np.put_along_axis(weight_MQ, index_NT, weight_NT, 1)
        logp_MQ, self.gradient = self.step(weight_MQ)
        self.logp_NT = np.take_along_axis(logp_MQ, index_NT, 1)

    def step(self, weight_MQ):
        (_, logp_MQ), gradient = plain_step(self.graph, self.params, self.rows, weight_MQ)
        return np.asarray(logp_MQ), gradient


@pytest.fixture(scope="module", params=["tied", "qwen3", "qwen3vl_untied", "qwen3_5_untied"])
def plain(request):
    """Of the shape without pictures, the answers' last token is fed, to fill a tile."""
    with jax.default_matmul_precision("highest"), pytest.MonkeyPatch.context() as patch:
        found = Plain((TEXT | VARIANTS)[request.param])
        if found.shape.vision is None:
            patch.setattr(model, "TILE", found.logp_NT.shape[1])
        yield found


@functools.partial(jax.jit, static_argnums=0)
def grouped_step(graph, params, prompts, token_NT, weight_NT):
    def loss(params):
        qwen = model.merge(graph, params)
        hidden_NTD = qwen.answer_hidden(prompts, token_NT)
        logp_NT = answer_logps(qwen, hidden_NTD, token_NT)
        return jnp.sum(logp_NT * weight_NT), logp_NT

    return jax.value_and_grad(loss, has_aux=True)(params)


def test_padding_gives_finite_gradients(plain):
    """Empty rows, empty windows and images that nothing shows: no division by nothing."""
    prompts, *answers = grouped_case(plain.shape)
    images = prompts.images
    empty = dataclasses.replace(
        prompts,
        images=dataclasses.replace(images, valid_BWS=np.zeros_like(images.valid_BWS)),
        length_M=np.array([0, 3, 9], np.int32),
    )
    loss, gradient = grouped_step(plain.graph, plain.params, empty, *answers)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((loss, gradient)))


def test_grouped_equals_plain(plain):
    step = functools.partial(grouped_step, plain.graph, plain.params)
    (_, logp_NT), gradient = step(*grouped_case(plain.shape))
    np.testing.assert_allclose(logp_NT, plain.logp_NT, atol=1e-5)
    for (path, got), want in zip(
        jax.tree.leaves_with_path(gradient), jax.tree.leaves(plain.gradient), strict=True
    ):
        error = np.abs(got - want).max() / np.abs(want).max()
        assert error < 1e-5, (jax.tree_util.keystr(path), error)


def test_prefill_and_decode_equal_plain(plain):
    params, graph = plain.params, plain.graph
    prompts, token_NT, _ = grouped_case(plain.shape)
    group_R = np.array([2, 0, 1, 0])  # of a large group several rows
    answer_N = (2 * group_R[:, None] + np.arange(2)).reshape(-1)
    token_NT = token_NT[answer_N]

    @jax.jit
    def decode(params, apart, prompts, group_R):
        qwen = model.merge(graph, params)
        hidden_MD, cache = qwen.prefill(prompts)
        prompt_rows = cache.take(group_R).apart()
        own = qwen.own_cache(prompt_rows, 2, token_NT.shape[1])

        def body(own, step):
            hidden_ND, own = qwen.decode(
                apart, prompt_rows, own, jnp.asarray(token_NT)[:, step], step
            )
            return own, hidden_ND

        _, hidden_TND = jax.lax.scan(body, own, jnp.arange(token_NT.shape[1] - 1))
        first_1ND = hidden_MD[jnp.repeat(group_R, 2)][None]
        hidden_NTD = jnp.swapaxes(jnp.concatenate([first_1ND, hidden_TND]), 0, 1)
        return answer_logps(qwen, hidden_NTD, token_NT)

    apart = local.Apart(functools.partial(model.merge, graph))(params)
    logp_NT = decode(params, apart, prompts, group_R)
    np.testing.assert_allclose(logp_NT, plain.logp_NT[answer_N], atol=1e-5)


@pytest.mark.parametrize("plain", ["qwen3"], indirect=True)
def test_answers_of_one_token_and_rows_that_are_not_equal(plain):
    prompts, token_NT, weight_NT = grouped_case(plain.shape)
    step = functools.partial(grouped_step, plain.graph, plain.params, prompts)
    logp_N1 = step(token_NT[:, :1], weight_NT[:, :1])[0][1]
    np.testing.assert_allclose(logp_N1, plain.logp_NT[:, :1], atol=1e-5)
    with pytest.raises(ValueError, match="5 answers do not make 3 equal rows"):
        step(token_NT[:5], weight_NT[:5])


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *[("tiny", 1562208), ("tiny_6m", 6373408), ("3b", 3754622976), ("7b", 8292166656)],
        *[("qwen2.5-0.5b", 494032768), ("qwen2.5-1.5b", 1543714304)],
        *[("qwen2.5-3b", 3085938688), ("qwen2.5-7b", 7615616512), ("qwen3-1.7b", 1720574976)],
        *[("qwen3-0.6b", 596049920), ("qwen3-4b", 4022468096), ("qwen3-8b", 8190735360)],
        *[("smollm2-135m", 134515008), ("llama3.2-1b", 1235814400), ("llama3.2-3b", 3212749824)],
        *[("qwen3vl-2b", 2127532032), ("qwen3vl-4b", 4437815808), ("qwen3vl-8b", 8767123696)],
        *[("qwen3.5-0.8b", 852985920), ("qwen3.5-2b", 2213241664)],
        *[("qwen3.5-4b", 4539265536), ("qwen3.5-9b", 9409813744)],
    ],
)
def test_parameter_counts(name, count):
    leaves = jax.tree.leaves(model.abstract(presets.PRESETS[name]))
    assert sum(leaf.size for leaf in leaves) == count


@pytest.mark.parametrize("shape", [TINY, TINY3, TINY35], ids=["qwen2.5", "qwen3", "qwen3.5"])
def test_init_is_reproducible_and_of_moderate_size(shape):
    init = jax.jit(functools.partial(model.init, shape))
    params, again, other = (init(jax.random.key(seed)) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert np.any(params["embedding"] != other["embedding"])
    batch = examples(shape)
    logits, features = run(shape, params, padded(batch, shape))
    features, *deep = valid_features(features, batch)
    assert 1 < logits[0, :30].std() < 4  # 0.2 x sqrt(128) = 2.26
    assert 1 < features.std() < 5 and all(0.1 < x.std() < 1 for x in deep)
    if shape.text.linear:  # or its memory would forget everything at each token
        step = np.logaddexp(0, params["text"]["linear"]["delta"]["rate_bias"])
        assert 0.001 <= step.min() < step.max() <= 0.1


@pytest.mark.parametrize("shape", [TINY, TINY3, TINY35], ids=["qwen2.5", "qwen3", "qwen3.5"])
def test_bfloat16_stays_close(shape):
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    prompts = padded(examples(shape), shape)
    exact, _ = run(shape, params, prompts)
    rough, features = run(shape, params, prompts, dtype=jnp.bfloat16)
    assert {x.dtype for x in jax.tree.leaves(features)} == {jnp.dtype(jnp.bfloat16)}
    assert rough.dtype == np.float32
    mask_MP = np.arange(exact.shape[1]) < prompts.length_M[:, None]
    # Logits reach 4; transformers in bfloat16 is off by 0.1.
    assert np.abs(rough - exact)[mask_MP].max() < 0.4
    graph = model.graph(shape, dtype=jnp.bfloat16)
    cache = jax.eval_shape(lambda p: model.merge(graph, p).prefill(prompts)[1], params)
    if shape.text.linear:
        assert cache.linear.memory_NHKV.dtype == np.float32


@pytest.mark.parametrize("plain", ["tied", "qwen3vl_untied", "qwen3_5_untied"], indirect=True)
def test_gradients_equal_those_of_transformers(plain):
    """Of the mean log-prob of a row's own tokens, two chunks, for every tensor of the checkpoint."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    shape, size = plain.shape, plain.rows.length_M[0]
    batch = grouped_examples(shape, np.random.default_rng(0))
    token_P = plain.rows.token_MP[0, :size]
    weight_MQ = np.zeros_like(plain.rows.token_MP[:, 1:], np.float32)
    weight_MQ[0, : size - 1] = 1 / (size - 1)
    gradient = dict(weights.from_params(shape, plain.step(weight_MQ)[1]))
    reference = oracle.build(shape, plain.tensors)
    ids = torch.tensor(token_P, dtype=torch.long)[None]
    patch = shape.vision.patch_size
    logits = reference(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == shape.image_token_id).int(),
        pixel_values=torch.tensor(
            np.concatenate([inputs.processor_pixels(i, patch) for i in batch[0].images])
        ),
        image_grid_thw=torch.tensor(
            [[1, i.shape[0] // patch, i.shape[1] // patch] for i in batch[0].images]
        ),
    ).logits
    logp_PV = torch.log_softmax(logits[0], -1)
    logp_PV[torch.arange(len(token_P) - 1), ids[0, 1:]].mean().backward()
    theirs = dict(reference.named_parameters())
    for tensor, got in gradient.items():
        want = theirs[oracle.in_memory(shape, tensor)].grad.numpy()
        error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-3)
        assert error < 1e-4, (tensor, error)
