"""Groups of 2, 1 and 3 answers: taken, dropped and joined by hand."""

import numpy as np

from tests.trainer import small
from vade_jax.trainer import groups


def test_dropped_groups_become_invalid_and_nothing_else_changes():
    rollouts = small.rollouts([2, 1, 3])
    kept = groups.drop(rollouts, np.array([True, False, True]))
    assert kept.valid_N.tolist() == [True, True, False, True, True, True]
    assert kept.token_NT is rollouts.token_NT and rollouts.valid_N.all()


def test_groups_are_taken_in_any_order_and_more_than_once():
    rollouts = small.rollouts([2, 1, 3])
    taken, order_N = groups.take(rollouts, np.array([2, 0, 2]))
    assert order_N.tolist() == [3, 4, 5, 0, 1, 3, 4, 5]
    assert taken.group_N.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert taken.group_N.dtype == np.int32
    np.testing.assert_array_equal(taken.token_NT, rollouts.token_NT[order_N])
    np.testing.assert_array_equal(taken.length_N, rollouts.length_N[order_N])
    assert taken.params_version == 0


def test_all_of_them_in_order_are_the_same():
    rollouts = small.rollouts([2, 1, 3])
    taken, _ = groups.take(rollouts, np.arange(3))
    for name in rollouts:
        np.testing.assert_array_equal(taken[name], rollouts[name], err_msg=name)
        assert taken[name].dtype == rollouts[name].dtype


def test_parts_are_joined_and_their_groups_counted_on():
    """A group without answers, the last of the first part, counts too."""
    a, b = small.rollouts([2, 1]), small.rollouts([3, 1], seed=1)
    whole = groups.join([a, b], [3, 2])
    assert whole.group_N.tolist() == [0, 0, 1, 3, 3, 3, 4]
    expected_NT = np.concatenate([a.token_NT, b.token_NT])
    np.testing.assert_array_equal(whole.token_NT, expected_NT)
    assert whole.params_version == 0
    alone = groups.join([a], [2])
    for name in a:
        np.testing.assert_array_equal(alone[name], a[name], err_msg=name)
        assert alone[name].dtype == a[name].dtype
