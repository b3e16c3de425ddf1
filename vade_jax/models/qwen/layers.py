"""Parts of both towers: linear layers, norm, MLP and rotary positions; and the placement of activations.

Numerics follow transformers: norms and rotations are computed in float32 and cast back, and weights are
rounded to the compute dtype where they are used (`arrays.rounded`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vade_jax import arrays
from vade_jax.models.qwen import blockwise, config
from vade_jax.types import Array

T = TypeVar("T")
# Standard deviation of random embeddings, and of the kernel that makes the image features. With 0.02, the
# published value, the outputs of the first layers dominate the embedding, and a small model that is trained
# from scratch ignores the image for hundreds of steps.
EMBEDDING_STD = 0.2


# ------------------------------------------------------------------------------ placement
class Placement:
    """How activations are split over devices. This one changes nothing: it is for one device.

    The shardings of weights are decided outside the model. By default the compiler derives those of
    activations from them, and sometimes it splits the width and gathers all rows on every device. The model
    sets the sharding only where that was observed: after each layer and around lookups.

    Placements compare by value: they are part of a model's static description, and two equal ones must not
    compile twice. `trainer.mesh.Place` is the one for a mesh.
    """

    @property
    def ways(self) -> int:
        """The number of devices that share the rows."""
        return 1

    @property
    def platform(self) -> str:
        """The kind of devices: "cpu", "tpu", "gpu", or "cuda" of a compiler alone; "": no own kernels."""
        return ""

    def rows(self, x: jax.Array) -> jax.Array:
        """Splits the first axis, so that every device has its own prompts, answers or images."""
        return x

    def width(self, x_D: jax.Array) -> jax.Array:
        """Splits the last axis instead, so that a device can look up any row in its columns."""
        return x_D

    def replicated(self, x: jax.Array) -> jax.Array:
        """Copies `x`, which should be small, to every device."""
        return x

    def looked_up(self, x_D: jax.Array) -> jax.Array:
        """Splits the last axis like that of the weights, and the first axis over the other mesh axes."""
        return x_D

    def head(self, x_DV: jax.Array) -> jax.Array:
        """Splits a gradient of the head like the head itself."""
        return x_DV

    def apart(
        self, function: Callable[..., jax.Array], *heads_NTHK: jax.Array, split_heads: bool = True
    ) -> jax.Array:
        """Calls `function` on each device's rows and heads, for kernels that the compiler cannot split.

        With `split_heads` False, heads stay together: their weights are not split either.
        """
        return function(*heads_NTHK)

    def weights(self, module: T, name: str, dtype: Any) -> T:
        """Gathers a module's matrices on the devices that use them, in the compute dtype.

        It is called once per layer and pass, before the matrices are used. All uses then share one
        exchange between devices, in the forward and in the backward pass.

        Args:
            module: the parameters of one layer, or of a module that is not stacked.
            name: its path in the model, such as "text/layers".
            dtype: the compute dtype.
        """
        return module


ANYWHERE = Placement()


def take(x: jax.Array, index: jax.Array, place: Placement) -> jax.Array:
    """Returns `x[index]` with its rows split over the devices.

    A device may need any row. So the devices first exchange columns (an all-to-all), then each looks up
    all rows in its part of the width, and then they exchange back. No device ever holds all of `x`. The
    backward pass reverses this, because the shardings also apply to the gradients. All shardings are set,
    even that of the index: if the compiler has to choose one on a mesh with `tensor`, it replicates `x`.
    """
    x = place.width(place.rows(x))
    taken = jnp.take(x, place.replicated(index), axis=0, mode="clip")
    return place.rows(place.width(taken))


def checkpoint(step: Callable, *, remat: bool) -> Callable:
    """Returns `step` with little to keep for the backward pass: its inputs and attention's outputs.

    Attention's outputs are kept because attention costs most to compute again, and because its own
    backward (in blockwise.py, or splash attention on TPUs) needs them anyway. cuDNN's attention does not
    name its outputs, so it is computed again. Without `remat`, the results of matrix products are kept too.
    To keep more would cost time: on a CPU up to a third of an update.
    """
    of = jax.checkpoint_policies
    keep, products = of.save_only_these_names(blockwise.SAVED), of.dots_with_no_batch_dims_saveable
    return jax.checkpoint(
        step, policy=keep if remat else of.save_from_both_policies(keep, products)
    )


# ------------------------------------------------------------------------------ layers
class Make(NamedTuple):
    """The arguments that every module passes on to its parts when it is made."""

    rngs: nnx.Rngs  # source of random parameters
    dtype: Any  # compute dtype
    param_dtype: Any

    def stacked(self, module: Callable[["Make"], nnx.Module], count: int) -> nnx.Module:
        """Returns `count` modules stacked into one for a scan: every parameter has a leading axis L."""
        return nnx.vmap(lambda rngs: module(self._replace(rngs=rngs)))(self.rngs.split(count))


@jax.custom_vjp
def matmul(x_D: jax.Array, kernel_DF: jax.Array) -> jax.Array:
    """Returns x @ kernel; the gradient of the kernel is computed as x^T dy.

    JAX would compute it as (dy^T x)^T. A CPU copies the operand that it transposes, and in an MLP dy is
    larger than x. On other platforms it makes no difference.
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


@jax.custom_vjp
def times(x_D: jax.Array, scale_D: jax.Array) -> jax.Array:
    """Returns x * scale; the gradient of the scale is summed over the rows in float32.

    JAX would sum it in the compute dtype, over as many terms as there are tokens. The CPU's
    compiler uses float32 there; those for Hopper GPUs and TPUs do not.
    """
    return x_D * scale_D


def _times_forward(x_D, scale_D):
    return x_D * scale_D, (x_D, scale_D)


def _times_backward(residuals, dy_D):
    x_D, scale_D = residuals
    return dy_D * scale_D, _over_rows(dy_D.astype(jnp.float32) * x_D, scale_D.dtype)


@jax.custom_vjp
def plus(x_D: jax.Array, bias_D: jax.Array) -> jax.Array:
    """Returns x + bias, both in one dtype; the gradient of the bias is summed in float32, as in `times`."""
    return x_D + bias_D


def _plus_forward(x_D, bias_D):
    return x_D + bias_D, None


def _plus_backward(_, dy_D):
    return dy_D, _over_rows(dy_D.astype(jnp.float32), dy_D.dtype)


def _over_rows(x_D, dtype):
    # Rounded explicitly: before a mere cast, the compiler for TPUs sums in bfloat16 again.
    return arrays.rounded(jnp.sum(x_D, axis=tuple(range(x_D.ndim - 1))), dtype)


times.defvjp(_times_forward, _times_backward)
plus.defvjp(_plus_forward, _plus_backward)


class RMSNorm(nnx.Module):
    """x / rms(x) * scale; the division is done in float32, the product in the compute dtype.

    With `around_one` it is x / rms(x) * (1 + scale), all in float32, as in Qwen3.5.
    """

    def __init__(self, width: int, eps: float, *, param_dtype, around_one: bool = False):
        self.eps, self.around_one = eps, around_one
        self.scale = nnx.Param((jnp.zeros if around_one else jnp.ones)(width, param_dtype))

    def __call__(self, x_D: jax.Array) -> jax.Array:
        x = x_D.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps)
        scale = arrays.rounded(self.scale[...], x_D.dtype)
        if self.around_one:
            return times(x, 1 + scale.astype(jnp.float32)).astype(x_D.dtype)
        return times(x.astype(x_D.dtype), scale)


class LayerNorm(nnx.Module):
    """(x - mean) / std * scale + bias, in float32."""

    def __init__(self, width: int, eps: float, *, param_dtype):
        self.eps = eps
        self.scale = nnx.Param(jnp.ones(width, param_dtype))
        self.bias = nnx.Param(jnp.zeros(width, param_dtype))

    def __call__(self, x_D: jax.Array) -> jax.Array:
        x = x_D.astype(jnp.float32)
        x = x - jnp.mean(x, -1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps)
        # As `arrays.rounded` and back, but in float32 throughout: at a cast, the compiler for TPUs would sum
        # their gradients in bfloat16.
        info = jnp.finfo(x_D.dtype)
        scale, bias = (
            jax.lax.reduce_precision(w[...].astype(x.dtype), info.nexp, info.nmant)
            for w in (self.scale, self.bias)
        )
        return (x * scale + bias).astype(x_D.dtype)


class Linear(nnx.Module):
    """x @ kernel + bias in the compute dtype.

    Args:
        width: of the input.
        out_width: of the output.
        make: random numbers and dtypes.
        bias: whether there is a bias; it starts at 0.
        scale: the random kernel has the standard deviation scale / sqrt(width).
    """

    def __init__(
        self, width: int, out_width: int, make: Make, *, bias: bool = True, scale: float = 1.0
    ):
        self.dtype = make.dtype
        self.lora = None  # or the adapter that `lora.attach` puts here
        kernel = jax.random.normal(make.rngs.params(), (width, out_width), make.param_dtype)
        self.kernel = nnx.Param(kernel * (scale * width**-0.5))
        self.bias = nnx.Param(jnp.zeros(out_width, make.param_dtype)) if bias else None

    def __call__(self, x_D: jax.Array) -> jax.Array:
        out = matmul(x_D, arrays.rounded(self.kernel[...], self.dtype))
        out = out if self.lora is None else out + self.lora(x_D)
        return out if self.bias is None else plus(out, arrays.rounded(self.bias[...], self.dtype))


class GatedMLP(nnx.Module):
    """down(silu(gate(x)) * up(x)); `scale` is for `down`, which writes to the residual stream."""

    def __init__(self, width: int, mlp_width: int, make: Make, *, bias: bool, scale: float):
        self.gate = Linear(width, mlp_width, make, bias=bias)
        self.up = Linear(width, mlp_width, make, bias=bias)
        self.down = Linear(mlp_width, width, make, bias=bias, scale=scale)
        self.gate_up = None  # or what `join` puts here, [D, 2, F]

    def __call__(self, x_D: jax.Array) -> jax.Array:
        if self.gate_up is None:
            gate, up = self.gate(x_D), self.up(x_D)
        else:
            gate, up = jnp.moveaxis(jnp.einsum("...d,dcf->...cf", x_D, self.gate_up), -2, 0)
        return self.down(jax.nn.silu(gate) * up)

    def join(self) -> None:
        """Joins gate and up into one matrix, unless they have biases or an adapter.

        The width F stays a separate axis, because the mesh axis `tensor` may split it.
        """
        both = (self.gate, self.up)
        if any(x.bias is not None or x.lora is not None for x in both):
            return
        self.gate_up = nnx.data(jnp.stack([x.kernel[...] for x in both], 1))
        del self.gate, self.up  # or they would stay in memory too


class MLP(nnx.Module):
    """down(gelu(up(x))), with biases.

    Args:
        sizes: widths of the input, between the two layers, and of the output.
        make: random numbers and dtypes.
        approximate: whether GELU is computed with tanh, as in the blocks of a tower, or exactly, as in its
            mergers.
        scale: as in `Linear`, for the second layer.
    """

    def __init__(
        self, sizes: tuple[int, int, int], make: Make, *, approximate: bool, scale: float = 1.0
    ):
        width, mlp_width, out_width = sizes
        self.approximate = approximate
        self.fc1 = Linear(width, mlp_width, make)
        self.fc2 = Linear(mlp_width, out_width, make, scale=scale)

    def __call__(self, x_D: jax.Array) -> jax.Array:
        return self.fc2(jax.nn.gelu(self.fc1(x_D), approximate=self.approximate))


# A custom_vjp, because JAX would sum the gradients of all occurrences of a row in the dtype of the table,
# and in bfloat16 a sum stops growing once its terms are below 1/256 of it.
@jax.custom_vjp
def look_up(table_VD: jax.Array, index: Array) -> jax.Array:
    """Returns the rows of a table at these indices; their gradients are summed in float32."""
    return jnp.take(table_VD, index, axis=0, mode="clip")


def _look_up_forward(table_VD, index):
    return look_up(table_VD, index), (table_VD, index)


def _look_up_backward(residuals, dx_D):
    table_VD, index = residuals
    zeros_VD = jnp.zeros(table_VD.shape, jnp.float32)
    return zeros_VD.at[index].add(dx_D.astype(jnp.float32)).astype(table_VD.dtype), None


look_up.defvjp(_look_up_forward, _look_up_backward)


# ------------------------------------------------------------------------------ rotary positions
class Rotation(NamedTuple):
    """What each value of a head and its partner are multiplied by, `[..., K]`; the same for all heads.

    Frequency i turns the values i and i + K / 2: `cos` is the same for both, `sin` negative for the first.
    """

    cos: jax.Array
    sin: jax.Array


def text_rotation(
    position_X: Array,
    axes: tuple[int, ...],
    theta: float,
    long_rope: config.LongRope | None = None,
) -> Rotation:
    """Returns the rotation of tokens by M-RoPE (Qwen2-VL, arXiv:2409.12191, section 2.1).

    Args:
        position_X: positions on the three axes t, h, w, `[..., 3]`. They are equal for text. In an image,
            t stays at the image's start, and h and w count rows and columns.
        axes: the axis of each frequency, see `config.TextConfig.axes`.
        theta: the base of the frequencies.
        long_rope: if given, low frequencies are slowed down.
    """
    position = jnp.asarray(position_X)[..., np.array(axes)].astype(jnp.float32)
    frequency = _frequencies(2 * len(axes), theta)
    return _rotation(position * (_slowed(frequency, long_rope) if long_rope else frequency))


def vision_rotation(row: Array, col: Array, head_width: int) -> Rotation:
    """Returns the rotation of patches: half of the frequencies turn with the row, half with the column."""
    frequency = _frequencies(head_width // 2, config.VISION_THETA)
    angles = [jnp.asarray(x, jnp.float32)[..., None] * frequency for x in (row, col)]
    return _rotation(jnp.concatenate(angles, -1))


def rotate(x_HK: jax.Array, rotation: Rotation) -> jax.Array:
    """Returns `x_HK` rotated; frequency i of R turns the values i and i + R, not 2i and 2i + 1.

    Values after the first 2 R stay as they are.
    """
    width = rotation.cos.shape[-1]
    x = x_HK[..., :width].astype(jnp.float32)
    partner = jnp.roll(x, width // 2, -1)
    turned = x * rotation.cos[..., None, :] + partner * rotation.sin[..., None, :]
    turned = turned.astype(x_HK.dtype)
    if width == x_HK.shape[-1]:
        return turned
    return jnp.concatenate([turned, x_HK[..., width:]], -1)


def _rotation(angle: jax.Array) -> Rotation:
    # The angles must be float32: bfloat16 cannot tell position 256 from 257.
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return Rotation(cos=jnp.concatenate([cos, cos], -1), sin=jnp.concatenate([-sin, sin], -1))


def _slowed(frequency: np.ndarray, rope: config.LongRope) -> np.ndarray:
    """Returns the frequencies of Llama 3.1: the low ones divided by the factor, the high ones as they are.

    A frequency's share of the second is 1 where it turns `high_freq_factor` times or more within the original
    length, 0 where it turns `low_freq_factor` times or less, and linear between the two.
    """
    turns = rope.original_max_position_embeddings * frequency / np.float32(2 * np.pi)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (frequency * (share + (1 - share) / rope.factor)).astype(np.float32)


def _frequencies(width: int, theta: float) -> np.ndarray:
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    return (1.0 / np.float32(theta) ** exponent).astype(np.float32)
