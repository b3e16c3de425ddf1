"""The vision tower: windowed attention as a reshape, full attention in a few blocks.

See the technical report of Qwen2.5-VL (arXiv:2502.13923), section 2.1. In most blocks a patch sees only its
window of 8 x 8 patches; in a few it sees its whole image. transformers keeps all patches in one flat
sequence, which it reorders, and lists where windows and images end. The lengths of such lists depend on the
data, so here they would compile a program for every batch. Instead the host cuts each image into windows
of exactly 64 slots (`types.Images`). Then window attention has rows `[B * W, 64]`, full attention has rows
`[B, W * 64]`, and slots without a patch are masked.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from vade_jax import arrays, types
from vade_jax.models.qwen import attention, blockwise, config, layers

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
_PIXELS = 196  # pixels of a patch, in one channel
_NORM_EPS = 1e-6  # fixed in every published checkpoint


def normalize(patch_E: types.Array) -> jax.Array:
    """Converts uint8 patches `[..., 588]` to float32, bit-equal to Hugging Face's processor.

    Patches are sent to the device as bytes, which is a quarter of the traffic. The processor rounds
    float64(x) / 255 to float32, then computes (x - mean) / std. A table of all 256 x 3 results, made by
    NumPy, is exact on every backend, even if the backend's division is not.
    """
    levels = (np.arange(256) * (1 / 255)).astype(np.float32)[:, None]
    table = (levels - np.array(MEAN, np.float32)) / np.array(STD, np.float32)  # [256, 3]
    channel_E = np.arange(3 * _PIXELS) // _PIXELS
    index_E = jnp.asarray(patch_E, jnp.int32) * 3 + channel_E
    return jnp.take(jnp.asarray(table.reshape(-1)), index_E, mode="clip")


class PatchEmbed(nnx.Module):
    """The 2 x 14 x 14 convolution that embeds patches, as a matmul.

    The convolution is made for videos and takes two frames at a time. The two frames of an image are equal,
    so the kernels of both frames are added, and the image is used once.
    """

    def __init__(self, width: int, make: layers.Make):
        self.dtype = make.dtype
        shape = (2, 3 * _PIXELS, width)
        std = (2 * 3 * _PIXELS) ** -0.5
        kernel = jax.random.normal(make.rngs.params(), shape, make.param_dtype) * std
        self.kernel = nnx.Param(kernel)

    def __call__(self, patch_E: types.Array) -> jax.Array:
        kernel_2ED = arrays.rounded(self.kernel[...], self.dtype).astype(jnp.float32)
        kernel_ED = arrays.rounded(jnp.sum(kernel_2ED, 0), self.dtype)
        return normalize(patch_E).astype(self.dtype) @ kernel_ED


class Block(nnx.Module):
    """One pre-norm block. Its input `full`, a bool array, selects the whole image or the window."""

    def __init__(self, shape: config.VisionConfig, make: layers.Make):
        width = shape.width
        scale = (2 * shape.depth) ** -0.5  # as in the decoder's layers
        self.num_heads = shape.num_heads
        self.norm1 = layers.RMSNorm(width, _NORM_EPS, param_dtype=make.param_dtype)
        self.norm2 = layers.RMSNorm(width, _NORM_EPS, param_dtype=make.param_dtype)
        self.qkv = layers.Linear(width, 3 * width, make)
        self.proj = layers.Linear(width, width, make, scale=scale)
        self.mlp = layers.GatedMLP(width, shape.mlp_width, make, bias=True, scale=scale)

    def __call__(
        self,
        x_BWSD: jax.Array,
        rotation: layers.Rotation,
        valid_BWS: jax.Array,
        full: jax.Array,
        place: layers.Placement,
    ) -> jax.Array:
        qkv = self.qkv(self.norm1(x_BWSD))
        qkv = qkv.reshape(*x_BWSD.shape[:3], 3, self.num_heads, -1)
        q, k, v = (qkv[..., i, :, :] for i in range(3))
        q, k = layers.rotate(q, rotation), layers.rotate(k, rotation)
        out: Any = _attend(place, full, q, k, v, valid_BWS)
        out = checkpoint_name(place.rows(out), blockwise.SAVED)
        x_BWSD = x_BWSD + self.proj(out.reshape(x_BWSD.shape))
        return x_BWSD + self.mlp(self.norm2(x_BWSD))


class Merger(nnx.Module):
    """Merges the 2 x 2 patches of a cell into one feature of the decoder's width.

    Slot = 4 x cell + patch, so the patches of a cell are adjacent and merging is a reshape.
    """

    def __init__(self, width: int, out_width: int, make: layers.Make):
        self.norm = layers.RMSNorm(width, _NORM_EPS, param_dtype=make.param_dtype)
        self.up = layers.Linear(4 * width, 4 * width, make)
        # The kernel has the standard deviation of the embeddings. The initial features are then at least as
        # large as the embeddings (their std is 2.9 in the tiny preset), so a model that is trained from
        # scratch does not ignore the image.
        scale = layers.EMBEDDING_STD * (4 * width) ** 0.5
        self.down = layers.Linear(4 * width, out_width, make, scale=scale)

    def __call__(self, x_BWSD: jax.Array) -> jax.Array:
        x = self.norm(x_BWSD).reshape(*x_BWSD.shape[:2], 16, -1)
        return self.down(jax.nn.gelu(self.up(x), approximate=False))


class Vision(nnx.Module):
    """The tower from patches to the features of merged cells."""

    def __init__(
        self,
        shape: config.VisionConfig,
        out_width: int,
        make: layers.Make,
        place: layers.Placement,
    ):
        self.shape, self.place, self.dtype = shape, place, make.dtype
        self.patch = PatchEmbed(shape.width, make)
        self.blocks = make.stacked(lambda make: Block(shape, make), shape.depth)
        self.merger = Merger(shape.width, out_width, make)

    def __call__(self, images: types.Images, *, remat: bool) -> jax.Array:
        """Returns the features of all cells, `[B, W, 16, D]`; finite garbage in invalid cells."""
        rotation = layers.vision_rotation(images.row_BWS, images.col_BWS, self.shape.head_width)
        full_L = np.isin(np.arange(self.shape.depth), self.shape.full_blocks)

        def step(x_BWSD, layer):
            block, full = layer
            block = self.place.weights(block, "vision/blocks", self.dtype)
            x_BWSD = block(x_BWSD, rotation, images.valid_BWS, full, self.place)
            return self.place.rows(x_BWSD), None

        step = layers.checkpoint(step) if remat else step
        x_BWSD = self.place.rows(self.patch(images.patch_BWSE))
        x_BWSD, _ = jax.lax.scan(step, x_BWSD, (self.blocks, full_L))
        merger = self.place.weights(self.merger, "vision/merger", self.dtype)
        return self.place.rows(merger(x_BWSD))


# The branch is taken at run time, because all blocks are one scanned program; only the selected side runs.
# If JAX differentiated the branch, it would keep what the backward of *either* side needs, for every block.
# The compiler would not see that these arrays consist of rows, so each device would keep them for the images
# of all devices: 7 GB in the 7B. So the backward has its own branch, and computes the attention again.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(place, full, q_BWSHK, k_BWSHK, v_BWSHK, valid_BWS):
    """Returns attention to the valid slots of the window or, if `full`, of the whole image."""
    given = (q_BWSHK, k_BWSHK, v_BWSHK, valid_BWS)
    return jax.lax.cond(full, *(functools.partial(f, place) for f in (_whole, _windowed)), *given)


def _attend_forward(place, full, *given):
    return _attend(place, full, *given), (full, *given)


def _attend_backward(place, residuals, dout):
    full, *given = residuals

    def gradients(attend, q, k, v, valid, dout):
        return jax.vjp(lambda q, k, v: attend(place, q, k, v, valid), q, k, v)[1](dout)

    branches = (functools.partial(gradients, f) for f in (_whole, _windowed))
    return (None, *jax.lax.cond(full, *branches, *given, dout), None)


_attend.defvjp(_attend_forward, _attend_backward)


# Both functions take queries, keys and values `[B, W, 64, H, K]`. They differ in the axes that form a set of
# patches that see each other: one window, or all windows of an image.
def _windowed(place, q_BWSHK, k_BWSHK, v_BWSHK, valid_BWS) -> jax.Array:
    flat = [x.reshape(-1, *x.shape[2:]) for x in (q_BWSHK, k_BWSHK, v_BWSHK, valid_BWS)]
    return attention.unmasked(*flat, place=place).reshape(q_BWSHK.shape)


def _whole(place, q_BWSHK, k_BWSHK, v_BWSHK, valid_BWS) -> jax.Array:
    flat = [x.reshape(len(x), -1, *x.shape[3:]) for x in (q_BWSHK, k_BWSHK, v_BWSHK, valid_BWS)]
    return attention.unmasked(*flat, place=place).reshape(q_BWSHK.shape)
