"""DAPO: which groups are kept, around any selector."""

import chex
import jax
import jax.numpy as jnp
import pytest

from tests.samplers import environment
from vade_jax import samplers
from vade_jax.samplers import baselines


def feedback():
    """All wrong, mixed, all right, no answer, one answer; rewards differ in the first."""
    counted = environment.counts(range(5), [0, 1, 2, 0, 1], [2, 2, 2, 0, 1])
    return counted.replace(
        group_N=jnp.repeat(jnp.arange(5), 2),
        reward_N=jnp.array([0.0, 0.1, 0, 1, 1, 1, 0, 1, 0, 1]),
        valid_N=jnp.array([True] * 6 + [False] * 3 + [True]),
    )


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("mixed", [False, True, False, False, False]),
        ("varied", [True, True, False, False, False]),
    ],
)
def test_groups_kept(keep, expected):
    keep_M = baselines.DAPO(num_rollouts=2, keep=keep).keep(None, feedback())
    assert keep_M.tolist() == expected


@pytest.mark.parametrize("name", ["uniform", "vade"])
def test_the_rest_is_the_base(name):
    options = {"decay_rest": 0.5} if name == "vade" else {}
    plain = samplers.SAMPLERS[name](num_rollouts=3, **options)
    wrapped = baselines.DAPO(num_rollouts=3, base=name, base_options=options)
    state, key = plain.init(5), jax.random.key(0)
    chex.assert_trees_all_equal(wrapped.init(5), state)
    chex.assert_trees_all_equal(wrapped.propose(state, key, 2), plain.propose(state, key, 2))
    after = wrapped.update(state, feedback())
    chex.assert_trees_all_equal(after, plain.update(state, feedback()))
