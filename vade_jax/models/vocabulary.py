"""From hidden states to the distribution the policy acts with."""

import jax
import jax.numpy as jnp

from vade_jax.types import Array


def logits(
    hidden_ND: Array, head_DV: Array, *, banned: tuple[int, ...] = ()
) -> jax.Array:
    """Returns float32 `logits_NV`, with the rows that can never be sampled at -inf.

    Engine and trainer both come here: a banned token has probability 0 for both. Rows without a
    token stay in, as in vLLM's softmax.
    """
    logits_NV = jnp.einsum(
        "nd,dv->nv", hidden_ND, head_DV, preferred_element_type=jnp.float32
    )
    if not banned:
        return logits_NV
    return logits_NV.at[:, jnp.array(banned, jnp.int32)].set(-jnp.inf)
