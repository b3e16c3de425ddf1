"""From hidden states to logits, log-probabilities and entropies, a chunk of tokens at a time.

The vocabulary makes this the largest array of a training step: the logits of 4,096 tokens over 151,936
rows are 2.5 GB in float32, and a plain backward pass holds several copies (logits, softmax, gradient).
`selected` never has more than one chunk of them on a device, in either pass. The price is that the
backward pass makes the logits a second time.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.models.qwen import layers
from vade_jax.types import Array


class Tokens(NamedTuple):
    """What a policy says of the tokens of answers."""

    logp_NT: Array  # log-probability of each token
    entropy_NT: Array  # of the distribution that it was drawn from, nats


def logits(hidden_ND: Array, head_DV: Array, *, banned: tuple[int, ...] = ()) -> jax.Array:
    """Returns the logits `[N, V]`, float32, with the banned tokens at -inf.

    The engine samples from these and the trainer scores with these, so that a banned token has
    probability 0 for both. Rows of the vocabulary that no token uses (it is padded to a round number)
    take part in the softmax, as they do in vLLM.

    Args:
        hidden_ND: final hidden states, in the compute dtype.
        head_DV: the output head in the same dtype; products are summed in float32.
        banned: tokens that can never be sampled, such as the image placeholder.
    """
    logits_NV = jnp.einsum("nd,dv->nv", hidden_ND, head_DV, preferred_element_type=jnp.float32)
    if not banned:
        return logits_NV
    return logits_NV.at[:, jnp.array(banned, jnp.int32)].set(-jnp.inf)


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

    Both `[N, T]`, float32. The entropy is to be looked at: no gradient goes through it.

    Args:
        hidden_NTD: the hidden states that predict each token.
        head_DV: the output head, cast to the dtype of the hidden states.
        token_NT: the tokens whose log-probability is wanted.
        temperature: of the sampling. The policy is what acts, so its log-probs are those at the
            temperature that it acts with.
        banned: tokens that can never be sampled; they have log-probability -inf.
        chunk: tokens whose logits exist at the same time, on each device.
        place: where the answers live. N must be a multiple of `place.ways`.
    """
    N, T = hidden_NTD.shape[:2]
    num_tokens = N * T // place.ways  # of one device
    chunk = min(chunk, num_tokens)
    pad = -num_tokens % chunk

    # Chunks are cut out of each device's own tokens. Cut across devices, every chunk would have to be
    # gathered from one of them while the others wait.
    def chunks(x_NT):
        """Returns `x_NT` as [chunks, devices, tokens of a chunk, ...]."""
        x = x_NT.reshape(place.ways, num_tokens, *x_NT.shape[2:])
        x = jnp.pad(x, ((0, 0), (0, pad), *[(0, 0)] * (x.ndim - 2)))
        return jnp.swapaxes(x.reshape(place.ways, -1, chunk, *x.shape[2:]), 0, 1)

    one = functools.partial(_chunk_logp, temperature=temperature, banned=banned)
    hidden, token = chunks(hidden_NTD), chunks(jnp.asarray(token_NT))

    def back(x):
        x = jnp.swapaxes(x, 0, 1).reshape(place.ways, -1)
        return place.rows(x[:, :num_tokens].reshape(N, T))

    return Tokens(*map(back, _chunked_logp(one, place, hidden, head_DV, token)))


def _chunk_logp(hidden_ND, head_DV, token_N, *, temperature, banned):
    """Returns `logp_N` and `entropy_N` of one chunk on one device."""
    logits_NV = logits(hidden_ND, head_DV, banned=banned) / temperature
    logp_NV = logits_NV - jax.nn.logsumexp(logits_NV, axis=-1, keepdims=True)
    # A banned token has probability 0 and log-probability -inf: its term is 0, not NaN.
    terms_NV = jnp.where(jnp.isfinite(logp_NV), jnp.exp(logp_NV) * logp_NV, 0)
    chosen_N = jnp.take_along_axis(logp_NV, token_N[:, None], 1)[:, 0]
    return chosen_N, -jnp.sum(terms_NV, axis=-1)


# A custom_vjp and not jax.checkpoint: differentiated by JAX, the loop over chunks would add up the
# gradient of the head in the head's compute dtype, and in bfloat16 a sum stops growing once its terms
# are below 1/256 of it. It would also reduce that gradient over the devices in every chunk. Here it is
# summed in float32, on each device by itself, and reduced once after the loop.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked_logp(one, place, hidden, head_DV, token):
    """Returns `one` of every chunk on every device; the leading axes are [chunks, devices]."""
    heads = _head_per_device(place, head_DV, hidden.dtype)
    return jax.lax.map(lambda xs: jax.vmap(one)(xs[0], heads, xs[1]), (hidden, token))


def _forward(one, place, hidden, head_DV, token):
    return _chunked_logp(one, place, hidden, head_DV, token), (hidden, head_DV, token)


def _backward(one, place, residuals, gradients):
    """Makes the logits of each chunk again and differentiates them on the spot."""
    hidden, head_DV, token = residuals
    dlogp, _ = gradients  # the entropy's is not asked for
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
    """Returns the head in the compute dtype, `[devices, D, V]`: one whole copy on each device.

    The leading axis is what keeps the devices' gradients of it apart until `_backward` sums them. It
    is made before the loop, so the head is gathered once a pass and not once a chunk.
    """
    heads = jnp.broadcast_to(arrays.rounded(head_DV, dtype), (place.ways, *head_DV.shape))
    return place.rows(heads)
