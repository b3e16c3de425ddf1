"""Log-probabilities over a large vocabulary, a chunk of tokens at a time.

The logits of a 4,096-token batch over 151,936 rows are 2.5 GB in float32, and a backward pass wants
several copies. A checkpointed scan over chunks of tokens holds one chunk's logits instead.
"""

import jax
import jax.numpy as jnp

from vade_jax.models import vocabulary
from vade_jax.types import Array


def selected(
    hidden_NTD: Array,
    head_DV: Array,
    token_NT: Array,
    *,
    temperature: float = 1.0,
    banned: tuple[int, ...] = (),
    chunk: int = 1024,
) -> jax.Array:
    """Returns `logp_NT`, float32: log softmax(hidden . head / temperature)[token].

    Args:
        hidden_NTD: the states that predict each token.
        head_DV: the output head; every row of the vocabulary takes part.
        token_NT: the tokens.
        temperature: of the sampling; the policy's log-probs are at the temperature it acts with.
        banned: rows that can never be sampled; their probability is 0 here as in the engine.
        chunk: tokens whose logits are held at once.
    """
    N, T, D = hidden_NTD.shape
    num_tokens = N * T
    chunk = min(chunk, num_tokens)
    pad = -num_tokens % chunk
    hidden = jnp.pad(hidden_NTD.reshape(num_tokens, D), ((0, pad), (0, 0)))
    token = jnp.pad(token_NT.reshape(num_tokens), (0, pad))

    @jax.checkpoint
    def chunk_logp(hidden_ND, token_N):
        logits_NV = vocabulary.logits(hidden_ND, head_DV, banned=banned) / temperature
        chosen_N = jnp.take_along_axis(logits_NV, token_N[:, None], 1)[:, 0]
        return chosen_N - jax.nn.logsumexp(logits_NV, axis=-1)

    logp = jax.lax.map(
        lambda args: chunk_logp(*args),
        (hidden.reshape(-1, chunk, D), token.reshape(-1, chunk)),
    )
    return logp.reshape(-1)[:num_tokens].reshape(N, T)
