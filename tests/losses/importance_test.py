"""Importance weights by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import importance

OLD = jnp.log(jnp.array([[0.6, 0.3, 0.9], [0.5, 0.1, 0.9]]))
ROLLOUT = jnp.log(jnp.array([[0.4, 0.1, 0.1], [0.5, 0.2, 0.1]]))
MASK = jnp.array([[1.0, 1, 0], [1, 1, 0]])


def test_token():
    weight_NT = importance.truncated(OLD, ROLLOUT, MASK)
    np.testing.assert_allclose(weight_NT, [[1.5, 2, 0], [1, 0.5, 0]], rtol=1e-6)
    weight_NT = importance.truncated(OLD, ROLLOUT, MASK, cap=10.0)
    np.testing.assert_allclose(weight_NT, [[1.5, 3, 0], [1, 0.5, 0]], rtol=1e-6)


def test_sequence_is_the_product():
    weight_NT = importance.truncated(OLD, ROLLOUT, MASK, level="sequence", cap=10.0)
    np.testing.assert_allclose(weight_NT, [[4.5, 4.5, 0], [0.5, 0.5, 0]], rtol=1e-6)


def test_banded_drops_what_is_outside():
    weight_NT = importance.banded(OLD, ROLLOUT, MASK, low=0.6, high=2.0)
    np.testing.assert_allclose(weight_NT, [[1.5, 0, 0], [1, 0, 0]], rtol=1e-6)


def test_normalized_has_mean_one():
    weight_NT = importance.truncated(OLD, ROLLOUT, MASK)
    weight_NT = importance.normalized(weight_NT, MASK)
    np.testing.assert_allclose(jnp.sum(weight_NT * MASK) / 4, 1, rtol=1e-6)


def test_equal_policies_weigh_one():
    for level in importance.LEVELS:
        weight_NT = importance.truncated(OLD, OLD, MASK, level=level)
        np.testing.assert_array_equal(weight_NT, MASK)


def test_unknown_level():
    with pytest.raises(ValueError, match=r"'word'.*sequence"):
        importance.truncated(OLD, ROLLOUT, MASK, level="word")
