"""What both towers are made of: linear layers, norm, MLP, rotary positions, and where activations live.

Numerics follow transformers: norms and rotations are computed in float32 and cast back, weights are
rounded to the compute dtype where they are used (`arrays.rounded`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vade_jax import arrays
from vade_jax.models.qwen import blockwise
from vade_jax.types import Array

T = TypeVar("T")
# Std of random embeddings and image features. At 0.02, the published initialisation, the first layers
# drown what a token is, and a small model from scratch takes hundreds of steps until it starts to look.
EMBEDDING_STD = 0.2
VISION_THETA = 10000.0  # fixed in every published checkpoint


# ------------------------------------------------------------------------------ placement
class Placement(Protocol):
    """Says over which devices an activation is split.

    Weights have their shardings from outside. Left alone, the compiler derives those of the activations
    from the weights', and sometimes splits the width and gathers all rows on every device. The model
    names the split only where that was seen to happen: after each layer and around lookups.

    A placement is compared by value: it is part of the static description of a model, and two equal
    ones must not compile twice. `trainer.mesh.Place` is the implementation on a mesh.
    """

    ways: int  # how many devices share the rows
    platform: str  # of these devices: "cpu", "tpu", "gpu" ("cuda" where there is only a compiler)

    def rows(self, x: jax.Array, /) -> jax.Array:
        """Splits the first axis: every device has its own prompts, answers or images."""
        ...

    def width(self, x_D: jax.Array, /) -> jax.Array:
        """Splits the last axis instead, so that rows can be looked up without a copy of all."""
        ...

    def whole(self, x: jax.Array, /) -> jax.Array:
        """Gives every device all of `x`, which is small."""
        ...

    def looked_up(self, x_D: jax.Array, /) -> jax.Array:
        """Splits the last axis as the weights' is, and the first over the axes that are left."""
        ...

    def head(self, x_DV: jax.Array, /) -> jax.Array:
        """Splits a gradient of the head as the head is."""
        ...

    def apart(
        self, function: Callable[..., jax.Array], *heads_NTHK: jax.Array, split_heads: bool = True
    ) -> jax.Array:
        """Calls `function` on each device's rows and heads: a kernel that the compiler cannot split.

        Without `split_heads` on its rows alone, as where the weights of the heads are not split either.
        """
        ...

    def weights(self, module: T, name: str, dtype: Any) -> T:
        """Brings a module's matrices to where they are used, in the compute dtype.

        Used once a layer and pass, before its matrices are: several uses then share one exchange, in
        either direction.

        Args:
            module: with the parameters of one layer, or without layers.
            name: its path in the model, such as "text/layers".
            dtype: of the computation.
        """
        ...


class Anywhere:
    """Leaves it to the compiler: for one device, or code that knows of no mesh."""

    ways = 1
    platform = ""  # unknown: only what every platform can do is used

    def rows(self, x: jax.Array) -> jax.Array:
        """Returns `x`."""
        return x

    width = whole = looked_up = head = rows

    def apart(self, function, *heads_NTHK, split_heads=True):
        """Returns `function` of all."""
        return function(*heads_NTHK)

    def weights(self, module, name, dtype):
        """Returns `module`."""
        return module


ANYWHERE = Anywhere()


def take(x: jax.Array, index: jax.Array, place: Placement) -> jax.Array:
    """Returns `x[index]` with the rows split as `place` says.

    Any device may want any row. The devices therefore exchange columns first (an all-to-all), look
    their part of the width up in all rows, and exchange back; no device ever holds the whole of `x`.
    Each placement also tells the backward pass to come back by the same way. Every one is named, the
    index's too: where the compiler has to find one, on a mesh with `tensor` it replicates `x`.
    """
    x = place.width(place.rows(x))
    taken = jnp.take(x, place.whole(index), axis=0, mode="clip")
    return place.rows(place.width(taken))


def checkpoint(step: Callable) -> Callable:
    """Returns `step` rematerialised: for the backward it keeps its inputs and attention's outputs.

    Those outputs are kept because attention is what costs most to compute twice, and because its own
    backward (blockwise.py, splash attention on TPUs) needs them in any case. cuDNN's gives them no
    name: it runs again.
    """
    policy = jax.checkpoint_policies.save_only_these_names(blockwise.SAVED)
    return jax.checkpoint(step, policy=policy)


# ------------------------------------------------------------------------------ layers
class Make(NamedTuple):
    """What every module is made with, from the model down to the last matrix."""

    rngs: nnx.Rngs  # where random parameters come from
    dtype: Any  # of the computation
    param_dtype: Any

    def stacked(self, module: Callable[["Make"], nnx.Module], count: int) -> nnx.Module:
        """Returns `count` modules as one, each parameter with a leading axis L, for a scan."""
        return nnx.vmap(lambda rngs: module(self._replace(rngs=rngs)))(self.rngs.split(count))


@jax.custom_vjp
def matmul(x_D: jax.Array, kernel_DF: jax.Array) -> jax.Array:
    """Returns x @ kernel; the gradient of the kernel is computed as x^T dy.

    JAX computes it as (dy^T x)^T. A CPU copies an operand that it transposes, and in an MLP dy is the
    larger one; elsewhere both are the same.
    """
    return x_D @ kernel_DF


def _matmul_forward(x_D, kernel_DF):
    return x_D @ kernel_DF, (x_D, kernel_DF)


def _matmul_backward(residuals, dy_F):
    x_D, kernel_DF = residuals
    flat = lambda a: a.reshape(-1, a.shape[-1])
    dkernel = jnp.matmul(flat(x_D).T, flat(dy_F))
    return dy_F @ kernel_DF.T, dkernel


matmul.defvjp(_matmul_forward, _matmul_backward)


class RMSNorm(nnx.Module):
    """x / rms(x) * scale, where the division is in float32 and the product in the compute dtype."""

    def __init__(self, width: int, eps: float, *, param_dtype):
        self.eps = eps
        self.scale = nnx.Param(jnp.ones(width, param_dtype))

    def __call__(self, x_D: jax.Array) -> jax.Array:
        x = x_D.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps)
        return x.astype(x_D.dtype) * arrays.rounded(self.scale[...], x_D.dtype)


class Linear(nnx.Module):
    """x @ kernel + bias in the compute dtype.

    Args:
        width: of the input.
        out_width: of the output.
        make: where the random kernel comes from, and the types.
        bias: whether there is one; it starts at 0.
        scale: times 1 / sqrt(width), the std of the random kernel.
    """

    def __init__(
        self, width: int, out_width: int, make: Make, *, bias: bool = True, scale: float = 1.0
    ):
        self.dtype = make.dtype
        self.lora = None  # or what `lora.attach` hangs in
        kernel = jax.random.normal(make.rngs.params(), (width, out_width), make.param_dtype)
        self.kernel = nnx.Param(kernel * (scale * width**-0.5))
        self.bias = nnx.Param(jnp.zeros(out_width, make.param_dtype)) if bias else None

    def __call__(self, x_D: jax.Array) -> jax.Array:
        out = matmul(x_D, arrays.rounded(self.kernel[...], self.dtype))
        out = out if self.lora is None else out + self.lora(x_D)
        return out if self.bias is None else out + arrays.rounded(self.bias[...], self.dtype)


class GatedMLP(nnx.Module):
    """down(silu(gate(x)) * up(x)); `scale` is that of `down`, which writes to the residual stream."""

    def __init__(self, width: int, mlp_width: int, make: Make, *, bias: bool, scale: float):
        self.gate = Linear(width, mlp_width, make, bias=bias)
        self.up = Linear(width, mlp_width, make, bias=bias)
        self.down = Linear(mlp_width, width, make, bias=bias, scale=scale)

    def __call__(self, x_D: jax.Array) -> jax.Array:
        return self.down(jax.nn.silu(self.gate(x_D)) * self.up(x_D))


# ------------------------------------------------------------------------------ rotary positions
class Rotation(NamedTuple):
    """Cosine and sine of every frequency's angle, `[..., K / 2]`, the same for every head."""

    cos: jax.Array
    sin: jax.Array


def text_rotation(position_X: Array, section: tuple[int, int, int], theta: float) -> Rotation:
    """Returns the rotation of tokens, M-RoPE (Qwen2-VL, arXiv:2409.12191, section 2.1).

    Args:
        position_X: positions on the three axes, `[..., 3]`. They are equal for text; in an image, t is
            that of its start, h and w count rows and columns.
        section: how many frequencies turn with t, then with h, then with w: the axes lie side by side
            here, where Qwen3-VL interleaves them.
        theta: the base of the frequencies.
    """
    axis = np.repeat(np.arange(3), section)
    position = jnp.asarray(position_X)[..., axis].astype(jnp.float32)
    return _rotation(position * _frequencies(2 * sum(section), theta))


def vision_rotation(row: Array, col: Array, head_width: int) -> Rotation:
    """Returns the rotation of patches: half of the frequencies turn with each axis."""
    frequency = _frequencies(head_width // 2, VISION_THETA)
    angles = [jnp.asarray(x, jnp.float32)[..., None] * frequency for x in (row, col)]
    return _rotation(jnp.concatenate(angles, -1))


def rotate(x_HK: jax.Array, rotation: Rotation) -> jax.Array:
    """Returns `[..., H, K]` rotated; frequency i turns the pair (i, i + K/2), not (2i, 2i + 1)."""
    first, second = jnp.split(x_HK.astype(jnp.float32), 2, -1)
    cos, sin = rotation.cos[..., None, :], rotation.sin[..., None, :]
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, -1).astype(x_HK.dtype)


def _rotation(angle: jax.Array) -> Rotation:
    # Never in bfloat16: it cannot tell position 256 from 257.
    return Rotation(cos=jnp.cos(angle), sin=jnp.sin(angle))


def _frequencies(width: int, theta: float) -> np.ndarray:
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    return (1.0 / np.float32(theta) ** exponent).astype(np.float32)
