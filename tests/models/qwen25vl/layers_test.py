"""Layers against plain NumPy and plain autodiff."""

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.models.qwen25vl import layers


def test_matmul_has_the_gradient_of_a_product():
    x = jax.random.normal(jax.random.key(0), (2, 3, 4))
    kernel = jax.random.normal(jax.random.key(1), (4, 5))
    loss = lambda f: lambda x, k: jnp.sum(jnp.sin(f(x, k)))
    got = jax.grad(loss(layers.matmul), (0, 1))(x, kernel)
    want = jax.grad(loss(jnp.matmul), (0, 1))(x, kernel)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)


def test_norm_is_computed_in_float32_and_cast_before_the_scale():
    norm = layers.RMSNorm(4, 1e-6, param_dtype=jnp.float32)
    norm.scale[...] = jnp.array([1.0, 2.0, 3.0, 4.0])
    x = np.array([300.0, -400.0, 0.0, 0.0])
    # rms = sqrt((9e4 + 16e4) / 4) = 250
    np.testing.assert_allclose(
        norm(jnp.asarray(x, jnp.float32)), [1.2, -3.2, 0, 0], atol=1e-6
    )
    got = norm(jnp.asarray(x, jnp.bfloat16))
    want = jnp.asarray(x / 250, jnp.bfloat16) * norm.scale[...].astype(jnp.bfloat16)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got, want)
