"""Pooled: counts by hand. SEC: values by hand, slots by frequency. Strata: draws by frequency."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


# ------------------------------------------------------------------------------ SEC
CATEGORY = np.array([2, 0, 1, 0, 2, 2])


def test_update_by_hand():
    """r_0 = (.5 + 1.5 + .3) / 3, r_2 = .7; category 1 was not drawn, and the last answer is not valid."""
    selector = categories.SEC(learning_rate=0.5)
    state = selector.init(6, category=CATEGORY)
    state = state.replace(value_A=jnp.array([0.2, 0.8, 0.4]))
    proposal = selector.propose(state, jax.random.key(0), 3).replace(
        index_M=jnp.array([1, 4, 3]), num_rollouts_M=jnp.array([2, 2, 2])
    )
    feedback = environment.feedback(proposal, np.ones(6), np.random.default_rng(0))
    feedback = feedback.replace(
        advantage_N=jnp.array([0.5, -1.5, 0.7, -0.7, 0.3, 9.0]),
        valid_N=jnp.array([True] * 5 + [False]),
    )
    state = selector.update(state, feedback)
    expected_A = [0.1 + (0.5 + 1.5 + 0.3) / 3 / 2, 0.8, 0.55]
    np.testing.assert_allclose(state.value_A, expected_A, rtol=1e-6)
    assert state.visits_I.tolist() == [0, 1, 0, 1, 1, 0]


def test_slots_follow_the_softmax():
    """Q / tau = log (1, 3, 6): expected 10, 30 and 60 of 100 slots, 400 draws."""
    logit_A, size_A = jnp.log(jnp.array([1.0, 3, 6])), jnp.full(3, 1000)
    keys = jax.random.split(jax.random.key(0), 400)
    count_KA = jax.vmap(lambda key: categories.slots(key, logit_A, size_A, 100))(keys)
    assert np.all(count_KA.sum(1) == 100)
    share_A = np.array([0.1, 0.3, 0.6])
    sd_A = np.sqrt(100 * share_A * (1 - share_A))
    assert np.all(abs(count_KA.mean(0) - 100 * share_A) < 4 * sd_A / 20)
    assert np.all(abs(count_KA.std(0) / sd_A - 1) < 0.15)


def test_an_arm_without_a_number_gets_the_slots_no_other_can_take():
    logit_A, size_A = jnp.array([0.0, jnp.nan, -3]), jnp.array([3, 9, 2])
    count_A = categories.slots(jax.random.key(0), logit_A, size_A, 5)
    assert count_A.tolist() == [3, 0, 2]
    count_A = categories.slots(jax.random.key(0), logit_A, size_A, 7)
    assert count_A.tolist() == [3, 2, 2]


def test_a_category_gives_its_least_visited_items_first():
    """Against a sort of each category alone: 500 items, whose visits are one or two apart."""
    rng = np.random.default_rng(0)
    category_I, visits_I = rng.integers(0, 4, 500), rng.integers(0, 3, 500)
    luck_I = rng.random(500).astype(np.float32)
    rank_I = np.asarray(categories.rank_in_category(luck_I, category_I, visits_I))
    for category in range(4):
        inside = np.flatnonzero(category_I == category)
        order = inside[np.lexsort((luck_I[inside], visits_I[inside]))]
        assert rank_I[order].tolist() == list(range(len(order)))


# ------------------------------------------------------------------------------ strata
KIND = np.repeat(["solved", "half", "rare", "hopeless"], 25)
RIGHT = np.select([KIND == "solved", KIND == "half", KIND == "rare"], [4, 2, 1], 0)


def measured():
    """The state after a pass with four answers to each item."""
    selector = categories.STRATA(num_rollouts=4)
    state = selector.init(100, category=KIND)
    order = np.random.default_rng(0).permutation(100)
    return selector, selector.update(state, environment.counts(order, RIGHT[order], 4))


def test_items_are_drawn_by_the_variance_of_their_category():
    """With p = (2 x 25 + 1/2) / 101 and so on; the other two are asked now and then."""
    selector, state = measured()
    chosen = np.concatenate(
        [selector.propose(state, jax.random.key(k), 4).index_M for k in range(2000)]
    )
    share = {name: np.mean(KIND[chosen] == name) for name in set(KIND)}
    # Weights 0.25, 0.2525 x 0.7475 and, twice, 0.00495 x 0.99505; hardly changed by drawing 4 of
    # 100 without replacement.
    assert share["half"] == pytest.approx(0.5576, abs=0.02)
    assert share["rare"] == pytest.approx(0.4210, abs=0.02)
    assert share["solved"] == pytest.approx(0.0110, abs=0.005)
    assert share["hopeless"] == pytest.approx(0.0110, abs=0.005)
    everything = selector.propose(state, jax.random.key(0), 100).index_M
    assert sorted(everything.tolist()) == list(range(100))


def test_given_pass_rates_are_averaged_by_category():
    state = categories.STRATA().init(4, category=["b", "a", "b", "a"], pass_rate=[1, 0.25, 0, 0.75])
    np.testing.assert_allclose(state.rate_A, [0.5, 0.5])
    state = categories.STRATA().init(3, category=[7, 7, 2], pass_rate=[1, 0.5, 0.25])
    np.testing.assert_allclose(state.rate_A, [0.75 / 2, 2 / 3])


def test_only_a_pass_teaches_it():
    selector, state = measured()
    expected = np.array([0.5, 25.5, 50.5, 100.5]) / 101
    np.testing.assert_allclose(sorted(state.rate_A), expected, rtol=1e-6)
    after = selector.update(state, environment.counts(np.arange(40), np.zeros(40), 4))
    np.testing.assert_array_equal(after.rate_A, state.rate_A)
    again = selector.update(state, environment.counts(np.arange(100), np.zeros(100), 4))
    np.testing.assert_allclose(again.rate_A, np.full(4, 0.5 / 101), rtol=1e-6)
    unanswered = selector.update(state, environment.counts(np.arange(100), np.zeros(100), 0))
    np.testing.assert_array_equal(unanswered.rate_A, state.rate_A)
