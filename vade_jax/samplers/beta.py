"""The Beta posterior of every item's pass rate: drawing, decaying, scoring.

`alpha_I` and `beta_I` are decayed counts of right and wrong answers; the posterior of the pass
rate p is Beta(alpha + 1, beta + 1), so both shapes are at least 1 and one rejection sampler does.
Inside `draw`, items lie in Q words of Z = 32, one bit an item.
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array

INFO_GAINS = {
    "p(1-p)^2": lambda p: p * (1 - p) * (1 - p),
    "p(1-p)": lambda p: p * (1 - p),
}
EXPECTED_INFO_GAINS = {
    "p(1-p)^2": lambda a, b: a / (a + b) * (b / (a + b + 1)) * ((b + 1) / (a + b + 2)),
    "p(1-p)": lambda a, b: a / (a + b) * (b / (a + b + 1)),
}


# ------------------------------------------------------------------------------ drawing
def draw(key: jax.Array, alpha_I: Array, beta_I: Array) -> jax.Array:
    """Returns one draw p ~ Beta(alpha + 1, beta + 1) for every item.

    p = x / (x + y) with x ~ Gamma(alpha + 1), y ~ Gamma(beta + 1): line 6 of Algorithm 1 of VADE
    (arXiv 2511.18902). `key` decides all draws; an item's draw depends on its index and counts
    only, so a sharded call returns the same numbers up to rounding. Exact up to float32: normals
    and uniforms have 23 bits, as in `jax.random`. A NaN count gives NaN.
    """
    chex.assert_rank([alpha_I, beta_I], 1)
    chex.assert_equal_shape([alpha_I, beta_I])
    words = jax.random.bits(key, (2, 2), jnp.uint32)
    x_I = _gamma(words[0], alpha_I + 1)
    y_I = _gamma(words[1], beta_I + 1)
    return x_I / (x_I + y_I)


def _gamma(words: jax.Array, shape_I: Array) -> jax.Array:
    """Returns x ~ Gamma(shape), shape >= 1, redrawing until every item has been accepted.

    The first pass proposes for all items at once and leaves the rejected ones (under 5 %) as set
    bits of one word per 32 items. Each later pass redraws the lowest set bit of every word: a
    32nd of the work, local to the word, without a compaction over the whole array.
    """
    num_items = len(shape_I)
    # Whole words, also because XLA on CPU vectorises no odd length (5x slower).
    shape_I = jnp.pad(shape_I, (0, -num_items % 32), constant_values=1)
    item_I = jnp.arange(len(shape_I), dtype=jnp.uint32)
    gamma_I = _propose_gamma(words, item_I, jnp.uint32(0), shape_I)
    bit_Z = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
    rejected_QZ = gamma_I.reshape(-1, 32) <= 0
    todo_Q = jnp.sum(rejected_QZ * bit_Z, axis=1, dtype=jnp.uint32)
    first_Q = jnp.arange(len(todo_Q), dtype=jnp.uint32) * 32
    get = jax.vmap(lambda row_Z, z: row_Z.at[z].get(mode="clip"))
    put = jax.vmap(lambda row_Z, z, x: row_Z.at[z].set(x, mode="drop"))

    def redraw(carry):
        count, gamma_I, todo_Q = carry
        bit_Q = todo_Q & (~todo_Q + 1)  # the lowest set bit, 0 if there is none
        column_Q = jax.lax.population_count(bit_Q - 1)  # 32 if there is none
        shape_Q = get(shape_I.reshape(-1, 32), column_Q)
        new_Q = _propose_gamma(words, first_Q + column_Q, count, shape_Q)
        gamma_I = put(gamma_I.reshape(-1, 32), column_Q, new_Q).reshape(-1)
        return count + 1, gamma_I, jnp.where(new_Q <= 0, todo_Q, todo_Q ^ bit_Q)

    carry = jnp.uint32(1), gamma_I, todo_Q
    _, gamma_I, _ = jax.lax.while_loop(lambda c: jnp.any(c[2] > 0), redraw, carry)
    return gamma_I[:num_items]


def _propose_gamma(
    words: jax.Array, item_I: Array, count: jax.Array, shape_I: Array
) -> jax.Array:
    """Returns an accepted x ~ Gamma(shape), or 0 where this proposal was rejected.

    d = shape - 1/3, t = z / sqrt(9 d), v = (1 + t)^3: accept x = d v if
    log u < z^2/2 + d (1 - v + log v) (Marsaglia and Tsang 2000, doi 10.1145/358407.358414), here
    expanded in t: no two large terms cancel up to shapes of 1e4 and beyond.
    """
    z_bits_I, u_bits_I = _threefry(words, item_I, jnp.broadcast_to(count, item_I.shape))
    z_I = jnp.sqrt(2.0) * jax.lax.erf_inv(2 * _unit(z_bits_I) - 1)
    d_I = shape_I - 1 / 3
    t_I = z_I * jax.lax.rsqrt(9 * d_I)
    log_v_I = 3 * jnp.log1p(jnp.maximum(t_I, -1))
    accept_I = z_I * z_I / 6 - d_I * t_I * (3 + t_I * t_I) + d_I * log_v_I
    x_I = d_I * (1 + t_I) * (1 + t_I) * (1 + t_I)
    return jnp.where(accept_I <= jnp.log(_unit(u_bits_I)), 0.0, x_I)  # NaN stays NaN


def _unit(bits_I: Array) -> jax.Array:
    """Returns uniforms in (0, 1): the centres of 2^23 equal cells."""
    one_to_two_I = jax.lax.bitcast_convert_type(
        (bits_I >> 9) | jnp.uint32(0x3F800000), jnp.float32
    )
    return one_to_two_I - jnp.float32(1 - 2**-24)


def _threefry(words: jax.Array, high_I: Array, low_I: Array) -> tuple[Array, Array]:
    """Returns two random words for every counter (high, low): Threefry-2x32, 20 rounds.

    The generator of `jax.random` itself (Salmon et al. 2011), but inline: on CPU JAX lowers its
    own to a loop over stored intermediates, and returns one word an item where two are needed.
    """
    schedule = (words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(0x1BD11BDA))
    high_I, low_I = high_I + schedule[0], low_I + schedule[1]
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            high_I = high_I + low_I
            low_I = ((low_I << r) | (low_I >> (32 - r))) ^ high_I
        high_I = high_I + schedule[(i + 1) % 3]
        low_I = low_I + schedule[(i + 2) % 3] + jnp.uint32(i + 1)
    return high_I, low_I


# ------------------------------------------------------------------------------ counting
def decay_and_count(
    alpha_I: Array,
    beta_I: Array,
    index_M: Array,
    successes_M: Array,
    trials_M: Array,
    *,
    decay_selected: float,
    decay_rest: float,
) -> tuple[jax.Array, jax.Array]:
    """Returns both counts after one step, Eq. 5 and 6 of VADE (arXiv 2511.18902).

    selected: (alpha, beta) <- (lambda_1 alpha + r, lambda_1 beta + n - r); rest: both times
    lambda_2. n counts valid answers; a prompt that brought none (n = 0) is one of the rest, for
    nothing was observed that could replace its history.
    """
    chex.assert_rank([alpha_I, beta_I, index_M, successes_M, trials_M], 1)
    chex.assert_equal_shape([alpha_I, beta_I])
    chex.assert_equal_shape([index_M, successes_M, trials_M])
    decay_M = jnp.where(trials_M > 0, decay_selected, decay_rest)

    def count(count_I, new_M):
        selected_M = decay_M * count_I[index_M] + new_M
        return (decay_rest * count_I).at[index_M].set(selected_M)

    return count(alpha_I, successes_M), count(beta_I, trials_M - successes_M)


# ------------------------------------------------------------------------------ scoring
def posterior_mean(alpha_I: Array, beta_I: Array) -> jax.Array:
    """Returns E[p] = (alpha + 1) / (alpha + beta + 2)."""
    return (alpha_I + 1) / (alpha_I + beta_I + 2)


def info_gain(p_I: Array, form: str = "p(1-p)^2") -> jax.Array:
    """Returns I(p) = p (1 - p)^2, Eq. 4 of VADE (arXiv 2511.18902), or its ablation p (1 - p)."""
    return INFO_GAINS[form](p_I)


def expected_info_gain(
    alpha_I: Array, beta_I: Array, form: str = "p(1-p)^2"
) -> jax.Array:
    """Returns E[I(p)] under the posterior, in closed form, with a = alpha + 1, b = beta + 1.

    E[p (1-p)^2] = a b (b+1) / ((a+b) (a+b+1) (a+b+2)); E[p (1-p)] = a b / ((a+b) (a+b+1)).
    """
    return EXPECTED_INFO_GAINS[form](alpha_I + 1, beta_I + 1)


def prob_mixed(alpha_I: Array, beta_I: Array, num_rollouts: int | Array) -> jax.Array:
    """Returns the predictive probability that G answers are neither all right nor all wrong.

    1 - B(a+G, b) / B(a, b) - B(a, b+G) / B(a, b) with a = alpha + 1, b = beta + 1. As
    B(a+G, b) / B(a, b) = prod_k (a+k) / (a+b+k), the likelier of the two is taken from 1 by
    expm1 of a sum of log1p: lgamma would lose all digits for large counts.
    """
    a_I = jnp.maximum(alpha_I, beta_I) + 1.0
    b_I = jnp.minimum(alpha_I, beta_I) + 1.0

    def add(k, logs):
        on_I, total_I = k < num_rollouts, a_I + b_I + k
        return (
            logs[0] + jnp.where(on_I, jnp.log1p(-b_I / total_I), 0),
            logs[1] + jnp.where(on_I, jnp.log((b_I + k) / total_I), 0),
        )

    zeros = jnp.zeros_like(a_I), jnp.zeros_like(a_I)
    logs = jax.lax.fori_loop(0, jnp.max(jnp.asarray(num_rollouts)), add, zeros)
    return -jnp.expm1(logs[0]) - jnp.exp(logs[1])
