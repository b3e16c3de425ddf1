"""Layers and rotations against plain NumPy and plain autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.models.qwen import layers


def test_matmul_has_the_gradient_of_a_product():
    x = jax.random.normal(jax.random.key(0), (2, 3, 4))
    kernel = jax.random.normal(jax.random.key(1), (4, 5))
    loss = lambda f: lambda x, k: jnp.sum(jnp.sin(f(x, k)))
    got = jax.grad(loss(layers.matmul), (0, 1))(x, kernel)
    want = jax.grad(loss(jnp.matmul), (0, 1))(x, kernel)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)


@pytest.mark.parametrize(
    ("function", "plain"), [(layers.times, jnp.multiply), (layers.plus, jnp.add)]
)
def test_scales_and_biases_have_gradients_summed_in_float32(function, plain):
    """A CPU makes float32 of every sum, so the program is read, too: no sum is of bfloat16."""
    rng = np.random.default_rng(0)
    x_NTD, w_D, dy_NTD = (
        jnp.asarray(rng.normal(size=size), jnp.bfloat16) for size in ((8, 64, 6), (6,), (8, 64, 6))
    )
    out, back = jax.vjp(function, x_NTD, w_D)
    expected, wanted = jax.vjp(plain, *(a.astype(jnp.float32) for a in (x_NTD, w_D)))
    np.testing.assert_allclose(out, expected, rtol=1e-2, atol=1e-2)
    for found, exact in zip(back(dy_NTD), wanted(dy_NTD.astype(jnp.float32)), strict=True):
        assert found.dtype == jnp.bfloat16
        np.testing.assert_allclose(found, exact, rtol=4e-3)  # rounded once
    text = str(jax.make_jaxpr(lambda dy: back(dy))(dy_NTD))
    sums = [line for line in text.splitlines() if "reduce_sum" in line]
    assert sums and all(":f32" in line.partition("=")[0] for line in sums)


@pytest.mark.parametrize(("remat", "kept"), [(True, [(2, 3)]), (False, [(2, 3), (2, 4)])])
def test_a_step_keeps_its_input_and_without_remat_its_products(remat, kept):
    kernel = jnp.ones((3, 4))
    step = layers.checkpoint(lambda x: jnp.sin(jnp.exp(jnp.sin(x)) @ kernel), remat=remat)
    backward = jax.vjp(step, jnp.ones((2, 3)))[1]
    sizes = sorted(x.shape for x in jax.tree.leaves(backward) if x.shape != kernel.shape)
    assert sizes == kept


def test_norm_is_computed_in_float32_and_cast_before_the_scale():
    norm = layers.RMSNorm(4, 1e-6, param_dtype=jnp.float32)
    norm.scale[...] = jnp.array([1.0, 2.0, 3.0, 4.0])
    x = np.array([300.0, -400.0, 0.0, 0.0])
    # rms = sqrt((9e4 + 16e4) / 4) = 250
    np.testing.assert_allclose(norm(jnp.asarray(x, jnp.float32)), [1.2, -3.2, 0, 0], atol=1e-6)
    got = norm(jnp.asarray(x, jnp.bfloat16))
    want = jnp.asarray(x / 250, jnp.bfloat16) * norm.scale[...].astype(jnp.bfloat16)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got, want)


def test_text_and_vision_angles_by_hand():
    text = layers.text_rotation(np.array([[2, 3, 5]]), (0, 1, 1, 2), 100.0)
    # Four frequencies 100^(-0/8), 100^(-2/8), ...: the first turns with t, two with h, one with w.
    angle = np.array([2, 3 * 100**-0.25, 3 * 100**-0.5, 5 * 100**-0.75])
    np.testing.assert_allclose(text.cos[0], np.tile(np.cos(angle), 2), atol=1e-6)
    signed = np.concatenate([-np.sin(angle), np.sin(angle)])
    np.testing.assert_allclose(text.sin[0], signed, atol=1e-6)
    vision = layers.vision_rotation(np.array([3]), np.array([7]), 8)
    angle = np.array([3, 3 * 10000**-0.5, 7, 7 * 10000**-0.5])
    np.testing.assert_allclose(vision.cos[0], np.tile(np.cos(angle), 2), atol=1e-6)


def test_rotation_pairs_halves():
    rotation = layers.Rotation(cos=np.array([0.0, 1, 0, 1]), sin=np.array([-1.0, 0, 1, 0]))
    # A quarter turn of (x0, x2), none of (x1, x3).
    got = layers.rotate(np.array([[1.0, 2.0, 3.0, 4.0]], np.float32), rotation)
    np.testing.assert_allclose(got, [[-3, 2, 1, 4]])
