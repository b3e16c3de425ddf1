"""The few layers that both towers are made of, and where their activations live."""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
from flax import nnx

from vade_jax.models.qwen25vl import blockwise

# Of random embeddings and image features. At 0.02, the published initialisation, the first layers
# drown what a token is, and a small model from scratch does not learn to look for hundreds of steps.
EMBEDDING_STD = 0.2


class Placement(Protocol):
    """Says on which devices an activation lives; compared by value, so that nothing recompiles.

    `ways` is how many devices share the rows.
    """

    ways: int

    def rows(self, x: jax.Array) -> jax.Array:
        """Splits the first axis: every device has its own prompts, answers or images."""

    def width(self, x_D: jax.Array) -> jax.Array:
        """Splits the last axis instead, so that rows can be looked up without a copy of all."""

    def looked_up(self, x_D: jax.Array) -> jax.Array:
        """Splits the last axis as the weights' is and the first over what is left."""


class Anywhere:
    """Leaves it to the compiler: one device, or code that knows of no mesh."""

    ways = 1

    def rows(self, x: jax.Array) -> jax.Array:
        """Returns `x`."""
        return x

    width = looked_up = rows


ANYWHERE = Anywhere()


def checkpoint(step: Callable) -> Callable:
    """Returns `step` that keeps only its inputs and attention's outputs for the backward."""
    policy = jax.checkpoint_policies.save_only_these_names(blockwise.SAVED)
    return jax.checkpoint(step, policy=policy)


@jax.custom_vjp
def matmul(x_D: jax.Array, kernel_DF: jax.Array) -> jax.Array:
    """Returns x @ kernel; its gradient is made as x^T dy.

    JAX makes it as (dy^T x)^T, and a CPU copies what it transposes: dy is the larger one in an MLP.
    """
    return x_D @ kernel_DF


def _matmul_backward(residuals, dy_F):
    x_D, kernel_DF = residuals
    flat = lambda a: a.reshape(-1, a.shape[-1])
    dkernel = jnp.matmul(flat(x_D).T, flat(dy_F))
    return dy_F @ kernel_DF.T, dkernel


matmul.defvjp(lambda x, kernel: (x @ kernel, (x, kernel)), _matmul_backward)


def take(x: jax.Array, index: jax.Array, place: Placement) -> jax.Array:
    """Returns `x[index]`, rows in their place: devices exchange columns, none holds all of `x`."""
    x = place.width(place.rows(x))  # the gradient comes back by the same way
    return place.rows(jnp.take(x, index, axis=0, mode="clip"))


class RMSNorm(nnx.Module):
    """x / rms(x) * scale: the body in float32, cast back before the scale, as HF does."""

    def __init__(self, width: int, eps: float, *, param_dtype):
        self.eps = eps
        self.scale = nnx.Param(jnp.ones(width, param_dtype))

    def __call__(self, x_D: jax.Array) -> jax.Array:
        x = x_D.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps)
        return x.astype(x_D.dtype) * self.scale[...].astype(x_D.dtype)


class Linear(nnx.Module):
    """x @ kernel + bias, cast to the compute dtype at use; kernel starts normal / sqrt(fan in)."""

    def __init__(
        self,
        width: int,
        out_width: int,
        *,
        bias: bool = True,
        scale: float = 1.0,
        rngs: nnx.Rngs,
        dtype,
        param_dtype,
    ):
        self.dtype = dtype
        kernel = jax.random.normal(rngs.params(), (width, out_width), param_dtype)
        self.kernel = nnx.Param(kernel * (scale * width**-0.5))
        self.bias = nnx.Param(jnp.zeros(out_width, param_dtype)) if bias else None

    def __call__(self, x_D: jax.Array) -> jax.Array:
        out = matmul(x_D, self.kernel[...].astype(self.dtype))
        return out if self.bias is None else out + self.bias[...].astype(self.dtype)


class GatedMLP(nnx.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(
        self,
        width: int,
        mlp_width: int,
        *,
        bias: bool,
        scale: float,
        rngs: nnx.Rngs,
        dtype,
        param_dtype,
    ):
        shared = {
            "bias": bias,
            "rngs": rngs,
            "dtype": dtype,
            "param_dtype": param_dtype,
        }
        self.gate = Linear(width, mlp_width, **shared)
        self.up = Linear(width, mlp_width, **shared)
        self.down = Linear(mlp_width, width, scale=scale, **shared)

    def __call__(self, x_D: jax.Array) -> jax.Array:
        return self.down(jax.nn.silu(self.gate(x_D)) * self.up(x_D))
