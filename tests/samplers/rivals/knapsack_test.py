"""Knapsack: values against quadrature, shares against exhaustive search, filling by hand."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from tests.samplers import environment
from vade_jax.samplers.rivals import shares

make = functools.cache(shares.KNAPSACK)


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


def test_unknown_prompts_get_the_mean_and_no_surplus():
    """Half of 16 answers right, all wrong, 3 of 5 answers: too few to know."""
    assert allocate([8, 0, 3], [16, 16, 5]).tolist() == [5, 11, 8]


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
