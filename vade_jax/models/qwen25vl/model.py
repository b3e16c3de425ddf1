"""Qwen2.5-VL in Flax NNX, and the seam behind which NNX stays.

Outside of `models/` a model is `(graphdef, params)`: a static description and a nested plain dict of
arrays. Inside a jitted function `merge(graphdef, params)` makes the module again, at no cost.
Layers are stacked along L and scanned. Architecture: arXiv:2502.13923; numerics: transformers.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from vade_jax import types
from vade_jax.models.qwen25vl import attention, config, layers, text, vision

GraphDef = Any


class Qwen25VL(nnx.Module):
    """Vision tower, decoder and head; `place` splits the activations over devices."""

    def __init__(
        self,
        shape: config.Config,
        *,
        rngs: nnx.Rngs,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
        place: layers.Placement = layers.ANYWHERE,
    ):
        shared = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        rows, width = shape.text.vocab_size, shape.text.width
        self.config, self.dtype, self.place = shape, dtype, place
        embedding = jax.random.normal(rngs.params(), (rows, width), param_dtype)
        self.embedding = nnx.Param(layers.EMBEDDING_STD * embedding)
        self.vision = vision.Vision(shape.vision, width, place=place, **shared)
        self.text = text.Decoder(shape.text, place=place, **shared)
        # Tied: the head reads the embedding. A second attribute would be a second leaf.
        self.lm_head = (
            None
            if shape.tie_embeddings
            else layers.Linear(width, rows, bias=False, **shared)
        )

    def image_features(self, images: types.Images, *, remat: bool = True) -> jax.Array:
        """Returns the merged features `[B, W, C, D]`; finite garbage in invalid cells."""
        return self.vision(images, remat=remat)

    def hidden(self, prompts: types.Prompts, *, remat: bool = True) -> jax.Array:
        """Returns final-normed hidden states `[M, P, D]`: the plain forward of whole rows."""
        x_MPD = self._embed_prompts(prompts, remat)
        return self.text.hidden(
            x_MPD, prompts.position_MPX, prompts.length_M, remat=remat
        )

    def prefill(self, prompts: types.Prompts) -> tuple[jax.Array, attention.Cache]:
        """Returns the hidden state `[M, D]` of each prompt's last token, and the cache."""
        x_MPD = self._embed_prompts(prompts, remat=False)
        x_MPD, keys_L = self.text.prompt(
            x_MPD, prompts.position_MPX, prompts.length_M, remat=False
        )
        cache = attention.Cache(
            key_LMJPK=keys_L.key,
            value_LMJPK=keys_L.value,
            length_M=jnp.asarray(prompts.length_M),
            next_position_M=jnp.asarray(prompts.next_position_M),
        )
        return _last(x_MPD, prompts.length_M), cache

    def answer_hidden(
        self,
        prompts: types.Prompts,
        token_NT: types.Array,
        group_R: types.Array | None = None,
        *,
        remat: bool = True,
    ) -> jax.Array:
        """Returns `hidden_NTD`, where `hidden[n, t]` predicts answer token t: the grouped forward.

        Row r holds the answers r*G .. r*G+G-1, all to prompt `group_R[r]` (None: prompt r). Every
        prompt runs once, however many answers it has. Equal to the plain forward over one
        row per answer, in values and gradients.
        """
        group_N = self._group(prompts.length_M, token_NT, group_R)
        if token_NT.shape[1] == 1:
            x_MPD = self.hidden(prompts, remat=remat)
            last_MD = _last(x_MPD, prompts.length_M)
            return layers.take(last_MD, group_N, self.place)[:, None]
        start_N = jnp.asarray(prompts.next_position_M)[group_N]
        position_NU = start_N[:, None] + jnp.arange(token_NT.shape[1] - 1)
        x_MPD, y_NUD = self.text.grouped(
            self._embed_prompts(prompts, remat),
            prompts.position_MPX,
            prompts.length_M,
            self._embed(token_NT[:, :-1]),
            _on_all_axes(position_NU),
            group_R,
            remat=remat,
        )
        first_ND = layers.take(_last(x_MPD, prompts.length_M), group_N, self.place)
        return self.place.rows(jnp.concatenate([first_ND[:, None], y_NUD], 1))

    def own_cache(self, num_answers: int, length: int) -> attention.OwnCache:
        """Returns room for the keys and values of `length` tokens of each answer."""
        shape = self.config.text
        size = (
            shape.num_layers,
            num_answers,
            shape.num_kv_heads,
            length,
            shape.head_width,
        )
        return attention.OwnCache(
            key_LNJTK=jnp.zeros(size, self.dtype),
            value_LNJTK=jnp.zeros(size, self.dtype),
        )

    def decode(
        self,
        cache: attention.Cache,
        own: attention.OwnCache,
        token_N: types.Array,
        step: types.Array,
        group_R: types.Array | None = None,
    ) -> tuple[jax.Array, attention.OwnCache]:
        """Feeds answer tokens number `step`; returns `hidden_ND`, which predicts number step+1."""
        group_N = self._group(cache.length_M, token_N, group_R)
        position_NX = _on_all_axes(cache.next_position_M[group_N] + step)
        y_ND = self._embed(token_N)
        return self.text.decode(y_ND, position_NX, cache, own, step, group_R)

    def head(self, dtype=None) -> jax.Array:
        """Returns the matrix `[D, V]` that makes logits of hidden states, in compute dtype."""
        tied = self.lm_head is None
        head_DV = self.embedding[...].T if tied else self.lm_head.kernel[...]
        return head_DV.astype(dtype or self.dtype)

    def logits(self, hidden_D: jax.Array) -> jax.Array:
        """Returns float32 logits `[..., V]` over every row of the vocabulary."""
        return jnp.matmul(hidden_D, self.head(), preferred_element_type=jnp.float32)

    def _group(self, length_M, x_N, group_R) -> jax.Array:
        rows = jnp.arange(len(length_M)) if group_R is None else jnp.asarray(group_R)
        if len(x_N) % len(rows):
            raise ValueError(f"{len(x_N)} answers do not make {len(rows)} equal rows")
        return jnp.repeat(rows, len(x_N) // len(rows))

    def _embed(self, token: types.Array) -> jax.Array:
        """Returns embeddings; devices exchange them, the table is never gathered."""
        x_D = jnp.take(self.embedding[...], token, axis=0, mode="clip")
        return self.place.rows(self.place.looked_up(x_D.astype(self.dtype)))

    def _embed_prompts(self, prompts: types.Prompts, remat: bool) -> jax.Array:
        x_MPD = self._embed(prompts.token_MP)
        if prompts.images.patch_BWSE.size == 0:
            return x_MPD
        feature_BWCD = self.image_features(prompts.images, remat=remat)
        feature_D = feature_BWCD.reshape(-1, x_MPD.shape[-1])
        cell_MP = jnp.asarray(prompts.cell_MP)
        image_MPD = layers.take(feature_D, jnp.maximum(cell_MP, 0), self.place)
        return jnp.where(cell_MP[..., None] >= 0, image_MPD, x_MPD)


def split(model: Qwen25VL) -> tuple[GraphDef, types.Params]:
    """Returns the static description and the parameters as a nested plain dict."""
    graphdef, state = nnx.split(model)
    return graphdef, nnx.to_pure_dict(state)


def merge(graphdef: GraphDef, params: types.Params) -> Qwen25VL:
    """Returns the module with these parameters: cheap, also while tracing."""
    return nnx.merge(graphdef, params)


def graph(shape: config.Config, **kwargs) -> GraphDef:
    """Returns the static description alone: nothing is initialised."""
    return split(_abstract(shape, **kwargs))[0]


def abstract(shape: config.Config, **kwargs) -> types.Params:
    """Returns the parameters' shapes and dtypes (`jax.ShapeDtypeStruct`)."""
    return split(_abstract(shape, **kwargs))[1]


def init(shape: config.Config, key: jax.Array, **kwargs) -> types.Params:
    """Returns random parameters for training from scratch; `key` decides all of them."""
    return split(Qwen25VL(shape, rngs=nnx.Rngs(params=key), **kwargs))[1]


def _abstract(shape: config.Config, **kwargs) -> Qwen25VL:
    return nnx.eval_shape(lambda: Qwen25VL(shape, rngs=nnx.Rngs(0), **kwargs))


def _last(x_MPD: jax.Array, length_M: types.Array) -> jax.Array:
    index_M11 = (jnp.maximum(length_M, 1) - 1)[:, None, None]
    return jnp.take_along_axis(x_MPD, index_M11, 1)[:, 0]


def _on_all_axes(position: jax.Array) -> jax.Array:
    return jnp.broadcast_to(position[..., None], (*position.shape, 3))
