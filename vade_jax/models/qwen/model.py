"""Qwen2.5-VL (arXiv:2502.13923), Qwen3-VL (arXiv:2511.21631) and Qwen3.5 in Flax NNX, as in transformers.

Without the vision tower it is Qwen2.5 (arXiv:2412.15115) or Qwen3 (arXiv:2505.09388), see `config`.

NNX is used only inside `models/`. Everywhere else a model is `(graphdef, params)`: a hashable static
description, and a nested plain dict of arrays, which shardings, optimizer, checkpoints and weight sync treat
like any tree. Inside a jitted function, `merge(graphdef, params)` makes the module again; this costs nothing
in the compiled program.

There are four forwards with the same parameters:

    hidden          whole rows, one prompt each: the plain forward, whose results the others must equal
    answer_hidden   the training forward: each prompt runs once, together with its answers
    prefill         computes the caches of prompts, and the states that predict the first tokens
    decode          feeds one more token of every answer
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from vade_jax import arrays, types
from vade_jax.models.qwen import attention, config, deltanet, layers, lora, text, vision

GraphDef = Any
TILE = 128  # rows or columns of a matrix that GPUs and TPUs multiply at once


class DecodeWeights(NamedTuple):
    """The weights that every step of decoding reads; matrices are split over `tensor` alone.

    The head and the layers are in the compute dtype. See `text.Decoder.apart` for why layers are apart.
    """

    layers: Sequence[text.Layer]
    head_DV: jax.Array
    # None: that of the parameters, which every device has completely
    embedding_VD: jax.Array | None


class Model(nnx.Module):
    """Vision tower (if the config has one), decoder and head.

    Args:
        shape: sizes and token ids.
        rngs: source of random parameters.
        dtype: the compute dtype; norms, rotations, softmax and logits are always float32.
        param_dtype: the dtype of the parameters.
        place: how activations are split over devices.
        adapter: which linear layers have a low-rank adapter; None: no layer.
    """

    def __init__(
        self,
        shape: config.Config,
        *,
        rngs: nnx.Rngs,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
        place: layers.Placement = layers.ANYWHERE,
        adapter: lora.Adapter | None = None,
    ):
        make = layers.Make(rngs, dtype, param_dtype)
        vocab_size, width = shape.text.vocab_size, shape.text.width
        self.config, self.dtype, self.place = shape, dtype, place
        embedding = jax.random.normal(rngs.params(), (vocab_size, width), param_dtype)
        self.embedding = nnx.Param(layers.EMBEDDING_STD * embedding)
        self.vision = vision.Vision(shape.vision, width, make, place) if shape.vision else None
        self.text = text.Decoder(shape.text, make, place)
        # If tied, the head reads the embedding. A second attribute would be a second parameter with its own
        # gradient and moments, and the two would drift apart.
        tied = shape.tie_embeddings
        self.lm_head = None if tied else layers.Linear(width, vocab_size, make, bias=False)
        if adapter is not None:
            lora.attach(self, adapter, rngs)

    def image_features(self, images: types.Images, *, remat: bool = True) -> vision.Features:
        """Returns the features of merged cells; invalid cells have finite garbage."""
        assert self.vision is not None
        return self.vision(images, remat=remat)

    def hidden(self, prompts: types.Prompts, *, remat: bool = True) -> jax.Array:
        """Returns the final hidden states `[M, P, D]` of whole rows."""
        embedded = self._embed_prompts(prompts, remat)
        where = prompts.position_MPX, prompts.length_M
        return self.text.prompt(embedded, *where, remat=remat, keep=False)[0]

    def prefill(self, prompts: types.Prompts) -> tuple[jax.Array, attention.Cache]:
        """Returns the hidden state `[M, D]` of each prompt's last token, and the cache for `decode`.

        The hidden state predicts the first token of an answer.
        """
        embedded = self._embed_prompts(prompts, remat=False)
        where = prompts.position_MPX, prompts.length_M
        x_MPD, keys_L, linear = self.text.prompt(embedded, *where, remat=False, keep=True)
        assert keys_L is not None
        cache = attention.Cache(
            key_LMJPK=keys_L.key,
            value_LMJPK=keys_L.value,
            length_M=jnp.asarray(prompts.length_M),
            next_position_M=jnp.asarray(prompts.next_position_M),
            linear=linear,
        )
        return last_state(x_MPD, prompts.length_M), cache

    def answer_hidden(
        self,
        prompts: types.Prompts,
        token_NT: types.Array,
        *,
        remat: bool = True,
    ) -> jax.Array:
        """Returns `hidden_NTD`, where `hidden[n, t]` predicts token t of answer n.

        Every prompt runs once, however many answers it has. Values and gradients equal those of `hidden`
        over one row for each answer (the prompt followed by the answer).

        Args:
            prompts: M prompts.
            token_NT: N answers; prompt m has the answers m*G to m*G+G-1.
            remat: recompute the activations in the backward pass, see `layers.checkpoint`.

        Raises:
            ValueError: the answers are not as many to each prompt.
        """
        group_N = _prompt_of_answers(prompts.length_M, token_NT)
        # The prompt's last token predicts the answer's first, and what follows the answer's last token is
        # not needed. So the first state comes from the prompt, and only T - 1 tokens have to be fed. If T
        # is a multiple of TILE, all T are fed, because T - 1 would leave a tile partly empty; the last state
        # is then dropped.
        if token_NT.shape[1] == 1:
            x_MPD = self.hidden(prompts, remat=remat)
            last_MD = last_state(x_MPD, prompts.length_M)
            return layers.take(last_MD, group_N, self.place)[:, None]
        start_N = jnp.asarray(prompts.next_position_M)[group_N]
        num_fed = token_NT.shape[1] - (token_NT.shape[1] % TILE != 0)
        position_NU = start_N[:, None] + jnp.arange(num_fed)
        x_MPD, y_NUD = self.text.grouped(
            self._embed_prompts(prompts, remat),
            prompts.position_MPX,
            prompts.length_M,
            self._embed(token_NT[:, :num_fed]),
            _on_all_axes(position_NU),
            remat=remat,
        )
        first_ND = layers.take(last_state(x_MPD, prompts.length_M), group_N, self.place)
        hidden_NTD = jnp.concatenate([first_ND[:, None], y_NUD], 1)[:, : token_NT.shape[1]]
        return self.place.rows(hidden_NTD)

    def ends_apart(self) -> DecodeWeights:
        """Returns the `DecodeWeights` before the first and after the last layer."""
        gather = lambda **named: self.place.weights(named, "", self.dtype)
        table_VD = self.embedding[...]
        whole_VD = gather(embedding=table_VD)["embedding"]
        if self.lm_head is None:
            head_DV = whole_VD.T
        else:
            head_DV = gather(lm_head={"kernel": self.lm_head.kernel[...]})["lm_head"]["kernel"]
        return DecodeWeights(
            layers=(),
            head_DV=arrays.rounded(head_DV, self.dtype),
            embedding_VD=None if whole_VD is table_VD else whole_VD,
        )

    def own_cache(
        self, rows: attention.Rows, group_size: int, length: int
    ) -> list[text.Keys | deltanet.State]:
        """Returns what each layer keeps of answers, before their first token.

        A layer with attention has room for the keys of `length` tokens of each answer in a row. A linear one
        starts with the state of the row's prompt.
        """
        shape = self.config.text
        heads = len(rows.next_position_R), shape.num_kv_heads, group_size
        zeros = lambda *size: jnp.zeros((*heads, *size), self.dtype)
        width, repeated = shape.head_width, lambda x: jnp.repeat(x, group_size, 0)
        return [
            jax.tree.map(repeated, prompt)
            if isinstance(prompt, deltanet.State)
            else text.Keys(zeros(width, length), zeros(length, width))
            for prompt in rows.prompts
        ]

    def decode(
        self,
        weights: DecodeWeights,
        rows: attention.Rows,
        own: list[text.Keys | deltanet.State],
        token_N: types.Array,
        step: types.Array,
    ) -> tuple[jax.Array, list[text.Keys | deltanet.State]]:
        """Feeds token number `step` of each answer; row r has answers r*G to r*G+G-1.

        Args:
            weights: all that a step reads.
            rows: the keys of the rows' prompts, from `Cache.apart`.
            own: the cache of the answers, from `own_cache` or the previous step.
            token_N: the token of each answer.
            step: the number of tokens that each answer had before.

        Returns:
            `hidden_ND`, which predicts token number step + 1, and `own` with the new keys and values.
        """
        group_N = _prompt_of_answers(rows.next_position_R, token_N)
        position_NX = _on_all_axes(jnp.asarray(rows.next_position_R)[group_N] + step)
        table_VD = self.embedding[...] if weights.embedding_VD is None else weights.embedding_VD
        # Every device has the whole table, so it looks up its own answers' tokens.
        y_ND = self.place.rows(layers.look_up(table_VD, token_N))
        y_ND = arrays.rounded(y_ND, self.dtype)
        return self.text.decode(weights.layers, y_ND, position_NX, rows.prompts, own, step)

    def head(self, dtype=None) -> jax.Array:
        """Returns the matrix `[D, V]` that maps hidden states to logits, in `dtype` or the compute dtype."""
        head = self.lm_head
        head_DV = self.embedding[...].T if head is None else head.kernel[...]
        return arrays.rounded(head_DV, dtype or self.dtype)

    def logits(self, hidden_D: jax.Array) -> jax.Array:
        """Returns float32 logits `[..., V]`. Only for few tokens; for many use `models/logprobs.py`."""
        return jnp.matmul(hidden_D, self.head(), preferred_element_type=jnp.float32)

    def _embed(self, token: types.Array) -> jax.Array:
        """Returns the embeddings of tokens.

        Each device looks up all tokens in its part of the table's width, then the devices exchange the
        results. These are small, whereas the table (2 GB in the 7B) is never gathered.
        """
        x_D = layers.look_up(self.embedding[...], token)
        return self.place.rows(self.place.looked_up(arrays.rounded(x_D, self.dtype)))

    def _embed_prompts(self, prompts: types.Prompts, remat: bool) -> text.Embedded:
        """Returns the embedded tokens, in which an image's features replace its placeholder tokens."""
        x_MPD = self._embed(prompts.token_MP)
        # If there is no slot for an image, as in a benchmark of text alone, the program does not contain the
        # vision tower. (`data.batching` always makes a slot, so that batches with and without images share
        # a program.)
        if self.vision is None or prompts.images.patch_BWSE.size == 0:
            return text.Embedded(x_MPD)
        features = self.image_features(prompts.images, remat=remat)
        cell_MP = jnp.asarray(prompts.cell_MP)

        def of_tokens(feature_BWCD, text_MPD):
            # Cells are in the order of windows; `cell_MP` is the cell of each placeholder, and -1 for text.
            # Text looks up cell 0, and `where` drops the result and its gradient.
            feature_D = feature_BWCD.reshape(-1, x_MPD.shape[-1])
            image_MPD = layers.take(feature_D, jnp.maximum(cell_MP, 0), self.place)
            return jnp.where(cell_MP[..., None] >= 0, image_MPD, text_MPD)

        deep = [of_tokens(deep_BWCD, 0) for deep_BWCD in features.deep_KBWCD]
        x_MPD = of_tokens(features.cell_BWCD, x_MPD)
        return text.Embedded(x_MPD, self.place.rows(jnp.stack(deep, 1)) if deep else None)


def _prompt_of_answers(rows: types.Array, x_N: types.Array) -> jax.Array:
    """Returns `group_N`, the row of each answer."""
    if len(x_N) % len(rows):
        raise ValueError(f"{len(x_N)} answers do not make {len(rows)} equal rows")
    return jnp.repeat(jnp.arange(len(rows)), len(x_N) // len(rows))


def split(model: Model) -> tuple[GraphDef, types.Params]:
    """Returns the static description and the parameters, as a nested plain dict."""
    graphdef, state = nnx.split(model)
    return graphdef, nnx.to_pure_dict(state)


def merge(graphdef: GraphDef, params: types.Params) -> Model:
    """Returns the module with these parameters; for use inside a traced function."""
    return nnx.merge(graphdef, params)


def graph(shape: config.Config, **kwargs) -> GraphDef:
    """Returns only the static description, without making any parameters."""
    return _abstract(shape, **kwargs)[0]


def abstract(shape: config.Config, **kwargs) -> types.Params:
    """Returns the shapes and dtypes of the parameters (`jax.ShapeDtypeStruct`)."""
    params = _abstract(shape, **kwargs)[1]
    return jax.tree.map(lambda leaf: leaf, params)  # new dicts: callers may change them


def init(shape: config.Config, key: jax.Array, **kwargs) -> types.Params:
    """Returns random parameters for training from scratch; `key` decides all of them."""

    @jax.jit  # one program; without jit, each shape of a matrix would be compiled separately
    def parameters(key):
        return split(Model(shape, rngs=nnx.Rngs(params=key), **kwargs))[1]

    return parameters(key)


@functools.cache  # tracing all layers takes 0.1 s, and loading, saving and sharding all need it
def _abstract(shape: config.Config, **kwargs) -> tuple[GraphDef, types.Params]:
    return split(nnx.eval_shape(lambda: Model(shape, rngs=nnx.Rngs(0), **kwargs)))


def last_state(x_MPD: jax.Array, length_M: types.Array) -> jax.Array:
    """Returns the state of each row's last real token; for an empty row that of its first padding."""
    index_M11 = (jnp.maximum(length_M, 1) - 1)[:, None, None]
    return jnp.take_along_axis(x_MPD, index_M11, 1)[:, 0]


def _on_all_axes(position: jax.Array) -> jax.Array:
    """Returns M-RoPE positions of text, `[..., 3]`, which are the same on all three axes."""
    return jnp.broadcast_to(position[..., None], (*position.shape, 3))
