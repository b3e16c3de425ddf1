"""Computes logits, log-probabilities and entropies from hidden states, a chunk of tokens at a time.

Logits are the largest array of a training step, because the vocabulary is large: for 4,096 tokens and a
vocabulary of 151,936 rows they take 2.5 GB in float32, and a plain backward pass holds several copies
(logits, softmax, gradient). `selected` only ever has the logits of one chunk on a device, in the forward and
the backward pass. In return, the backward pass recomputes the logits.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays
from vade_jax.models.qwen import layers
from vade_jax.types import Array


class Tokens(NamedTuple):
    """Log-probabilities and entropies of a policy at the tokens of answers."""

    logp_NT: Array  # log-probability of each token
    entropy_NT: Array  # entropy of the policy's distribution at each token, in nats


def logits(hidden_ND: Array, head_DV: Array, *, banned: tuple[int, ...] = ()) -> jax.Array:
    """Returns the logits `[N, V]`, float32, with the banned tokens at -inf.

    Both the engine and the trainer use these logits, so a banned token has probability 0 for both. The
    vocabulary is padded to a round number; the rows without a token take part in the softmax, as in
    vLLM.

    Args:
        hidden_ND: final hidden states, in the compute dtype.
        head_DV: the output head in the same dtype; the matmul accumulates in float32.
        banned: tokens that are never sampled, such as the image placeholder.
    """
    logits_NV = jnp.einsum("nd,dv->nv", hidden_ND, head_DV, preferred_element_type=jnp.float32)
    if not banned:
        return logits_NV
    is_banned_V = np.isin(np.arange(head_DV.shape[1]), banned)
    return jnp.where(is_banned_V, -jnp.inf, logits_NV)


def selected(
    hidden_NTD: Array,
    head_DV: Array,
    token_NT: Array,
    *,
    temperature: float = 1.0,
    banned: tuple[int, ...] = (),
    chunk: int = 1024,
    place: layers.Placement = layers.ANYWHERE,
) -> Tokens:
    """Returns log softmax(h . head / t)[token] of each token, and the entropy of that softmax.

    Both are `[N, T]`, float32. The entropy is a metric: it has no gradient.

    Args:
        hidden_NTD: the hidden state that predicts each token.
        head_DV: the output head, cast to the dtype of the hidden states.
        token_NT: the tokens whose log-probabilities are computed.
        temperature: t, the sampling temperature. The distribution that is sampled from is the policy, so
            its log-probs are taken at this temperature.
        banned: tokens that are never sampled; they have log-probability -inf.
        chunk: number of tokens whose logits exist at the same time, on each device.
        place: how the answers are split over devices. N must be a multiple of `place.ways`.
    """
    N, T = hidden_NTD.shape[:2]
    num_tokens = N * T // place.ways  # per device
    chunk = min(chunk, num_tokens)
    pad = -num_tokens % chunk

    # Every device cuts its own tokens into chunks. With chunks cut from the whole array, one device would
    # hold each chunk, and the others would wait.
    def chunks(x_NT):
        """Returns `x_NT` as [chunks, devices, tokens in a chunk, ...]."""
        x = x_NT.reshape(place.ways, num_tokens, *x_NT.shape[2:])
        x = jnp.pad(x, ((0, 0), (0, pad), *[(0, 0)] * (x.ndim - 2)))
        return jnp.swapaxes(x.reshape(place.ways, -1, chunk, *x.shape[2:]), 0, 1)

    one = functools.partial(_chunk_logp, temperature=temperature, banned=banned)
    hidden, token = chunks(hidden_NTD), chunks(jnp.asarray(token_NT))

    def back(x):
        """Returns the output of all chunks, [chunks, devices, tokens in a chunk], as [N, T]."""
        x = jnp.swapaxes(x, 0, 1).reshape(place.ways, -1)
        return place.rows(x[:, :num_tokens].reshape(N, T))

    return Tokens(*map(back, _chunked_logp(one, place, hidden, head_DV, token)))


def _chunk_logp(hidden_ND, head_DV, token_N, *, temperature, banned):
    """Returns `logp_N` and `entropy_N` of one chunk on one device."""
    logits_NV = logits(hidden_ND, head_DV, banned=banned) / temperature
    below_NV = logits_NV - arrays.top(logits_NV)  # in place of jax.nn.log_softmax: see `top`
    logp_NV = below_NV - jnp.log(jnp.sum(jnp.exp(below_NV), -1, keepdims=True))
    # A banned token has probability 0 and log-probability -inf. Their product would be NaN; it counts as 0.
    terms_NV = jnp.where(jnp.isfinite(logp_NV), jnp.exp(logp_NV) * logp_NV, 0)
    chosen_N = jnp.take_along_axis(logp_NV, token_N[:, None], 1)[:, 0]
    return chosen_N, -jnp.sum(terms_NV, axis=-1)


# A custom_vjp, because with jax.checkpoint JAX's own backward loop over chunks would sum the head's gradient
# in the compute dtype, and in bfloat16 a sum stops growing once its terms are below 1/256 of it. JAX would
# also reduce that gradient over the devices in every chunk. Here each device sums its part in float32, and
# the parts are reduced once after the loop.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked_logp(one, place, hidden, head_DV, token):
    """Returns `one` of every chunk on every device; the leading axes of all arrays are [chunks, devices]."""
    heads = _head_per_device(place, head_DV, hidden.dtype)
    return jax.lax.map(lambda xs: jax.vmap(one)(xs[0], heads, xs[1]), (hidden, token))


def _forward(one, place, hidden, head_DV, token):
    return _chunked_logp(one, place, hidden, head_DV, token), (hidden, head_DV, token)


def _backward(one, place, residuals, gradients):
    """Computes the logits of each chunk again and differentiates them at once."""
    hidden, head_DV, token = residuals
    dlogp, _ = gradients  # the entropy has no gradient
    heads = _head_per_device(place, head_DV, hidden.dtype)

    def step(dheads, xs):
        hidden, token, dlogp = xs
        run = lambda hidden, heads: jax.vmap(one)(hidden, heads, token)[0]
        dhidden, more = jax.vjp(run, hidden, heads)[1](dlogp)
        return dheads + more.astype(jnp.float32), dhidden

    start = place.rows(jnp.zeros(heads.shape, jnp.float32))
    dheads, dhidden = jax.lax.scan(step, start, (hidden, token, dlogp))
    return dhidden, place.head(jnp.sum(dheads, 0)).astype(head_DV.dtype), None


_chunked_logp.defvjp(_forward, _backward)


def _head_per_device(place, head_DV, dtype):
    """Returns the head in the compute dtype, `[devices, D, V]`: a whole copy on each device.

    The leading axis keeps the gradients of the devices apart until `_backward` sums them. The copies are
    made before the loop over chunks, so the head is gathered once per pass and not once per chunk.
    """
    heads = jnp.broadcast_to(arrays.rounded(head_DV, dtype), (place.ways, *head_DV.shape))
    return place.rows(heads)
