"""Logits by hand, and chunked log-probabilities against a loop in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.models import logprobs
from vade_jax.models.qwen import layers
from vade_jax.trainer import mesh


def draw(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def oracle(hidden_NTD, head_DV, token_NT, temperature, banned):
    """Float64, one token at a time."""
    out = np.zeros(token_NT.shape)
    for n, t in np.ndindex(*token_NT.shape):
        logits = hidden_NTD[n, t].astype(np.float64) @ head_DV.astype(np.float64)
        logits = np.delete(logits / temperature, banned)
        kept = token_NT[n, t] - sum(b < token_NT[n, t] for b in banned)
        out[n, t] = logits[kept] - np.log(np.sum(np.exp(logits)))
    return out


# ------------------------------------------------------------------------------ logits
HIDDEN_ND = jnp.array([[1.0, 2], [0, -1]])
HEAD_DV = jnp.array([[1.0, 0, 3], [0, 1, 1]])


def test_logits_by_hand():
    logits_NV = logprobs.logits(HIDDEN_ND, HEAD_DV)
    assert logits_NV.tolist() == [[1, 2, 5], [0, -1, -1]]
    logits_NV = logprobs.logits(HIDDEN_ND, HEAD_DV, banned=(2,))
    assert logits_NV.tolist() == [[1, 2, -np.inf], [0, -1, -np.inf]]


def test_a_banned_token_takes_no_gradient():
    def logp(head_DV):
        logits_NV = logprobs.logits(HIDDEN_ND, head_DV, banned=(2,))
        return jax.nn.log_softmax(logits_NV)[:, 0].sum()

    gradient_DV = jax.jit(jax.grad(logp))(HEAD_DV)
    assert np.isfinite(gradient_DV).all() and not gradient_DV[:, 2].any()
    assert gradient_DV[:, :2].all()


def test_bfloat16_products_are_summed_in_float32():
    """256 + 1 is no bfloat16."""
    hidden_ND = jnp.array([[16.0, 1]], jnp.bfloat16)
    logits_NV = logprobs.logits(hidden_ND, hidden_ND.T)
    assert logits_NV.dtype == jnp.float32 and logits_NV.tolist() == [[257]]


# ------------------------------------------------------------------------------ chunks
@pytest.mark.parametrize(("chunk", "temperature"), [(1, 1.0), (4, 0.6), (7, 1.0), (64, 0.6)])
def test_equals_a_float64_loop_for_any_chunk(chunk, temperature):
    hidden, head = draw((3, 5, 8)), draw((8, 20), 1)
    token = np.random.default_rng(2).integers(0, 17, (3, 5))
    logp = logprobs.selected(
        hidden, head, token, temperature=temperature, banned=(17, 19), chunk=chunk
    ).logp_NT
    expected = oracle(hidden, head, token, temperature, [17, 19])
    np.testing.assert_allclose(logp, expected, atol=2e-6)


@pytest.mark.parametrize(("chunk", "temperature"), [(4, 0.6), (64, 1.0)])
def test_entropies_equal_a_float64_loop(chunk, temperature):
    hidden, head, banned = draw((3, 5, 8)), draw((8, 20), 1), (17, 19)
    found = logprobs.selected(
        *(hidden, head, np.zeros((3, 5), int)),
        temperature=temperature,
        banned=banned,
        chunk=chunk,
    ).entropy_NT
    for n, t in np.ndindex(3, 5):
        logits = np.delete(hidden[n, t].astype(np.float64) @ head / temperature, banned)
        p = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(found[n, t], -(p * np.log(p)).sum(), atol=2e-6)


def test_gradients_do_not_depend_on_the_chunk():
    hidden, head = draw((2, 6, 8)), draw((8, 20), 1)
    token = np.random.default_rng(2).integers(0, 20, (2, 6))
    weight = draw((2, 6), 3)

    def loss(hidden, head, chunk):
        return jnp.sum(weight * logprobs.selected(hidden, head, token, chunk=chunk).logp_NT)

    gradient = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    found = (gradient(hidden, head, chunk) for chunk in (5, 100))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_heads_gradient_is_summed_in_float32():
    """256 chunks of one token: a bfloat16 sum would stop growing at 256 times a step."""
    N, T, D, V = 2, 128, 8, 16
    hidden = np.broadcast_to(draw((1, 1, D)).astype(jnp.bfloat16), (N, T, D))
    head, token = draw((D, V), 1), np.zeros((N, T), np.int32)
    loss = lambda head, chunk: jnp.sum(logprobs.selected(hidden, head, token, chunk=chunk).logp_NT)
    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    one, other = (gradient(head, chunk) for chunk in (1, 10**6))
    assert one.dtype == jnp.float32
    np.testing.assert_allclose(one, other, rtol=0.01, atol=0.01 * np.abs(other).max())


@pytest.mark.eight_devices
@pytest.mark.parametrize(
    ("chunk", "axes"), [(3, (2, 4, 1)), (1000, (2, 4, 1)), (1000, (1, 4, 2)), (1000, (2, 2, 2))]
)
def test_answers_on_eight_devices(chunk, axes):
    """Each device cuts its own answers: values and gradients are those of one."""
    hidden, head = draw((16, 5, 8)), draw((8, 24), 1)
    token = np.random.default_rng(2).integers(0, 24, (16, 5))
    weight = draw((16, 5), 3)

    def loss(hidden, head, place):
        tokens = logprobs.selected(hidden, head, token, chunk=chunk, place=place)
        return jnp.sum(weight * tokens.logp_NT)

    place = mesh.Place(mesh.make(*axes))
    run = lambda place: jax.jit(jax.value_and_grad(loss, (0, 1)), static_argnums=2)(
        hidden, head, place
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
        run(place),
        run(layers.ANYWHERE),
    )


def test_the_full_logits_of_a_published_vocabulary_are_never_held():
    """2,048 tokens x 151,936 rows in float32 are 1.24 GB; a chunk's are 39 MB."""
    N, T, D, V, chunk = 8, 256, 64, 151936, 64
    shapes = [
        jax.ShapeDtypeStruct((N, T, D), jnp.float32),
        jax.ShapeDtypeStruct((D, V), jnp.float32),
        jax.ShapeDtypeStruct((N, T), jnp.int32),
    ]

    def loss(hidden, head, token):
        return jnp.sum(logprobs.selected(hidden, head, token, chunk=chunk).logp_NT)

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(*shapes).compile()
    temporary = compiled.memory_analysis().temp_size_in_bytes
    head_bytes, chunk_bytes, full_bytes = 4 * D * V, 4 * chunk * V, 4 * N * T * V
    assert temporary < 6 * chunk_bytes + 4 * head_bytes < full_bytes / 2
