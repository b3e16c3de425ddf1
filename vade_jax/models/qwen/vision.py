"""The vision tower of Qwen2.5-VL, Qwen3-VL or Qwen3.5, from patches to the features of merged cells.

Qwen2.5-VL (arXiv:2502.13923, section 2.1): in most blocks a patch sees only its window of 8 x 8 patches; in a
few it sees its whole image. Qwen3-VL (arXiv:2511.21631): in all blocks a patch sees its whole image, patches
have learned positions, and some blocks give their own features (DeepStack, arXiv:2406.04334).
Qwen3.5's tower is the same without DeepStack.

transformers keeps all patches in one flat sequence, and lists where windows and images end. The lengths of
such lists depend on the data, so here they would compile a program for every batch. Instead the host cuts
each image into windows of exactly 64 slots (`types.Images`). Then window attention has rows `[B * W, 64]`,
full attention has rows `[B, W * 64]`, and slots without a patch are masked.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from vade_jax import arrays, types
from vade_jax.data import images as pictures
from vade_jax.models.qwen import attention, blockwise, config, layers

_NORM_EPS = 1e-6  # fixed in every published checkpoint


def normalize(patch_E: types.Array) -> jax.Array:
    """Converts uint8 patches `[..., E]` to float32, bit-equal to Hugging Face's processor.

    Patches are sent to the device as bytes, which is a quarter of the traffic. The processor rounds
    float64(x) / 255 to float32, then computes (x - mean) / std. A table of all 256 x 3 results, made by
    NumPy, is exact on every backend, even if the backend's division is not.
    """
    side = math.isqrt(patch_E.shape[-1] // 3)
    mean, std = (np.array(x, np.float32) for x in pictures.PIXELS[side])
    levels = (np.arange(256) * (1 / 255)).astype(np.float32)[:, None]
    table = (levels - mean) / std  # [256, 3]
    channel_E = np.repeat(np.arange(3), side * side)
    index_E = jnp.asarray(patch_E, jnp.int32) * 3 + channel_E
    return jnp.take(jnp.asarray(table.reshape(-1)), index_E, mode="clip")


class PatchEmbed(nnx.Module):
    """The convolution over two frames that embeds patches, as a matmul; a plain tower has a bias.

    The convolution is made for videos and takes two frames at a time. The two frames of an image are equal,
    so the kernels of both frames are added, and the image is used once.
    """

    def __init__(self, shape: config.VisionConfig, make: layers.Make):
        self.dtype = make.dtype
        size = (2, 3 * shape.patch_size**2, shape.width)
        kernel = jax.random.normal(make.rngs.params(), size, make.param_dtype)
        self.kernel = nnx.Param(kernel * (size[0] * size[1]) ** -0.5)
        has_bias = shape.kind == "plain"
        self.bias = nnx.Param(jnp.zeros(shape.width, make.param_dtype)) if has_bias else None

    def __call__(self, patch_E: types.Array) -> jax.Array:
        kernel_2ED = arrays.rounded(self.kernel[...], self.dtype).astype(jnp.float32)
        kernel_ED = arrays.rounded(jnp.sum(kernel_2ED, 0), self.dtype)
        out = normalize(patch_E).astype(self.dtype) @ kernel_ED
        if self.bias is None:
            return out
        return layers.plus(out, arrays.rounded(self.bias[...], self.dtype))


class Positions(nnx.Module):
    """Learned positions of a plain tower: a square table that is stretched over each image.

    The first and the last patch of a row or column get the first and the last entry of the table. The others
    get a mean of the two entries around them, in both directions of four entries.
    """

    def __init__(self, shape: config.VisionConfig, make: layers.Make):
        self.side, self.dtype = shape.table_side, make.dtype
        size = (self.side**2, shape.width)
        self.table = nnx.Param(0.02 * jax.random.normal(make.rngs.params(), size, make.param_dtype))

    def __call__(self, images: types.Images) -> jax.Array:
        """Returns the positions of all patches, `[B, W, S, D]`."""
        row = self._around(images.row_BWS)
        col = self._around(images.col_BWS)
        # Weighted and summed in float32, as in transformers 5.
        total: Any = 0.0
        for row_entry, row_weight in row:
            for col_entry, col_weight in col:
                entry_BWSD = layers.look_up(self.table[...], row_entry * self.side + col_entry)
                weight_BWS1 = (row_weight * col_weight)[..., None]
                total = total + entry_BWSD.astype(jnp.float32) * weight_BWS1
        return total.astype(self.dtype)

    def _around(self, index_BWS: types.Array) -> list[tuple[jax.Array, jax.Array]]:
        """Returns the (entry, weight) pairs below and above each patch, in one direction."""
        index_BWS = jnp.asarray(index_BWS)
        last_B11 = jnp.maximum(jnp.max(index_BWS, (1, 2), keepdims=True), 1)
        last_BWS = jnp.broadcast_to(last_B11, index_BWS.shape)
        # Without the barrier XLA would multiply by a rounded reciprocal. So entries and weights are, on a
        # CPU, those of transformers bit for bit.
        last_BWS = jax.lax.optimization_barrier(last_BWS)
        place = index_BWS.astype(jnp.float32) * (self.side - 1) / last_BWS
        below = jnp.floor(place)
        share, entry = place - below, below.astype(jnp.int32)
        return [(entry, 1 - share), (jnp.minimum(entry + 1, self.side - 1), 1 - (1 - share))]


class Block(nnx.Module):
    """One pre-norm block. `full`, a bool array, selects the whole image or the window in a windowed tower."""

    def __init__(self, shape: config.VisionConfig, make: layers.Make):
        width, self.kind, self.num_heads = shape.width, shape.kind, shape.num_heads
        scale = (2 * shape.depth) ** -0.5  # as in the decoder's layers
        norm = layers.RMSNorm if self.kind == "windowed" else layers.LayerNorm
        self.norm1 = norm(width, _NORM_EPS, param_dtype=make.param_dtype)
        self.norm2 = norm(width, _NORM_EPS, param_dtype=make.param_dtype)
        self.qkv = layers.Linear(width, 3 * width, make)
        self.proj = layers.Linear(width, width, make, scale=scale)
        if self.kind == "windowed":
            self.mlp = layers.GatedMLP(width, shape.mlp_width, make, bias=True, scale=scale)
        else:
            sizes = (width, shape.mlp_width, width)
            self.mlp = layers.MLP(sizes, make, approximate=True, scale=scale)

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
        if self.kind == "windowed":
            out: Any = _attend(place, full, q, k, v, valid_BWS)
        else:
            out = place.rows(_in_sets(place, True, None, q, k, v, valid_BWS)[0])  # saved inside
        x_BWSD = x_BWSD + self.proj(out.reshape(x_BWSD.shape))
        return x_BWSD + self.mlp(self.norm2(x_BWSD))


# Slot = 4 x cell + patch, so the patches of a cell are adjacent and merging is a reshape.
class Merger(nnx.Module):
    """Merges the 2 x 2 patches of a cell into one feature of the decoder's width, as in Qwen2.5-VL."""

    def __init__(self, width: int, out_width: int, make: layers.Make):
        self.norm = layers.RMSNorm(width, _NORM_EPS, param_dtype=make.param_dtype)
        self.up = layers.Linear(4 * width, 4 * width, make)
        self.down = layers.Linear(4 * width, out_width, make, scale=_feature_scale(width))

    def __call__(self, x_BWSD: jax.Array) -> jax.Array:
        x = self.norm(x_BWSD).reshape(*x_BWSD.shape[:2], 16, -1)
        return self.down(jax.nn.gelu(self.up(x), approximate=False))


class PlainMerger(nnx.Module):
    """Merges the patches of a cell as in Qwen3-VL.

    The norm is over the width of a patch or, `after` the merging, over that of the four patches together.
    """

    def __init__(self, width: int, out_width: int, make: layers.Make, *, after: bool, scale: float):
        self.after = after
        norm_width = 4 * width if after else width
        self.layer_norm = layers.LayerNorm(norm_width, _NORM_EPS, param_dtype=make.param_dtype)
        sizes = (4 * width, 4 * width, out_width)
        self.mlp = layers.MLP(sizes, make, approximate=False, scale=scale)

    def __call__(self, x_BWSD: jax.Array) -> jax.Array:
        x_BWSD = x_BWSD if self.after else self.layer_norm(x_BWSD)
        x = x_BWSD.reshape(*x_BWSD.shape[:2], 16, -1)
        return self.mlp(self.layer_norm(x) if self.after else x)


def _feature_scale(width: int) -> float:
    """Returns the scale of a merger's last kernel that gives it the standard deviation of the embeddings.

    The initial features are then at least as large as the embeddings (their std is 2.9 in the tiny preset),
    so a model that is trained from scratch does not ignore the image.
    """
    return layers.EMBEDDING_STD * (4 * width) ** 0.5


class Features(NamedTuple):
    """The features of all images' cells for the decoder."""

    cell_BWCD: jax.Array  # replaces the embeddings of the image's tokens
    # Added to the image's tokens after the first layers, one after each (DeepStack); may be empty
    deep_KBWCD: tuple[jax.Array, ...]


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
        self.patch = PatchEmbed(shape, make)
        self.blocks = make.stacked(lambda make: Block(shape, make), shape.depth)
        is_plain = shape.kind == "plain"
        self.positions = Positions(shape, make) if is_plain else None
        sizes = (shape.width, out_width)
        if is_plain:
            scale = _feature_scale(shape.width)
            self.merger = PlainMerger(*sizes, make, after=False, scale=scale)
        else:
            self.merger = Merger(*sizes, make)
        # Their features start small, so that they do not dominate the outputs of the decoder's first layers.
        deep = lambda make: PlainMerger(*sizes, make, after=True, scale=1.0)
        num = len(shape.deepstack)
        self.deepstack = make.stacked(deep, num) if num else None

    def __call__(self, images: types.Images, *, remat: bool) -> Features:
        """Returns the features of all cells; finite garbage in invalid cells."""
        x_BWSD = self.patch(images.patch_BWSE)
        if self.positions is not None:
            x_BWSD = x_BWSD + self.positions(images)
        x_BWSD, kept_BKWSD = self._run_blocks(self.place.rows(x_BWSD), images, remat)
        merger = self.place.weights(self.merger, "vision/merger", self.dtype)
        cell_BWCD = self.place.rows(merger(x_BWSD))
        if kept_BKWSD is None:
            return Features(cell_BWCD, ())
        mergers = self.place.weights(self.deepstack, "vision/deepstack", self.dtype)
        deep_KBWCD = []
        for k in range(kept_BKWSD.shape[1]):
            merger = jax.tree.map(lambda x, k=k: x[k], mergers)
            deep_KBWCD.append(self.place.rows(merger(kept_BKWSD[:, k])))
        return Features(cell_BWCD, tuple(deep_KBWCD))

    def _run_blocks(self, x_BWSD: jax.Array, images: types.Images, remat: bool):
        """Returns the output of the last block, and those of the DeepStack blocks (None without any)."""
        shape, num = self.shape, len(self.shape.deepstack)
        rotation = layers.vision_rotation(images.row_BWS, images.col_BWS, shape.head_width)

        def run_block(x_BWSD, block, full):
            block = self.place.weights(block, "vision/blocks", self.dtype)
            return self.place.rows(block(x_BWSD, rotation, images.valid_BWS, full, self.place))

        run_block = layers.checkpoint(run_block, remat=remat)

        def step(carry, layer):
            (x_BWSD, kept_BKWSD), (block, full, k) = carry, layer
            x_BWSD = run_block(x_BWSD, block, full)
            if kept_BKWSD is not None:
                # In the carry, because an output of the scan would hold those of all blocks.
                write = jax.lax.dynamic_update_index_in_dim
                kept_BKWSD = self.place.rows(write(kept_BKWSD, x_BWSD[:, None], k, 1))
            return (x_BWSD, kept_BKWSD), None

        # Each DeepStack block has its own slot among those that are kept; all others write to the last slot,
        # which is unused.
        place_L = np.full(shape.depth, num)
        place_L[list(shape.deepstack)] = np.arange(num)
        full_L = np.isin(np.arange(shape.depth), shape.full_blocks)
        kept_BKWSD = None
        if num:
            size = (len(x_BWSD), num + 1, *x_BWSD.shape[1:])
            kept_BKWSD = self.place.rows(jnp.zeros(size, x_BWSD.dtype))
        layers_L = (self.blocks, full_L, place_L)
        (x_BWSD, kept_BKWSD), _ = jax.lax.scan(step, (x_BWSD, kept_BKWSD), layers_L)
        return x_BWSD, None if kept_BKWSD is None else kept_BKWSD[:, :num]


# The branch is taken at run time, because all blocks are one scanned program; only the selected side runs.
# If JAX differentiated the branch, it would keep what the backward of *either* side needs, for every block.
# The compiler would not see that these arrays consist of rows, so each device would keep them for the images
# of all devices: 7 GB in the 7B. So the backward has its own branch.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(place, full, *arrays):
    """Returns attention to the valid slots of the window or, if `full`, of the whole image."""
    return _attend_forward(place, full, *arrays)[0]


def _attend_forward(place, full, *arrays):
    branches = (functools.partial(_in_sets, place, whole, None) for whole in (True, False))
    done = jax.lax.cond(full, *branches, *arrays)
    # Saved, so that the backward need not compute the attention again (the TPU's kernel does)
    out, log_total = (checkpoint_name(place.rows(x), blockwise.SAVED) for x in done)
    return out, (full, arrays, (out, log_total))


def _attend_backward(place, residuals, dout):
    full, arrays, known = residuals

    def gradients(whole, known, q, k, v, valid, dout):
        return jax.vjp(lambda *qkv: _in_sets(place, whole, known, *qkv, valid)[0], q, k, v)[1](dout)

    branches = (functools.partial(gradients, whole) for whole in (True, False))
    return (None, *jax.lax.cond(full, *branches, known, *arrays, dout), None)


_attend.defvjp(_attend_forward, _attend_backward)


def _in_sets(place, whole, known, *arrays):
    """Returns `attention.unmasked` of queries, keys and values `[B, W, 64, H, K]` and valid slots.

    A set of patches that see each other is one window or, if `whole`, all windows of an image.
    """
    size = (len(arrays[0]), -1) if whole else (-1, arrays[0].shape[2])
    arrays_Z, known_Z = jax.tree.map(lambda x: x.reshape(*size, *x.shape[3:]), (arrays, known))
    done = attention.unmasked(*arrays_Z, known=known_Z, place=place)
    return tuple(x.reshape(*arrays[0].shape[:4], -1) for x in done)
