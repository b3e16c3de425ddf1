"""GRESO: streaks and probabilities by hand, skipping by frequency."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import filters


def test_streaks_by_hand():
    selector = filters.GRESO()
    state = selector.init(5).replace(streak_I=jnp.array([2, 2, 2, -1, 3]))
    # all right, all wrong, mixed, all wrong, no answer
    feedback = environment.counts([0, 1, 2, 3, 4], [8, 0, 3, 0, 0], [8, 8, 8, 8, 0])
    assert selector.update(state, feedback).streak_I.tolist() == [3, -1, 0, -2, 3]
    assert selector.keep(state, feedback).tolist() == [False, False, True, False, False]


def test_probabilities_follow_their_targets_from_the_second_epoch_on():
    """Targets .25/3 and .25 x 2/3: of 6, one all right (.167), one all wrong (.167, met)."""
    selector = filters.GRESO()
    feedback = environment.counts([0, 1, 2, 3, 4, 5], [8, 0, 3, 4, 5, 6])
    first = selector.update(selector.init(6), feedback)
    np.testing.assert_allclose([first.p_easy, first.p_hard], 0.5)
    later = selector.init(6).replace(epoch_I=jnp.zeros(6, jnp.int32))
    state = selector.update(later, feedback)
    np.testing.assert_allclose([state.p_easy, state.p_hard], [0.49, 0.49], rtol=1e-6)
    few = environment.counts([0, 1, 2, 3, 4, 5], [3, 4, 3, 4, 5, 6])
    state = selector.update(later, few)
    np.testing.assert_allclose([state.p_easy, state.p_hard], [0.51, 0.51], rtol=1e-6)
    bounded = filters.GRESO(p_easy=0.05, p_hard=0.95)
    later = bounded.init(6).replace(epoch_I=jnp.zeros(6, jnp.int32))
    all_right = environment.counts([0, 1, 2, 3, 4, 5], [8] * 6)
    state = bounded.update(later, all_right)
    np.testing.assert_allclose([state.p_easy, state.p_hard], [0.05, 0.95], rtol=1e-6)


@pytest.mark.parametrize(
    ("streak", "keep"), [(0, 1.0), (1, 0.5), (-1, 0.25), (3, 0.125), (-9, 0.01)]
)
def test_epochs_skipped_are_geometric(streak, keep):
    """P(skipped = k) = keep (1 - keep)^k, over 20,000 lucks."""
    size, selector = 20_000, filters.GRESO(p_hard=0.25)
    state = selector.init(size).replace(
        streak_I=jnp.full(size, streak), luck_I=(jnp.arange(size) + 0.5) / size
    )
    skipped_I = np.asarray(filters.due(state))
    share_K = [np.mean(skipped_I == k) for k in range(4)]
    expected_K = [keep * (1 - keep) ** k for k in range(4)]
    np.testing.assert_allclose(share_K, expected_K, atol=2e-4)
