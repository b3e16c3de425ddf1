"""Pooled: what is known of a category stands in for what is not known of an item."""

import jax
import numpy as np
from scipy import integrate, stats

from tests.samplers import environment
from vade_jax.samplers import categories

CATEGORIES = ["b", "b", "a", "a"]


def weight(alpha, beta, num_rollouts=8):
    """The chance of a mixed group, by quadrature."""
    density = stats.beta(alpha + 1, beta + 1).pdf
    mixed = lambda p: 1 - p**num_rollouts - (1 - p) ** num_rollouts
    return integrate.quad(lambda p: mixed(p) * density(p), 0, 1)[0]


def test_counts_of_items_and_categories_by_hand():
    selector = categories.POOLED(decay_selected=0.5, decay_rest=0.75, memory=0.8)
    state = selector.init(4, category=CATEGORIES)
    assert state.category_I.tolist() == [1, 1, 0, 0]
    state = selector.update(state, environment.counts([0, 2], [8, 2], [8, 8]))
    state = selector.update(state, environment.counts([0, 1], [1, 4], [8, 8]))
    np.testing.assert_allclose(state.alpha_I, [0.5 * 8 + 1, 4, 0.75 * 2, 0], rtol=1e-6)
    np.testing.assert_allclose(state.beta_I, [7, 4, 0.75 * 6, 0], rtol=1e-6)
    np.testing.assert_allclose(state.right_A, [0.8 * 2, 0.8 * 8 + 5], rtol=1e-6)
    np.testing.assert_allclose(state.wrong_A, [0.8 * 6, 11], rtol=1e-6)
    # Of category "a" 1.6 of 8 x .8 answers are right, and half of the one that every category has.
    alpha_I, beta_I = categories.posterior(state, strength=4.0)
    rate = (1.6 + 0.5) / (6.4 + 1)
    np.testing.assert_allclose(alpha_I[2:] + 1, [1.5 + 4 * rate, 4 * rate], rtol=1e-6)
    np.testing.assert_allclose(beta_I[2:] + 1, [4.5 + 4 * (1 - rate), 4 * (1 - rate)], rtol=1e-6)


def test_an_item_never_seen_is_drawn_by_what_its_category_did():
    """Category 0 was all wrong, 1 mixed; of each half of the items was seen, the others are drawn."""
    selector = categories.POOLED(num_rollouts=8)
    state = selector.init(4, category=[0, 0, 1, 1])
    for _ in range(3):
        state = selector.update(state, environment.counts([0, 2], [0, 4], [8, 8]))
    weight_I = [weight(a, b) for a, b in zip(*categories.posterior(state, 4.0), strict=True)]
    assert weight_I[3] > 8 * weight_I[1] > 8 * weight_I[0] > 0
    draws = [int(selector.propose(state, jax.random.key(k), 1).index_M[0]) for k in range(2000)]
    share_I = np.bincount(draws, minlength=4) / 2000
    np.testing.assert_allclose(share_I, np.array(weight_I) / np.sum(weight_I), atol=0.035)
