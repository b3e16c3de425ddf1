"""Importance weights by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import importance

OLD = jnp.log(jnp.array([[0.6, 0.3, 0.9], [0.5, 0.1, 0.9]]))
ROLLOUT = jnp.log(jnp.array([[0.4, 0.1, 0.1], [0.5, 0.2, 0.1]]))
MASK = jnp.array([[1.0, 1, 0], [1, 1, 0]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[1.5, 2, 0], [1, 0.5, 0]]),
        ({"cap": 10}, [[1.5, 3, 0], [1, 0.5, 0]]),
        # the product over the answer
        ({"cap": 10, "level": "sequence"}, [[4.5, 4.5, 0], [0.5, 0.5, 0]]),
    ],
)
def test_weights(options, expected):
    weight_NT = importance.truncated(OLD, ROLLOUT, MASK, **options)
    np.testing.assert_allclose(weight_NT, expected, rtol=1e-6)
    level = options.get("level", "token")
    same_NT = importance.truncated(OLD, OLD, MASK, level=level)
    np.testing.assert_array_equal(same_NT, MASK)


def test_unknown_level():
    with pytest.raises(ValueError, match=r"'word'.*sequence"):
        importance.truncated(OLD, ROLLOUT, MASK, level="word")
