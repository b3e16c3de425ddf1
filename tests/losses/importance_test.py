"""Importance weights by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import importance

OLD = jnp.log(jnp.array([[0.6, 0.3, 0.9], [0.5, 0.1, 0.9]]))
ROLLOUT = jnp.log(jnp.array([[0.4, 0.1, 0.1], [0.5, 0.2, 0.1]]))
MASK = jnp.array([[1.0, 1, 0], [1, 1, 0]])


@pytest.mark.parametrize(
    ("weigh", "options", "expected"),
    [
        (importance.truncated, {}, [[1.5, 2, 0], [1, 0.5, 0]]),
        (importance.truncated, {"cap": 10}, [[1.5, 3, 0], [1, 0.5, 0]]),
        # the product over the answer
        (
            importance.truncated,
            {"cap": 10, "level": "sequence"},
            [[4.5, 4.5, 0], [0.5, 0.5, 0]],
        ),
        (importance.banded, {"low": 0.6, "high": 2}, [[1.5, 0, 0], [1, 0, 0]]),
    ],
)
def test_weights(weigh, options, expected):
    weight_NT = weigh(OLD, ROLLOUT, MASK, **options)
    np.testing.assert_allclose(weight_NT, expected, rtol=1e-6)
    level = options.get("level", "token")
    np.testing.assert_array_equal(weigh(OLD, OLD, MASK, level=level), MASK)


def test_unknown_level():
    with pytest.raises(ValueError, match=r"'word'.*sequence"):
        importance.truncated(OLD, ROLLOUT, MASK, level="word")
