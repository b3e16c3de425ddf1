"""Log-probabilities over a large vocabulary, a chunk of tokens at a time.

The logits of a 4,096-token batch over 151,936 rows are 2.5 GB in float32, and a backward pass wants
several copies. Here only one chunk's logits exist at a time, on each device for its own answers; the
head is gathered once a pass, and its gradient summed over chunks in float32 and reduced once.
"""

import functools

import jax
import jax.numpy as jnp

from vade_jax.models import vocabulary
from vade_jax.models.qwen25vl import layers
from vade_jax.types import Array


def selected(
    hidden_NTD: Array,
    head_DV: Array,
    token_NT: Array,
    *,
    temperature: float = 1.0,
    banned: tuple[int, ...] = (),
    chunk: int = 1024,
    place: layers.Placement = layers.ANYWHERE,
) -> jax.Array:
    """Returns `logp_NT`, float32: log softmax(hidden . head / temperature)[token].

    Args:
        hidden_NTD: the states that predict each token.
        head_DV: the output head, cast to the states' dtype; every row of the vocabulary takes part.
        token_NT: the tokens.
        temperature: of the sampling; the policy's log-probs are at the temperature it acts with.
        banned: rows that can never be sampled; their probability is 0 here as in the engine.
        chunk: tokens whose logits are held at once, on each device.
        place: where the answers live; N must be a multiple of its `ways`.
    """
    N, T = hidden_NTD.shape[:2]
    num_tokens = N * T // place.ways  # of one device
    chunk = min(chunk, num_tokens)
    pad = -num_tokens % chunk

    def cut(x_NT):  # chunks, devices, tokens
        x = x_NT.reshape(place.ways, num_tokens, *x_NT.shape[2:])
        x = jnp.pad(x, ((0, 0), (0, pad), *[(0, 0)] * (x.ndim - 2)))
        return jnp.swapaxes(x.reshape(place.ways, -1, chunk, *x.shape[2:]), 0, 1)

    one = functools.partial(_chunk_logp, temperature=temperature, banned=banned)
    logp = _in_chunks(one, place, cut(hidden_NTD), head_DV, cut(jnp.asarray(token_NT)))
    logp = jnp.swapaxes(logp, 0, 1).reshape(place.ways, -1)
    return place.rows(logp[:, :num_tokens].reshape(N, T))


def _chunk_logp(hidden_ND, head_DV, token_N, *, temperature, banned):
    logits_NV = vocabulary.logits(hidden_ND, head_DV, banned=banned) / temperature
    chosen_N = jnp.take_along_axis(logits_NV, token_N[:, None], 1)[:, 0]
    return chosen_N - jax.nn.logsumexp(logits_NV, axis=-1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_chunks(one, place, hidden, head_DV, token):
    """Returns `one` of every chunk; leading axes are chunks and devices."""
    heads = _copies(place, head_DV, hidden.dtype)
    return jax.lax.map(lambda xs: jax.vmap(one)(xs[0], heads, xs[1]), (hidden, token))


def _forward(one, place, hidden, head_DV, token):
    out = _in_chunks(one, place, hidden, head_DV, token)
    return out, (hidden, head_DV, token)


def _backward(one, place, residuals, dlogp):
    """Makes each chunk's logits again."""
    hidden, head_DV, token = residuals
    heads = _copies(place, head_DV, hidden.dtype)

    def step(dheads, xs):
        hidden, token, dlogp = xs
        run = lambda hidden, heads: jax.vmap(one)(hidden, heads, token)
        dhidden, more = jax.vjp(run, hidden, heads)[1](dlogp)
        return dheads + more.astype(jnp.float32), dhidden

    start = place.rows(jnp.zeros(heads.shape, jnp.float32))
    dheads, dhidden = jax.lax.scan(step, start, (hidden, token, dlogp))
    return dhidden, jnp.sum(dheads, 0).astype(head_DV.dtype), None


_in_chunks.defvjp(_forward, _backward)


def _copies(place, head_DV, dtype):
    """Returns the head once for every device, in the compute dtype."""
    heads = jnp.broadcast_to(head_DV.astype(dtype), (place.ways, *head_DV.shape))
    return place.rows(heads)
