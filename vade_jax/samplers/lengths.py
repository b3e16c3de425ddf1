"""How many tokens an answer to an item takes: decayed totals beside the counts of right and wrong answers.

Answers are not equal. A long one takes longer to make and to learn from, and the longest holds up its step.
"""

import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.types import Array


def of_groups(feedback: types.Feedback) -> jax.Array:
    """Returns token_M, the tokens of all valid answers of a group."""
    token_N = feedback.length_N * feedback.valid_N
    return jax.ops.segment_sum(token_N.astype(jnp.float32), feedback.group_N, len(feedback.index_M))


def expected(token_I: Array, count_I: Array) -> Array:
    """Returns the expected tokens of an answer to each item.

    The item's own mean, with the mean over all items as one more answer: an item without answers is taken
    to be like the others, and one answer does not decide.

    Args:
        token_I: decayed tokens of its answers.
        count_I: the number of these answers, decayed alike.
    """
    total, count = jnp.sum(token_I), jnp.sum(count_I)
    mean = jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 1.0)
    return (token_I + mean) / (count_I + 1)
