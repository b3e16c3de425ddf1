"""Merged attention against one softmax over everything a query may see."""

import functools
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.models.qwen import attention, blockwise, layers

R, G, U, P, J, Q, K = 3, 2, 5, 7, 2, 3, 8
LENGTH_R = np.array([7, 3, 1], np.int32)


def arrays(seed=0):
    """Queries, prompt keys and values, own keys and values."""
    keys = jax.random.split(jax.random.key(seed), 5)
    shapes = [(R * G, U, J * Q, K)] + [(R, J, P, K)] * 2 + [(R * G, U, J, K)] * 2
    return [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]


def merged(q, key, value, own_key, own_value, place=layers.ANYWHERE):
    shared = attention.prompt_keys(key, value, LENGTH_R)
    return attention.grouped(q, [shared], own_key, own_value, G, place=place)


def dense(q, key, value, own_key, own_value):
    """One [U, P + U] mask and softmax an answer: keys copied to every answer and head."""
    copy = lambda x: jnp.repeat(jnp.repeat(x, Q, 1), G, 0)
    own = lambda x: jnp.repeat(jnp.swapaxes(x, 1, 2), Q, 1)
    k = jnp.concatenate([copy(key), own(own_key)], 2)
    v = jnp.concatenate([copy(value), own(own_value)], 2)
    prompt_N1P = (jnp.arange(P) < jnp.repeat(LENGTH_R, G)[:, None])[:, None]
    causal_1UU = jnp.tril(jnp.ones((U, U), bool))[None]
    mask = [jnp.broadcast_to(m, (R * G, U, m.shape[-1])) for m in (prompt_N1P, causal_1UU)]
    score = jnp.einsum("nuhk,nhsk->nhus", q, k) * K**-0.5
    score = jnp.where(jnp.concatenate(mask, -1)[:, None], score, -jnp.inf)
    return jnp.einsum("nhus,nhsk->nuhk", jax.nn.softmax(score), v)


def with_gradients(f):
    """Returns f of `arrays` and the gradients of a weighted sum of it."""
    values = arrays()
    weight = jax.random.normal(jax.random.key(9), values[0].shape)

    def loss(*values):
        out = f(*values)
        return jnp.sum(out * weight), out

    with jax.default_matmul_precision("highest"):
        gradient, out = jax.jit(jax.grad(loss, range(5), has_aux=True))(*values)
    return out, gradient


@functools.cache
def dense_with_gradients():
    return with_gradients(dense)


@pytest.mark.parametrize(
    ("min_block", "max_scores"), [(128, 2**20), (2, 2**20), (3, 900), (4, 900), (5, 1)]
)
def test_grouped_equals_dense(monkeypatch, min_block, max_scores):
    """One block, two or three, and blocks of two queries or one at a time."""
    monkeypatch.setattr(blockwise, "MIN_BLOCK", min_block)
    monkeypatch.setattr(blockwise, "MAX_SCORES", max_scores)
    found, expected = with_gradients(merged), dense_with_gradients()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), found, expected)


@pytest.mark.parametrize("max_scores", [720, 300])
def test_rows_one_after_another(monkeypatch, max_scores):
    """On a CPU a row has 720 scores: one row at a time, then in two blocks of queries."""
    monkeypatch.setattr(blockwise, "CPU_SCORES", max_scores)
    cpu = types.SimpleNamespace(ways=1, platform="cpu")
    rows = functools.partial(merged, place=cpu)
    assert "while" in jax.jit(rows).lower(*arrays()).as_text()
    found, expected = with_gradients(rows), dense_with_gradients()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), found, expected)


def test_extreme_scores_neither_overflow_nor_vanish():
    q, key, value, own_key, own_value = arrays()
    values = [300 * q, 30 * key, value, -30 * own_key, own_value]
    loss = lambda *x: (jnp.sum((out := merged(*x)) ** 2), out)
    (_, out), gradient = jax.jit(jax.value_and_grad(loss, range(5), has_aux=True))(*values)
    assert np.isfinite(out).all() and all(np.isfinite(g).all() for g in gradient)
    np.testing.assert_allclose(out, jax.jit(dense)(*values), atol=1e-4)


@pytest.mark.parametrize("max_scores", [2**20, 150])
def test_unmasked_in_blocks(monkeypatch, max_scores):
    """Queries four at a time, then two: the same as one softmax over the valid slots."""
    monkeypatch.setattr(blockwise, "MAX_SCORES", max_scores)
    monkeypatch.setattr(blockwise, "MIN_BLOCK", 1)
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 10, 3, K))
    valid_ZS = np.arange(10) % 3 != np.array([[0], [1]])

    def plain(q, k, v):
        score = jnp.einsum("zuhk,zshk->zhus", q, k) * K**-0.5
        score = jnp.where(valid_ZS[:, None, None], score, -jnp.inf)
        return jnp.einsum("zhus,zshk->zuhk", jax.nn.softmax(score), v)

    blocks = lambda q, k, v: attention.unmasked(q, k, v, valid_ZS)[0]
    both = [
        jax.value_and_grad(
            lambda *x, f=f: (lambda out: (jnp.sum(out**2), out))(f(*x)), range(3), has_aux=True
        )
        for f in (blocks, plain)
    ]
    found, want = (jax.jit(f)(q, k, v) for f in both)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, want)


@pytest.mark.parametrize(
    ("platform", "dtype", "cudnn"),
    [
        ("gpu", jnp.bfloat16, True),
        ("gpu", jnp.float32, False),
        ("cpu", jnp.bfloat16, False),
    ],
)
def test_the_devices_of_the_mesh_choose_the_kernel(monkeypatch, platform, dtype, cudnn):
    """A GPU has cuDNN in bfloat16, for rows of at least one key: an empty one is padding."""
    asked = []

    def kernel(q, k, v, **options):
        asked.append(options)
        return q

    monkeypatch.setattr(jax.nn, "dot_product_attention", kernel)
    place = types.SimpleNamespace(platform=platform, ways=1)
    q, _, _, k, v = (x.astype(dtype) for x in arrays())
    attention.causal(q, k, v, np.array([0, 5, 1, 2, 3, 4]), place=place)
    assert len(asked) == cudnn
    if cudnn:
        assert asked[0]["is_causal"] and asked[0]["implementation"] == "cudnn"
        assert asked[0]["key_value_seq_lengths"].tolist() == [1, 5, 1, 2, 3, 4]


def test_the_tpu_kernel_is_causal_attention_values_and_gradients(monkeypatch):
    """Interpreted: two blocks of queries, two heads to a key, rows of their own."""
    monkeypatch.setattr(attention, "MAX_SPLASH_BLOCK", 128)
    keys = jax.random.split(jax.random.key(5), 4)
    q, k, v, weight = (
        jax.random.normal(key, (2, 256, heads, 32))
        for key, heads in zip(keys, (4, 2, 2, 4), strict=True)
    )

    def run(attend):
        @jax.jit
        def both(weight):
            out, gradients = jax.vjp(attend, q, k, v)
            return out, gradients(weight)

        return both(weight)

    found = run(functools.partial(attention.splash, interpret=True))
    plain = run(lambda q, k, v: attention.grouped(q, [], k, v, group_size=1))
    chex.assert_trees_all_close(found, plain, atol=2e-4, rtol=2e-4)


def test_the_tpu_kernel_is_a_pictures_attention_values_and_gradients(monkeypatch):
    """Interpreted: the empty slots lie between the others, and nobody is moved by what they get."""
    monkeypatch.setattr(attention, "MAX_SPLASH_BLOCK", 128)
    keys = jax.random.split(jax.random.key(6), 4)
    q, k, v, weight = (jax.random.normal(key, (2, 256, 2, 32)) for key in keys)
    valid_ZS = np.arange(256) % 64 < np.array([[40], [64]])
    valid_ZS11 = valid_ZS[:, :, None, None]

    def run(attend):
        @jax.jit
        def both(weight):
            out, gradients = jax.vjp(attend, q, k, v)
            return out * valid_ZS11, gradients(weight)

        return both(weight * valid_ZS11)

    found = run(lambda q, k, v: attention.splash(q, k, v, valid_ZS11, interpret=True))
    plain = run(lambda q, k, v: attention.unmasked(q, k, v, valid_ZS)[0])
    chex.assert_trees_all_close(found, plain, atol=2e-4, rtol=2e-4)
