"""Knapsack: values against quadrature, shares against exhaustive search, filling by hand."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import knapsack

make = functools.cache(knapsack.SPEC)


def value(num, p):
    return (1 - p**num - (1 - p) ** num) * p * (1 - p) ** 2


def allocate(successes, trials, num_rollouts=8, **options):
    """The numbers of answers to items that have those counts, in their order."""
    selector = make(num_rollouts=num_rollouts, **options)
    successes_I, trials_I = np.array(successes), np.array(trials)
    state = selector.init(len(trials)).replace(
        alpha_I=jnp.array(successes_I, jnp.float32),
        beta_I=jnp.array(trials_I - successes_I, jnp.float32),
    )
    proposal = selector.propose(state, jax.random.key(0), len(trials))
    return np.asarray(proposal.num_rollouts_M)[np.argsort(proposal.index_M)]


def test_example_of_the_public_code():
    """With p = 1/16, 1/4, 1/2, 3/4 and four that are dead: 64 answers."""
    num_I = allocate([1, 4, 8, 12, 0, 0, 16, 16], [16] * 8)
    assert num_I.tolist() == [24, 14, 8, 10, 2, 2, 2, 2]


def test_greedy_is_optimal():
    """Three mixed prompts, all ways to share 3 x 5 answers, 2 to 9 each."""
    rng = np.random.default_rng(0)
    ways = [n for n in itertools.product(range(2, 10), repeat=3) if sum(n) == 15]
    for successes in rng.integers(1, 16, (8, 3)):
        num_I = allocate(successes, [16] * 3, num_rollouts=5, max_rollouts=9, confidence=1 - 1e-6)
        total = lambda n, p=successes / 16: sum(map(value, n, p))
        assert num_I.sum() == 15 and num_I.min() >= 2
        np.testing.assert_allclose(total(num_I), max(map(total, ways)), rtol=1e-6)


def test_what_the_mixed_cannot_use_goes_to_those_all_wrong():
    """With p = 1/2 it can use 3 (ln .1 / ln .5 = 3.3): 32 - 8 - 3 = 21 of the rest over two all wrong."""
    num_I = allocate([8, 0, 0, 16], [16] * 4)
    assert num_I[[0, 3]].tolist() == [5, 2]
    assert sorted(num_I[1:3].tolist()) == [12, 13]
    # None all wrong: those all right are filled up, then all alike.
    assert sorted(allocate([8, 16, 16, 16], [16] * 4).tolist()) == [5, 9, 9, 9]
    # The one all wrong takes as many as it may, then those all right.
    num_I = allocate([8, 0, 16, 16], [16] * 4, max_rollouts=11)
    assert num_I[:2].tolist() == [5, 11] and num_I[2:].tolist() == [8, 8]


def test_equal_shares():
    """Nothing known; all solved; all wrong; all mixed alike."""
    for successes, trials in ((0, 0), (16, 16), (0, 16), (8, 16), (4, 7)):
        assert allocate([successes] * 4, [trials] * 4).tolist() == [8] * 4


def test_unknown_prompts_get_the_mean_and_no_surplus():
    """Half of 16 answers right, all wrong, 3 of 5 answers: too few to know."""
    assert allocate([8, 0, 3], [16, 16, 5]).tolist() == [5, 11, 8]


def test_a_prompt_is_known_from_eight_answers_on():
    """All wrong: 8 of them take their share of the rest, with 7 it is not known and gets the mean."""
    known, unknown = (allocate([8, 0, 0], [16, 16, count]).tolist() for count in (8, 7))
    assert known[0] == 5 and sorted(known[1:]) == [9, 10]
    assert unknown == [5, 11, 8]


def test_newest_answers_fill_a_buffer():
    """2 of 4 after 9 of 12: 16 in all. 1 of 8 then leaves the 2 of 4, and 4 of the 12: 3 right."""
    selector = make()
    state = selector.init(2)
    for successes, trials, expected in (
        (9, 12, (9, 3)),
        (2, 4, (11, 5)),
        (1, 8, (6, 10)),
        (0, 0, (6, 10)),
        (3, 20, (3, 17)),
    ):
        feedback = environment.counts([1], [successes], [trials])
        state = selector.update(state, feedback)
        found = state.alpha_I[1], state.beta_I[1]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert state.visits_I.tolist() == [0, 5] and state.alpha_I[0] == 0


@pytest.mark.parametrize(("size", "num_groups"), [(8, 2), (2, 8), (16, 1)])
@pytest.mark.parametrize("is_right", [False, True])
def test_a_mixed_prompt_can_become_all_right_or_all_wrong(size, num_groups, is_right):
    """As in the public code, once the newest 16 answers are alike: then it gets as few as those."""
    selector = make()
    state = selector.update(selector.init(1), environment.counts([0], [3], 8))
    for _ in range(num_groups):
        assert state.alpha_I[0] > 0 and state.beta_I[0] > 0
        state = selector.update(state, environment.counts([0], [size * is_right], size))
    assert (state.alpha_I[0], state.beta_I[0]) == (16 * is_right, 16 * (not is_right))


# ------------------------------------------------------------------------------ values and filling
def test_gain_is_a_difference_of_values():
    p_M = np.array([0.05, 1 / 3, 0.9])
    gain_MG = knapsack.gain(jnp.asarray(p_M), 20)
    for n in range(1, 20):
        expected_M = value(n + 1, p_M) - value(n, p_M)
        np.testing.assert_allclose(gain_MG[:, n], expected_M, rtol=1e-4, atol=1e-7)


def test_usable_answers_by_hand():
    """With ln .1 / ln max(p, 1-p): 35.7 of 1/16, 8.004 of 1/4, 3.3 of 1/2; the last is not mixed."""
    p_M = jnp.array([1 / 16, 1 / 4, 1 / 2, 1 / 2])
    mixed_M = jnp.array([True, True, True, False])
    assert knapsack.usable(p_M, mixed_M, 0.9, 128) == 35 + 8 + 3
    assert knapsack.usable(p_M, mixed_M, 0.9, 20) == 20 + 8 + 3


def test_filling_by_hand():
    """Two given to each, six more: the WITHIN cells by gain, then those of the REST."""
    gain_MG = jnp.array([[9.0, 9, 5, 3, 1], [9, 9, 4, 2, 0], [9, 9, -2, -3, -4]])
    order_MG = jnp.array([knapsack.WITHIN] * 2 + [knapsack.REST])[:, None]
    order_MG = jnp.broadcast_to(order_MG, gain_MG.shape)
    low_M = jnp.array([2, 2, 2])
    fill = lambda budget: knapsack.fill(gain_MG, low_M, order_MG, budget).tolist()
    assert [fill(n) for n in (6, 7, 9, 10)] == [
        [2, 2, 2],
        [3, 2, 2],
        [4, 3, 2],
        [4, 4, 2],
    ]
    assert [fill(n) for n in (12, 13, 15)] == [[5, 5, 2], [5, 5, 3], [5, 5, 5]]


def test_what_is_beyond_use_is_filled_last():
    """4 usable of two mixed prompts; then those all wrong, then the others, then the rest."""
    gain_MG = jnp.array([[9.0, 9, 5, 3, 1], [9, 9, 4, 2, 0.5]] + [[0.0] * 5] * 2)
    mixed_M = jnp.array([True, True, False, False])
    wrong_M = jnp.array([False, False, True, False])
    order_MG = knapsack.fill_order(gain_MG, jnp.full(4, 2), mixed_M, wrong_M, 4)
    within, wrong, rest, beyond = 0, 1, 2, 3
    assert order_MG[:, 2:].tolist() == [
        [within, within, beyond],
        [within, within, beyond],
        [wrong] * 3,
        [rest] * 3,
    ]


@pytest.mark.parametrize(
    "options",
    [{"min_count": 20}, {"num_rollouts": 4, "buffer": 4}, {"buffer": 200, "min_count": 100}],
)
def test_a_prompt_can_become_known(options):
    with pytest.raises(ValueError, match=r"min_count=\d+: must be .* as no more answers are held"):
        make(**options)
