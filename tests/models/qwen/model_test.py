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


TINY35 = presets.PRESETS["tiny_qwen3_5"]
VARIANTS |= {
    "qwen3_5": TINY35,  # two value heads for each key head
    "qwen3_5_untied": dataclasses.replace(
        oracle.text(
            TINY35,
            interval=2,
            linear=config.LinearConfig(3, 3, 24, 40),
            num_kv_heads=1,
            own_head_width=40,
            mrope_section=(2, 2, 1),
            rotary_share=0.25,
        ),
        tie_embeddings=False,
    ),
}

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
        oracle.text(TINY35, interval=2, mrope_section=(16, 0, 0), interleaved=False), vision=None
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
    pytest.importorskip("transformers")
    shape, seed = VARIANTS[name], list(VARIANTS).index(name)
    tensors = oracle.random_tensors(shape, seed)
    batch = examples(shape, seed)
    prompts = inputs.batch(batch, shape.image_token_id)
    logits_MPV, features = run(shape, weights.to_params(shape, tensors), prompts)
    reference = oracle.build(shape, tensors)
    pixels, exactly = inputs.processor_pixels, contextlib.nullcontext()
    if shape.text.linear:  # the sum of its and our rounding can be above 2e-5; ours alone is not
        reference, exactly = reference.double(), oracle.in_float64()
        pixels = lambda *image: inputs.processor_pixels(*image).astype(np.float64)
    with exactly:
        answers = [
            oracle.forward(reference, batch, pixels, shape.image_token_id, side)
            for side in ("right", "left")
        ]
    for logits, expected in answers:
        for m, row in enumerate(logits):
            np.testing.assert_allclose(logits_MPV[m, : len(row)], row, atol=2e-5, rtol=0)
        np.testing.assert_allclose(valid_features(features, batch), expected, atol=2e-5, rtol=0)


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
    for side in ("right", "left"):
        logits, _ = oracle.forward(reference, batch, None, shape.image_token_id, side)
        for m, row in enumerate(logits):
            np.testing.assert_allclose(logits_MPV[m, : len(row)], row, atol=2e-5, rtol=0)


@pytest.mark.parametrize("shape", [TINY, TINY3, TINY35], ids=["qwen2.5", "qwen3", "qwen3.5"])
def test_padding_changes_nothing(shape):
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    batch = examples(shape)
    small = inputs.batch(batch, shape.image_token_id)
    large = inputs.batch(batch, shape.image_token_id, length=90, num_images=6, num_windows=9)
    logits, features = run(shape, params, small)
    more_logits, more_features = run(shape, params, large)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((more_logits, more_features)))
    for m, e in enumerate(batch):
        n = len(e.ids)
        np.testing.assert_allclose(more_logits[m, :n], logits[m, :n], atol=1e-5, rtol=0)
    np.testing.assert_allclose(
        valid_features(more_features, batch), valid_features(features, batch), atol=1e-5
    )


def grouped_case(shape, seed=0):
    """Two answers to each of three prompts: of a chunk, one token more, and shorter than a convolution."""
    rng = np.random.default_rng(seed)
    sizes = [[(3, 5), (4, 4)], [(6, 1)], []] if shape.vision else [[], [], []]
    patch = shape.vision.patch_size if shape.vision else 14
    batch = [
        inputs.example(rng, s, shape.image_token_id, n - sum(a * b + 2 for a, b in s), patch)
        for s, n in zip(sizes, (64, 65, 2), strict=True)
    ]
    token_NT = rng.integers(0, 300, (6, 5)).astype(np.int32)
    weight_NT = rng.standard_normal(token_NT.shape).astype(np.float32)
    return inputs.batch(batch, shape.image_token_id), token_NT, weight_NT


def answer_logps(qwen, hidden_NTD, token_NT):
    logp_NTV = jax.nn.log_softmax(qwen.logits(hidden_NTD))
    return jnp.take_along_axis(logp_NTV, jnp.asarray(token_NT)[..., None], -1)[..., 0]


@pytest.fixture(scope="module", params=["tiny", "tiny_qwen3", "tiny_qwen3vl", "tiny_qwen3_5"])
def plain(request):
    """A shape, its parameters, log-probs and gradients of one plain row per answer."""
    shape = presets.PRESETS[request.param]
    prompts, token_NT, weight_NT = grouped_case(shape)
    params = weights.to_params(shape, oracle.random_tensors(shape, 3))
    rows = inputs.join(prompts, token_NT, np.repeat(np.arange(3), 2))
    graph = model.graph(shape)

    def loss(params, rows):
        qwen = model.merge(graph, params)
        T = token_NT.shape[1]
        index_NT = rows.length_M[:, None] - T - 1 + np.arange(T)
        hidden = jnp.take_along_axis(qwen.hidden(rows), index_NT[..., None], 1)
        logp_NT = answer_logps(qwen, hidden, token_NT)
        return jnp.sum(logp_NT * weight_NT), logp_NT

    with jax.default_matmul_precision("highest"):
        (_, logp_NT), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params, rows)
    return shape, params, logp_NT, gradient


@functools.partial(jax.jit, static_argnums=0)
def grouped_step(graph, params, prompts, token_NT, weight_NT):
    def loss(params):
        qwen = model.merge(graph, params)
        hidden_NTD = qwen.answer_hidden(prompts, token_NT)
        logp_NT = answer_logps(qwen, hidden_NTD, token_NT)
        return jnp.sum(logp_NT * weight_NT), logp_NT

    return jax.value_and_grad(loss, has_aux=True)(params)


@pytest.mark.parametrize("whole_tiles", [False, True])
def test_grouped_equals_plain(monkeypatch, plain, whole_tiles):
    """Also where the answers' last token is fed, to fill a tile."""
    shape, params, expected_NT, expected = plain
    if whole_tiles:
        monkeypatch.setattr(model, "TILE", expected_NT.shape[1])
        jax.clear_caches()
    (_, logp_NT), gradient = grouped_step(model.graph(shape), params, *grouped_case(shape))
    jax.clear_caches()
    np.testing.assert_allclose(logp_NT, expected_NT, atol=1e-5)
    for (path, got), want in zip(
        jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True
    ):
        error = np.abs(got - want).max() / np.abs(want).max()
        assert error < 1e-5, (jax.tree_util.keystr(path), error)


@pytest.mark.parametrize("shape", [TINY, TINY3, TINY35], ids=["qwen2.5", "qwen3", "qwen3.5"])
def test_padding_gives_finite_gradients(shape):
    """Empty rows, empty windows and images that nothing shows: no division by nothing."""
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    prompts, *answers = grouped_case(shape)
    images = prompts.images
    empty = dataclasses.replace(
        prompts,
        images=dataclasses.replace(images, valid_BWS=np.zeros_like(images.valid_BWS)),
        length_M=np.array([0, 3, 9], np.int32),
    )
    loss, gradient = grouped_step(model.graph(shape), params, empty, *answers)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((loss, gradient)))


def test_prefill_and_decode_equal_plain(plain):
    shape, params, expected_NT, _ = plain
    prompts, token_NT, _ = grouped_case(shape)
    graph, group_R = model.graph(shape), np.array([2, 0, 1, 0])  # of a large group several rows
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
    np.testing.assert_allclose(logp_NT, np.asarray(expected_NT)[answer_N], atol=1e-5)


def test_answers_of_one_token_and_rows_that_are_not_equal(plain):
    shape, params, _, _ = plain
    prompts, token_NT, _ = grouped_case(shape)
    qwen = model.merge(model.graph(shape), params)
    hidden, single = (
        jax.jit(
            lambda params, x: model.merge(model.graph(shape), params).answer_hidden(prompts, x)
        )(params, x_NT)
        for x_NT in (token_NT, token_NT[:, :1])
    )
    np.testing.assert_allclose(single, hidden[:, :1], atol=1e-5)
    with pytest.raises(ValueError, match="5 answers do not make 3 equal rows"):
        qwen.answer_hidden(prompts, token_NT[:5])


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
    logits, features = run(shape, params, inputs.batch(examples(shape), shape.image_token_id))
    assert 1 < logits.std() < 4  # 0.2 x sqrt(128) = 2.26
    assert 1 < features.cell_BWCD.std() < 5
    assert all(0.1 < x.std() < 1 for x in features.deep_KBWCD)


@pytest.mark.parametrize("shape", [TINY, TINY3, TINY35], ids=["qwen2.5", "qwen3", "qwen3.5"])
def test_bfloat16_stays_close(shape):
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    prompts = inputs.batch(examples(shape), shape.image_token_id)
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


@pytest.mark.parametrize("name", ["tied", "qwen3vl", "qwen3vl_untied", "qwen3_5", "qwen3_5_untied"])
def test_gradients_equal_those_of_transformers(name):
    """Of the mean log-prob of each prompt's own tokens, two chunks, for every tensor of the checkpoint."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    shape = VARIANTS[name]
    tensors = oracle.random_tensors(shape, 1)
    batch = examples(shape, 1, num_text=40)[:1]
    prompts, token_P = inputs.batch(batch, shape.image_token_id), np.array(batch[0].ids)

    @jax.jit
    @jax.grad
    def ours(params):
        qwen = model.merge(model.graph(shape), params)
        logp_PV = jax.nn.log_softmax(qwen.logits(qwen.hidden(prompts))[0])
        return jnp.mean(logp_PV[jnp.arange(len(token_P) - 1), token_P[1:]])

    gradient = dict(weights.from_params(shape, ours(weights.to_params(shape, tensors))))
    reference = oracle.build(shape, tensors)
    ids = torch.tensor(token_P)[None]
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
