"""The decoder, which runs in three ways: over prompts, over prompts with answers, and token by token.

The layer is written once. Its argument `attend`, a function from queries, keys and values to outputs,
decides what the queries may see. The three ways differ only in this function:

    prompt           a token sees its row up to itself
    grouped          an answer's token sees the prompt, which is computed once per group, and the answer up
                     to itself
    decode           like `grouped`, but with one new token per answer, and older keys from caches

Layers are stacked along L and scanned. The program contains one layer, however deep the model is, so the
7B compiles about as fast as the tiny model. Only decoding takes the layers apart: see `Decoder.apart`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vade_jax import arrays
from vade_jax.models.qwen import attention, config, deltanet, layers
from vade_jax.types import Array

# The normed x_NUD -> the output that is added to x_NUD, and what the caller keeps
Mix = Callable[[jax.Array], tuple[jax.Array, Any]]
# q_NUHK, k_NUJK, v_NUJK -> out_NUHK, and what the caller keeps of the keys and values
Attend = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]


class Keys(NamedTuple):
    """Keys (already rotated) and values of one layer."""

    key: jax.Array
    value: jax.Array


class Embedded(NamedTuple):
    """Prompts as the first layer gets them."""

    x_MPD: jax.Array
    # DeepStack features, 0 where a token is text; one array for each of the first K layers, or None
    deep_MKPD: jax.Array | None = None


def _norm(width: int, shape: config.TextConfig, make: layers.Make) -> layers.RMSNorm:
    is_hybrid = shape.linear is not None
    return layers.RMSNorm(width, shape.norm_eps, param_dtype=make.param_dtype, around_one=is_hybrid)


class Attention(nnx.Module):
    """Grouped-query attention: H query heads share J heads of keys and values.

    In Qwen2.5, q, k and v have biases, and the output has none. Qwen3 has no biases; it normalises queries
    and keys, so that attention scores do not grow; Qwen3.5's outputs also pass a gate. `scale` is for the
    kernel of the output.
    """

    def __init__(self, shape: config.TextConfig, make: layers.Make, *, scale: float):
        self.head_width, self.num_kv_heads = shape.head_width, shape.num_kv_heads
        kv_width = shape.num_kv_heads * shape.head_width
        bias = shape.bias
        self.is_gated = shape.linear is not None  # then each head has its query, then its gate
        query_width = shape.query_width * (1 + self.is_gated)
        self.query = layers.Linear(shape.width, query_width, make, bias=bias)
        self.key = layers.Linear(shape.width, kv_width, make, bias=bias)
        self.value = layers.Linear(shape.width, kv_width, make, bias=bias)
        self.output = layers.Linear(shape.query_width, shape.width, make, bias=False, scale=scale)
        self.query_norm = _norm(shape.head_width, shape, make) if shape.qk_norm else None
        self.key_norm = _norm(shape.head_width, shape, make) if shape.qk_norm else None
        self.qkv: Any = None  # or what `join` puts here

    def __call__(
        self, x_NUD: jax.Array, rotation: layers.Rotation, attend: Attend
    ) -> tuple[jax.Array, Any]:
        """Returns the output, and what `attend` keeps of the keys and values."""
        heads, gate = (*x_NUD.shape[:2], -1, self.head_width), None
        if self.qkv is None:
            q, k, v = (f(x_NUD).reshape(heads) for f in (self.query, self.key, self.value))
        else:
            q, k, v = self._at_once(x_NUD)
        if self.is_gated:
            q, gate = jnp.split(q.reshape(*heads[:2], -1, 2 * self.head_width), 2, -1)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        # `attend` gets keys rotated, so those in a cache need no work later. A score depends only on the
        # difference of the two positions.
        q, k = layers.rotate(q, rotation), layers.rotate(k, rotation)
        out_NUHK, kept = attend(q, k, v)
        if gate is not None:
            out_NUHK = out_NUHK * jax.nn.sigmoid(gate)
        return self.output(out_NUHK.reshape(*heads[:2], -1)), kept

    def join(self) -> None:
        """Joins the three matrices into one, unless there is an adapter or a gate.

        The output has each key head's queries, then its key, then its value.
        """
        linears = (self.query, self.key, self.value)
        if self.is_gated or any(x.lora is not None for x in linears):
            return

        def side_by_side(parts):
            by_head = [x.reshape(*x.shape[:-1], self.num_kv_heads, -1) for x in parts]
            return jnp.concatenate(by_head, -1).reshape(*parts[0].shape[:-1], -1)

        biases = [x.bias[...] for x in linears if x.bias is not None]
        kernel = side_by_side([x.kernel[...] for x in linears])
        self.qkv = nnx.data((kernel, side_by_side(biases) if biases else None))
        del self.query, self.key, self.value  # or they would stay in memory too

    def _at_once(self, x_NUD):
        """Returns queries, keys and values by one product with what `join` made."""
        kernel, bias = self.qkv
        out = x_NUD @ kernel if bias is None else x_NUD @ kernel + bias
        by_head = out.reshape(*x_NUD.shape[:2], self.num_kv_heads, -1, self.head_width)
        q_NUHK = by_head[..., :-2, :].reshape(*x_NUD.shape[:2], -1, self.head_width)
        return q_NUHK, by_head[..., -2, :], by_head[..., -1, :]


class Layer(nnx.Module):
    """One pre-norm layer: x + mix(norm(x)), then x + mlp(norm(x)).

    The caller says what `mix` does: attention or, if `is_linear`, a DeltaNet.
    """

    def __init__(self, shape: config.TextConfig, make: layers.Make, *, is_linear: bool = False):
        # 2 L branches are added to the residual stream. Each is initialised at 1 / sqrt(2 L) of the usual
        # size, so that their sum does not grow with depth.
        scale = (2 * shape.num_layers) ** -0.5
        self.norm1, self.norm2 = (_norm(shape.width, shape, make) for _ in range(2))
        if is_linear:
            assert shape.linear is not None
            sizes = shape.width, shape.linear, shape.norm_eps
            self.delta = deltanet.DeltaNet(*sizes, make, scale=scale)
        else:
            self.attention = Attention(shape, make, scale=scale)
        self.mlp = layers.GatedMLP(shape.width, shape.mlp_width, make, bias=False, scale=scale)

    def __call__(self, x_NUD: jax.Array, mix: Mix) -> tuple[jax.Array, Any]:
        out, kept = mix(self.norm1(x_NUD))
        x_NUD = x_NUD + out
        return x_NUD + self.mlp(self.norm2(x_NUD)), kept

    def attend(
        self, x_NUD: jax.Array, rotation: layers.Rotation, attend: Attend
    ) -> tuple[jax.Array, Any]:
        """Returns the output of a layer with attention, and what `attend` keeps."""
        return self(x_NUD, lambda x: self.attention(x, rotation, attend))


class Decoder(nnx.Module):
    """The layers and the final norm, which is applied to all hidden states that are returned."""

    def __init__(self, shape: config.TextConfig, make: layers.Make, place: layers.Placement):
        self.shape, self.place, self.dtype = shape, place, make.dtype
        num_full = shape.num_layers // shape.interval
        self.layers = make.stacked(lambda make: Layer(shape, make), num_full)
        linear, num = lambda make: Layer(shape, make, is_linear=True), shape.num_layers - num_full
        self.linear = make.stacked(linear, num) if num else None
        self.norm = _norm(shape.width, shape, make)

    def prompt(
        self, prompts: Embedded, position_MPX: Array, length_M: Array, *, remat: bool, keep: bool
    ) -> tuple[jax.Array, Keys | None, deltanet.State | None]:
        """Returns hidden states `[M, P, D]`, and what answers need of each layer.

        These are keys and values, `[L, M, J, P, K]`, of the layers with attention, and the states of the
        others, with two leading axes: the block of layers, and the position in it. Without `keep`, they are
        freed after each layer.
        """
        rotation = self._rotation(position_MPX)

        def full(x_MPD, layer):
            x_MPD, keys = self._prompt_layer(layer, x_MPD, rotation, length_M)
            return (x_MPD,), keys if keep else None

        def linear(x_MPD, layer):
            x_MPD, state = self._prompt_linear(layer, x_MPD, length_M)
            return (x_MPD,), state if keep else None

        (x_MPD,), (keys_L, state) = self._scan(full, linear, prompts, remat)
        return self.norm(x_MPD), keys_L, state

    def grouped(
        self,
        prompts: Embedded,
        position_MPX: Array,
        length_M: Array,
        y_NUD: jax.Array,
        position_NUX: Array,
        *,
        remat: bool,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the hidden states of prompts, `[M, P, D]`, and of their answers, `[N, U, D]`.

        Both go through the layers together. A layer first runs the prompts; then the answers attend to the
        prompts' keys in this layer, or continue from the prompts' states. So a prompt costs the same with one
        answer or sixteen, and gets a gradient through each of them.

        Args:
            prompts: embedded prompts.
            position_MPX: their positions.
            length_M: their lengths.
            y_NUD: embedded answers; those to one prompt follow each other, and all prompts have as many.
            position_NUX: their positions, which continue those of the prompt.
            remat: recompute the activations in the backward pass, see `layers.checkpoint`.
        """
        rotation_x = self._rotation(position_MPX)
        rotation_y = self._rotation(position_NUX)
        group_size = len(y_NUD) // len(prompts.x_MPD)

        def full(x_MPD, y_NUD, layer):
            x_MPD, keys = self._prompt_layer(layer, x_MPD, rotation_x, length_M)
            prompt = attention.prompt_keys(keys.key, keys.value, length_M)

            def attend(q, k, v):
                out = attention.grouped(q, [prompt], k, v, group_size, place=self.place)
                return out, None

            y_NUD, _ = layer.attend(y_NUD, rotation_y, attend)
            return (x_MPD, self.place.rows(y_NUD)), None

        def linear(x_MPD, y_NUD, layer):
            x_MPD, state = self._prompt_linear(layer, x_MPD, length_M)
            state = deltanet.State(*(self.place.rows(jnp.repeat(x, group_size, 0)) for x in state))
            y_NUD, _ = layer(y_NUD, lambda y: layer.delta(y, state))
            return (x_MPD, self.place.rows(y_NUD)), None

        (x_MPD, y_NUD), _ = self._scan(full, linear, prompts, remat, y_NUD)
        return self.norm(x_MPD), self.norm(y_NUD)

    @property
    def order(self) -> list[tuple[str, int]]:
        """The (stack, index) of each layer, for `apart`."""
        before = self.shape.interval - 1
        blocks = range(self.shape.num_layers // self.shape.interval)
        return [
            one
            for i in blocks
            for one in [*(("linear", i * before + j) for j in range(before)), ("layers", i)]
        ]

    def apart(self, stack: str, number: Array) -> Layer:
        """Returns one layer in the compute dtype, for a loop over the tokens of answers.

        A scan over stacked layers slices each layer out of the stack, and CPUs and GPUs copy slices: all
        weights and caches in every step, a third of the decoding time on an H100. Slicing once, before the
        loop, takes almost no time, but the memory of the weights a second time. On a mesh they are split over
        `tensor` alone, or each step would gather them again.
        """
        cut = lambda x: arrays.rounded(x[number], self.dtype)
        layer = jax.tree.map(cut, getattr(self, stack))
        layer = self.place.weights(layer, f"text/{stack}", self.dtype)
        if stack == "layers":
            layer.attention.join()
        layer.mlp.join()
        return layer

    def decode(
        self,
        apart: Sequence[Layer],
        y_ND: jax.Array,
        position_NX: Array,
        prompts: Sequence[attention.KeySet | deltanet.State],
        own: list[Keys | deltanet.State],
        step: Array,
    ) -> tuple[jax.Array, list[Keys | deltanet.State]]:
        """Returns the hidden states `[N, D]` of one new token per answer, and `own` after that token.

        Args:
            apart: the layers.
            y_ND: the embedded tokens.
            position_NX: their positions.
            prompts: for each layer with attention, the keys of the rows' prompts; the answers in a row share
                them.
            own: for each layer, keys `[R, J, G, K, T]` and values `[R, J, G, T, K]` of the answers' tokens,
                or the answers' states.
            step: the number of tokens that each answer has already.
        """
        rotation = self._rotation(position_NX[:, None])
        y_NUD, written = y_ND[:, None], []
        for layer, prompt, cache in zip(apart, prompts, own, strict=True):
            if isinstance(cache, deltanet.State):
                y_NUD, cache = layer(y_NUD, functools.partial(layer.delta, state=cache))
            else:
                y_NUD, cache = self._decode_layer(layer, y_NUD, rotation, prompt, cache, step)
            written.append(cache)
        return self.norm(y_NUD[:, 0]), written

    def _decode_layer(self, layer, y_NUD, rotation, prompt, cache: Keys, step):
        seen_T = jnp.arange(cache.value.shape[3]) <= step

        def attend(q, k, v):
            # The token's own key is written first, so that it is seen like those before it.
            now = _write(cache, k, v, step)
            own = attention.KeySet(jnp.swapaxes(now.key, -1, -2), now.value, seen_T)
            return attention.to_sets(q, [prompt, own], ways=self.place.ways), now

        return layer.attend(y_NUD, rotation, attend)

    def _prompt_layer(self, layer, x_MPD, rotation, length_M):
        def attend(q, k, v):
            # Heads first: the order of axes that attention multiplies in.
            keys = Keys(jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2))
            return attention.causal(q, k, v, length_M, place=self.place), keys

        x_MPD, keys = layer.attend(x_MPD, rotation, attend)
        return self.place.rows(x_MPD), keys

    def _prompt_linear(self, layer, x_MPD, length_M):
        state = layer.delta.start(len(x_MPD))
        x_MPD, state = layer(x_MPD, lambda x: layer.delta(x, state, length_M))
        return self.place.rows(x_MPD), state

    def _rotation(self, position_X: Array) -> layers.Rotation:
        shape = self.shape
        return layers.text_rotation(position_X, shape.axes, shape.rope_theta, shape.long_rope)

    def _scan(self, full, linear, prompts: Embedded, remat: bool, *others: jax.Array):
        """Runs every layer on the prompts and `others`: `linear` on those of a block, then `full`.

        Returns the streams after the last layer, and what both functions keep of all layers. After each of
        the first layers, its DeepStack features are added to the prompts.
        """

        def of_layer(step, name):
            def run(streams, layer):
                return step(*streams, self.place.weights(layer, name, self.dtype))

            return layers.checkpoint(run, remat=remat)

        run_full, run_linear = of_layer(full, "text/layers"), of_layer(linear, "text/linear")

        def next_block(streams, block):
            number, layer, before = block
            states = None
            if before is not None:
                streams, states = jax.lax.scan(run_linear, streams, before)
            (x_MPD, *others), kept = run_full(streams, layer)
            if prompts.deep_MKPD is not None:
                x_MPD = self.place.rows(x_MPD + _deep_feature(prompts.deep_MKPD, number))
            return (x_MPD, *others), (kept, states)

        num_blocks = self.shape.num_layers // self.shape.interval
        of_block = lambda x: x.reshape(num_blocks, -1, *x.shape[1:])
        before = None if self.linear is None else jax.tree.map(of_block, self.linear)
        blocks = np.arange(num_blocks), self.layers, before
        return jax.lax.scan(next_block, (prompts.x_MPD, *others), blocks)


def _deep_feature(deep_MKPD: jax.Array, number: Array) -> jax.Array:
    """Returns the DeepStack feature that is added after layer `number`, 0 after all but the first K.

    It is looked up: as inputs of the scan, the features would have to be padded to all L layers.
    """
    last = deep_MKPD.shape[1] - 1
    feature_MPD = jax.lax.dynamic_index_in_dim(
        deep_MKPD, jnp.minimum(number, last), 1, keepdims=False
    )
    return jnp.where(number <= last, feature_MPD, 0)


def _write(cache: Keys, k_N1JK: jax.Array, v_N1JK: jax.Array, step: Array) -> Keys:
    """Returns a layer's cache with the keys of token number `step`; in a loop, written in place."""
    group_size = cache.value.shape[2]
    key_RJG1K, value_RJG1K = (
        attention.split_keys(x.astype(cache.value.dtype), group_size) for x in (k_N1JK, v_N1JK)
    )
    key_RJGK1 = jnp.swapaxes(key_RJG1K, -1, -2)
    return Keys(
        jax.lax.dynamic_update_slice(cache.key, key_RJGK1, (0, 0, 0, 0, step)),
        jax.lax.dynamic_update_slice(cache.value, value_RJG1K, (0, 0, 0, step, 0)),
    )
