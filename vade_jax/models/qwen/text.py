"""The decoder, which runs in three ways: over prompts, over prompts with answers, and token by token.

The layer is written once. Its argument `attend`, a function from queries, keys and values to outputs,
decides what the queries may see. The three ways differ only in this function:

    prompt, hidden   a token sees its row up to itself
    grouped          an answer's token sees the prompt, which is computed once per group, and the answer up
                     to itself
    decode           like `grouped`, but with one new token per answer, and older keys from caches

Layers are stacked along L and scanned. The program contains one layer, however deep the model is, so the
7B compiles about as fast as the tiny model.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vade_jax.models.qwen import attention, config, layers
from vade_jax.types import Array

# q_NUHK, k_NUJK, v_NUJK -> out_NUHK
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


class Keys(NamedTuple):
    """Keys (already rotated) and values of one layer."""

    key: jax.Array
    value: jax.Array


class Embedded(NamedTuple):
    """Prompts as the first layer gets them."""

    x_MPD: jax.Array
    # DeepStack features, 0 where a token is text; one array for each of the first K layers, or None
    deep_MKPD: jax.Array | None = None


class Attention(nnx.Module):
    """Grouped-query attention: H query heads share J heads of keys and values.

    In Qwen2.5, q, k and v have biases, and the output has none. Qwen3 has no biases; it normalises queries
    and keys, so that attention scores do not grow. `scale` is for the kernel of the output.
    """

    def __init__(self, shape: config.TextConfig, make: layers.Make, *, scale: float):
        self.head_width = shape.head_width
        kv_width = shape.num_kv_heads * shape.head_width
        bias = shape.bias
        self.query = layers.Linear(shape.width, shape.query_width, make, bias=bias)
        self.key = layers.Linear(shape.width, kv_width, make, bias=bias)
        self.value = layers.Linear(shape.width, kv_width, make, bias=bias)
        self.output = layers.Linear(shape.query_width, shape.width, make, bias=False, scale=scale)
        norm = functools.partial(
            layers.RMSNorm, shape.head_width, shape.norm_eps, param_dtype=make.param_dtype
        )
        self.query_norm = norm() if shape.qk_norm else None
        self.key_norm = norm() if shape.qk_norm else None

    def __call__(
        self, x_NUD: jax.Array, rotation: layers.Rotation, attend: Attend
    ) -> tuple[jax.Array, Keys]:
        """Returns the output, and the keys and values for a cache or for the answers to a prompt."""
        heads = (*x_NUD.shape[:2], -1, self.head_width)
        q, k, v = (f(x_NUD).reshape(heads) for f in (self.query, self.key, self.value))
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        # Keys are returned rotated, so those in a cache need no work later. A score depends only on the
        # difference of the two positions.
        q, k = layers.rotate(q, rotation), layers.rotate(k, rotation)
        return self.output(attend(q, k, v).reshape(*heads[:2], -1)), Keys(k, v)


class Layer(nnx.Module):
    """One pre-norm layer: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, shape: config.TextConfig, make: layers.Make):
        # 2 L branches are added to the residual stream. Each is initialised at 1 / sqrt(2 L) of the usual
        # size, so that their sum does not grow with depth.
        scale = (2 * shape.num_layers) ** -0.5
        self.norm1 = layers.RMSNorm(shape.width, shape.norm_eps, param_dtype=make.param_dtype)
        self.norm2 = layers.RMSNorm(shape.width, shape.norm_eps, param_dtype=make.param_dtype)
        self.attention = Attention(shape, make, scale=scale)
        self.mlp = layers.GatedMLP(shape.width, shape.mlp_width, make, bias=False, scale=scale)

    def __call__(
        self, x_NUD: jax.Array, rotation: layers.Rotation, attend: Attend
    ) -> tuple[jax.Array, Keys]:
        out, keys = self.attention(self.norm1(x_NUD), rotation, attend)
        x_NUD = x_NUD + out
        return x_NUD + self.mlp(self.norm2(x_NUD)), keys


class Decoder(nnx.Module):
    """The layers and the final norm, which is applied to all hidden states that are returned."""

    def __init__(self, shape: config.TextConfig, make: layers.Make, place: layers.Placement):
        self.shape, self.place, self.dtype = shape, place, make.dtype
        self.layers = make.stacked(lambda make: Layer(shape, make), shape.num_layers)
        self.norm = layers.RMSNorm(shape.width, shape.norm_eps, param_dtype=make.param_dtype)

    def prompt(
        self, prompts: Embedded, position_MPX: Array, length_M: Array, *, remat: bool
    ) -> tuple[jax.Array, Keys]:
        """Returns hidden states `[M, P, D]`, and the keys and values of all layers, `[L, M, J, P, K]`."""
        rotation = self._rotation(position_MPX)

        def step(x_MPD, layer):
            x_MPD, keys = self._prompt_layer(layer, x_MPD, rotation, length_M)
            return (x_MPD,), keys

        (x_MPD,), keys_L = self._scan(step, prompts, remat)
        return self.norm(x_MPD), keys_L

    def hidden(
        self, prompts: Embedded, position_MPX: Array, length_M: Array, *, remat: bool
    ) -> jax.Array:
        """Returns the hidden states of `prompt` without the keys.

        It does not call `prompt`, whose scan holds the keys of all layers. Here the keys of a layer are
        freed after it.
        """
        rotation = self._rotation(position_MPX)

        def step(x_MPD, layer):
            return (self._prompt_layer(layer, x_MPD, rotation, length_M)[0],), None

        (x_MPD,), _ = self._scan(step, prompts, remat)
        return self.norm(x_MPD)

    def grouped(
        self,
        prompts: Embedded,
        position_MPX: Array,
        length_M: Array,
        y_NUD: jax.Array,
        position_NUX: Array,
        group_R: Array | None,
        *,
        remat: bool,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the hidden states of prompts, `[M, P, D]`, and of their answers, `[N, U, D]`.

        Both go through the layers together. A layer first runs the prompts; then the answers attend to the
        keys that the prompts have in this layer. So a prompt costs the same with one answer or sixteen, and
        it gets a gradient through each of them.

        Args:
            prompts: embedded prompts.
            position_MPX: their positions.
            length_M: their lengths.
            y_NUD: embedded answers, in R rows with the same number of answers.
            position_NUX: their positions, which continue those of the prompt.
            group_R: the prompt of each row; None: row r has prompt r.
            remat: recompute the activations in the backward pass, see `layers.checkpoint`.
        """
        rotation_x = self._rotation(position_MPX)
        rotation_y = self._rotation(position_NUX)
        group_size = len(y_NUD) // len(prompts.x_MPD if group_R is None else group_R)

        def step(x_MPD, y_NUD, layer):
            x_MPD, keys = self._prompt_layer(layer, x_MPD, rotation_x, length_M)
            # With `group_R`, each row gathers the keys of its prompt, for example when a micro-batch has
            # several rows of one prompt. The gradient of the gather sums over these rows.
            prompt = self._prompts_of_rows(keys, length_M, group_R)

            def attend(q, k, v):
                return attention.grouped(q, [prompt], k, v, group_size, ways=self.place.ways)

            y_NUD, _ = layer(y_NUD, rotation_y, attend)
            return (x_MPD, self.place.rows(y_NUD)), None

        (x_MPD, y_NUD), _ = self._scan(step, prompts, remat, y_NUD)
        return self.norm(x_MPD), self.norm(y_NUD)

    def decode(
        self,
        y_ND: jax.Array,
        position_NX: Array,
        cache: attention.Cache,
        own: attention.OwnCache,
        step: Array,
        group_R: Array | None,
    ) -> tuple[jax.Array, attention.OwnCache]:
        """Returns the hidden states `[N, D]` of one new token per answer, and `own` with its keys added.

        Args:
            y_ND: the embedded tokens.
            position_NX: their positions.
            cache: keys of the prompts; the answers in a row share them.
            own: keys of the answers' earlier tokens.
            step: the number of tokens that each answer has already.
            group_R: the prompt of each row; None: row r has prompt r.
        """
        rows = cache.key_LMJPK.shape[1] if group_R is None else len(group_R)
        group_size = len(y_ND) // rows
        rotation = self._rotation(position_NX[:, None])
        past_S = jnp.arange(own.key_LNJTK.shape[3]) < step

        def run(y_NUD, layer_and_keys):
            layer, key, value, own_key, own_value = layer_and_keys
            prompt = self._prompts_of_rows(Keys(key, value), cache.length_M, group_R)
            past = attention.KeySet(
                own_key.reshape(rows, group_size, *own_key.shape[1:]),
                own_value.reshape(rows, group_size, *own_value.shape[1:]),
                past_S,
            )

            def attend(q, k, v):
                return attention.grouped(q, [prompt, past], k, v, group_size, ways=self.place.ways)

            y_NUD, keys = layer(y_NUD, rotation, attend)
            return y_NUD, _heads_first(keys)

        # The scan only reads the caches. It returns the new keys, which are written after it for all layers
        # at once. If the scan returned the caches, each step would copy them whole.
        caches = (cache.key_LMJPK, cache.value_LMJPK, own.key_LNJTK, own.value_LNJTK)
        y_NUD, new = jax.lax.scan(run, y_ND[:, None], (self.layers, *caches))
        own = attention.OwnCache(
            key_LNJTK=_write(own.key_LNJTK, new.key, step),
            value_LNJTK=_write(own.value_LNJTK, new.value, step),
        )
        return self.norm(y_NUD[:, 0]), own

    def _prompt_layer(self, layer, x_MPD, rotation, length_M):
        def attend(q, k, v):
            return attention.causal(q, k, v, length_M, place=self.place)

        x_MPD, keys = layer(x_MPD, rotation, attend)
        return self.place.rows(x_MPD), _heads_first(keys)

    def _prompts_of_rows(
        self, keys: Keys, length_M: Array, group_R: Array | None
    ) -> attention.KeySet:
        """Returns the keys and values of each row's prompt, `[R, J, P, K]`, with a mask."""
        if group_R is not None:
            keys = Keys(*(layers.take(x, jnp.asarray(group_R), self.place) for x in keys))
            length_M = jnp.take(jnp.asarray(length_M), group_R)
        return attention.prompt_keys(*keys, length_M)

    def _rotation(self, position_X: Array) -> layers.Rotation:
        shape = self.shape
        return layers.text_rotation(position_X, shape.axes, shape.rope_theta, shape.long_rope)

    def _scan(self, step, prompts: Embedded, remat: bool, *others: jax.Array):
        """Runs `step` for every layer on the prompts and `others`; returns what each gives at the end.

        After each of the first layers, its DeepStack features are added to the prompts.
        """

        def run(streams, layer):
            return step(*streams, self.place.weights(layer, "text/layers", self.dtype))

        run = layers.checkpoint(run) if remat else run

        def next_layer(streams, numbered):
            number, layer = numbered
            (x_MPD, *others), made = run(streams, layer)
            if prompts.deep_MKPD is not None:
                x_MPD = self.place.rows(x_MPD + _deep_feature(prompts.deep_MKPD, number))
            return (x_MPD, *others), made

        numbered = np.arange(self.shape.num_layers), self.layers
        return jax.lax.scan(next_layer, (prompts.x_MPD, *others), numbered)


def _deep_feature(deep_MKPD: jax.Array, number: Array) -> jax.Array:
    """Returns the DeepStack feature that is added after layer `number`, 0 after all but the first K.

    It is looked up. As an input of the scan over layers, the features would be padded to all L of them.
    """
    last = deep_MKPD.shape[1] - 1
    feature_MPD = jax.lax.dynamic_index_in_dim(
        deep_MKPD, jnp.minimum(number, last), 1, keepdims=False
    )
    return jnp.where(number <= last, feature_MPD, 0)


def _heads_first(keys: Keys) -> Keys:
    """Returns keys and values as `[..., J, S, K]`, the order of axes that attention multiplies in."""
    return Keys(*(jnp.swapaxes(x, -3, -2) for x in keys))


def _write(old_LNJTK: jax.Array, new_LNJUK: jax.Array, step: Array) -> jax.Array:
    """Returns the cache of all layers with the keys of token number `step`; under jit, written in place."""
    start = (0, 0, 0, step, 0)
    return jax.lax.dynamic_update_slice(old_LNJTK, new_LNJUK.astype(old_LNJTK.dtype), start)
