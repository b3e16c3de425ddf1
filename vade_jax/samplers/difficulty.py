"""DIVA's difficulty of problems, from 1 to 9: how answers move it, and what its variants get.

From DIVA-GRPO (arXiv 2603.01106) and, where it says so, its public code.
"""

import fractions
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array

EASIEST, HARDEST, FIRST = 1.0, 9.0, 5.0
TARGET = (9, 8, 7, 6, 6, 5, 5, 5, 4)  # of an only variant, by the problem's difficulty
TARGET_MEAN = (8, 7.5, 7, 6.5, 6, 5.5, 4.5, 3.5, 3)  # of several
TABLE = ((0.05, 2), (0.3, 1), (0.5, 0), (0.7, -1), (1.0, -2))
_HARDER = 4  # what takes the place of an easier variant is 0 .. 3 harder


def linear(
    difficulty_I: Array, score_I: Array, count_I: Array, eta: float
) -> jax.Array:
    """Returns D + eta (0.5 - s) within [1, 9], the paper's rule; D where nothing was counted.

    Args:
        difficulty_I: D.
        score_I: the sum of the scores of the answers to each problem.
        count_I: how many these are; s is the mean.
        eta: step size.
    """
    mean_I = score_I / jnp.maximum(count_I, 1)
    change_I = jnp.where(count_I > 0, eta * (0.5 - mean_I), 0)
    return jnp.clip(difficulty_I + change_I, EASIEST, HARDEST)


def by_table(
    difficulty_I: Array,
    score_I: Array,
    count_I: Array,
    table: Sequence[tuple[float, float]] = TABLE,
    room: float = 0.0,
) -> jax.Array:
    """Returns D plus the change of the range that s lies in, within [1, 9], as the code does.

    The first (highest, change) with s <= highest is taken, none for s outside of all. Sums of right
    answers are compared as whole numbers, n s <= m c for highest = m / n: 3 of 10 lie in the range
    that ends at 0.3. For other sums, `room` widens the ranges.
    """
    change_I = jnp.zeros_like(difficulty_I)
    for highest, change in reversed(table):
        edge = fractions.Fraction(str(highest))
        most_I = (edge.numerator + room * edge.denominator) * count_I
        inside_I = score_I * edge.denominator <= most_I
        change_I = jnp.where(inside_I, jnp.float32(change), change_I)
    counted_I = (count_I > 0) & (score_I >= 0)
    return jnp.clip(difficulty_I + jnp.where(counted_I, change_I, 0), EASIEST, HARDEST)


def wanted(key: jax.Array, difficulty_Q: Array, num_variants: int) -> jax.Array:
    """Returns the difficulties wanted of the variants of each problem, [Q, num_variants].

    They lie whole steps away from the problem's own, within [1, 9]. One variant gets `TARGET`.
    Several get a normal draw around `TARGET_MEAN` with standard deviation 1, rounded; of easier
    ones a problem keeps the first, and each further one becomes 0 to 3 steps harder than the
    problem instead. Between whole difficulties the targets are interpolated.
    """
    own_Q1 = difficulty_Q[:, None]
    if num_variants == 1:
        delta_QU = jnp.round(_between(TARGET, own_Q1) - own_Q1)
    else:
        delta_QU = _several(key, own_Q1, num_variants)
    least_Q1, most_Q1 = jnp.ceil(EASIEST - own_Q1), jnp.floor(HARDEST - own_Q1)
    return own_Q1 + jnp.clip(delta_QU, least_Q1, most_Q1)


def _several(key, own_Q1, num_variants):
    shape = len(own_Q1), num_variants
    target_key, instead_key = jax.random.split(key)
    target_QU = _between(TARGET_MEAN, own_Q1) + jax.random.normal(target_key, shape)
    target_QU = jnp.clip(jnp.round(target_QU), EASIEST, HARDEST)
    delta_QU = jnp.round(target_QU - own_Q1)
    easier_QU = delta_QU < 0
    again_QU = easier_QU & (jnp.cumsum(easier_QU, axis=1) > 1)
    return jnp.where(
        again_QU, jax.random.randint(instead_key, shape, 0, _HARDER), delta_QU
    )


def _between(target, difficulty):
    return jnp.interp(difficulty, np.arange(1.0, 10.0), np.array(target, float))
