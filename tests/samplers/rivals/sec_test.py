"""SEC: values by hand, slots by frequency, passes within a category."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.samplers import environment
from vade_jax.samplers import categories

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
