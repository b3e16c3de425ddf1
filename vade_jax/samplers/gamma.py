"""Gamma draws for all items at once, by rejection sampling. A Beta draw is made of two of them.

On CPU, `jax.random.gamma` loops over the items. Here all items are proposed together, and only the few
that are rejected are drawn again. Inside `draw`, Z = 32 items share one of Q words, one bit per item.
"""

import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.types import Array


def draw(words: jax.Array, shape_I: Array) -> jax.Array:
    """Returns x ~ Gamma(shape) for every item, by redrawing until all are accepted.

    An item's draw depends only on `words`, its index and its shape, not on the other items.

    Args:
        words: two random uint32, the key of all draws.
        shape_I: at least 1. NaN gives NaN.
    """
    num_items = len(shape_I)
    shape_I = arrays.padded(shape_I)  # to whole words of 32 items
    item_I = jnp.arange(len(shape_I), dtype=jnp.uint32)
    gamma_I = _propose(words, item_I, jnp.uint32(0), shape_I)

    # Under 5 % are rejected. They are kept as the set bits of one word per 32 items. `nonzero` would have
    # to compact the whole array in every iteration.
    bit_Z = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
    rejected_QZ = gamma_I.reshape(-1, 32) <= 0
    todo_Q = jnp.sum(rejected_QZ * bit_Z, axis=1, dtype=jnp.uint32)
    first_Q = jnp.arange(len(todo_Q), dtype=jnp.uint32) * 32
    get = jax.vmap(lambda row_Z, z: row_Z.at[z].get(mode="clip"))
    put = jax.vmap(lambda row_Z, z, x: row_Z.at[z].set(x, mode="drop"))

    def redraw(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Redraws the item at the lowest set bit of every word: 1/32 of the work of the first proposal."""
        count, gamma_I, todo_Q = carry
        bit_Q = todo_Q & (~todo_Q + 1)  # the lowest set bit, 0 if there is none
        # 32 if no bit is set: `get` then clips, and `put` drops the result
        column_Q = jax.lax.population_count(bit_Q - 1)
        shape_Q = get(shape_I.reshape(-1, 32), column_Q)
        new_Q = _propose(words, first_Q + column_Q, count, shape_Q)
        gamma_I = put(gamma_I.reshape(-1, 32), column_Q, new_Q).reshape(-1)
        # Accepted: the bit is cleared. Rejected again: it stays for the next iteration.
        return count + 1, gamma_I, jnp.where(new_Q <= 0, todo_Q, todo_Q ^ bit_Q)

    carry = jnp.uint32(1), gamma_I, todo_Q
    _, gamma_I, _ = jax.lax.while_loop(lambda c: jnp.any(c[2] > 0), redraw, carry)
    return gamma_I[:num_items]


def uniforms(words: jax.Array, item_I: Array) -> tuple[jax.Array, jax.Array]:
    """Returns two uniforms in (0, 1) for every item, given by its number; `words` are two random uint32."""
    first_I, second_I = _threefry(words, item_I, jnp.zeros_like(item_I))
    return _unit(first_I), _unit(second_I)


def _propose(words: jax.Array, item_I: Array, count: jax.Array, shape_I: Array) -> jax.Array:
    """Returns an accepted x ~ Gamma(shape), or 0 where this proposal was rejected.

    With z a standard normal, u uniform, d = shape - 1/3, t = z / sqrt(9 d) and v = (1 + t)^3, x = d v is
    accepted if log u < z^2/2 + d (1 - v + log v) (Marsaglia and Tsang 2000, doi 10.1145/358407.358414).
    The right side is expanded in t here, so that no two large terms cancel, up to shapes beyond 1e4.
    """
    # The counter is (item, iteration), so redraws of an item never reuse its random words.
    z_bits_I, u_bits_I = _threefry(words, item_I, jnp.broadcast_to(count, item_I.shape))
    z_I = jnp.sqrt(2.0) * jax.lax.erf_inv(2 * _unit(z_bits_I) - 1)  # a standard normal
    d_I = shape_I - 1 / 3
    t_I = z_I * jax.lax.rsqrt(9 * d_I)
    # t <= -1 makes v <= 0, outside of the support. log v is then -inf, and the proposal is rejected.
    log_v_I = 3 * jnp.log1p(jnp.maximum(t_I, -1))
    accept_I = z_I * z_I / 6 - d_I * t_I * (3 + t_I * t_I) + d_I * log_v_I
    x_I = d_I * (1 + t_I) * (1 + t_I) * (1 + t_I)
    # `<=` is False for NaN, so a NaN counts as accepted. Otherwise the loop would never end.
    return jnp.where(accept_I <= jnp.log(_unit(u_bits_I)), 0.0, x_I)


def _unit(bits_I: Array) -> jax.Array:
    """Returns uniforms in (0, 1), never 0 or 1: the centres of 2^23 equal cells."""
    # The upper 23 bits become the mantissa of a float in [1, 2).
    one_to_two_I = jax.lax.bitcast_convert_type((bits_I >> 9) | jnp.uint32(0x3F800000), jnp.float32)
    return one_to_two_I - jnp.float32(1 - 2**-24)


def _threefry(words: jax.Array, high_I: Array, low_I: Array) -> tuple[Array, Array]:
    """Returns two random words for every counter (high, low): Threefry-2x32, 20 rounds.

    This is the generator of `jax.random` (Salmon et al. 2011), written inline. On CPU, JAX lowers its own
    to a loop that stores intermediate arrays, and returns one word per item where two are needed.
    """
    schedule = (words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(0x1BD11BDA))
    high_I, low_I = high_I + schedule[0], low_I + schedule[1]
    for i in range(5):  # groups of four rounds, with a part of the key added after each
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            high_I = high_I + low_I
            low_I = ((low_I << r) | (low_I >> (32 - r))) ^ high_I
        high_I = high_I + schedule[(i + 1) % 3]
        low_I = low_I + schedule[(i + 2) % 3] + jnp.uint32(i + 1)
    return high_I, low_I
