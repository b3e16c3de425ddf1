"""MMR1: weights by hand, draws by frequency, BLEU by its definition."""

import collections
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import mmr1


def step(selector, state, index_M, successes_M, trials_M, self_bleu_M=None):
    extra_M = self_bleu_M and {"self_bleu": jnp.array(self_bleu_M)}
    feedback = environment.counts(index_M, successes_M, trials_M, extra_M)
    return selector.update(state, feedback)


def test_weights_by_hand():
    arrays = {"pass_rate": [0.5, 0, 0.25], "self_bleu": [0.4, 0.9, 1.0]}
    state = mmr1.SPEC().init(3, **arrays)
    # .8 (1/4) + .2 x .6, .2 x .1, .8 (3/16)
    np.testing.assert_allclose(state.weight_I, [0.32, 0.02, 0.15], rtol=1e-5)


def test_the_papers_weights_come_from_all_items_at_once():
    """.8 P (1 - P) + .2 (1 - self-BLEU): of P = 1/2, 1/4 and, without an answer, their mean."""
    selector = mmr1.SPEC()
    state = selector.init(3)
    np.testing.assert_allclose(state.weight_I, 0.2)  # .8 / 4, all monotonous
    after = step(selector, state, [0, 1], [4, 4], [8, 8])
    assert all(after[name] is not None for name in after)
    for name in state:
        np.testing.assert_array_equal(after[name], state[name])
    whole = [1, 0, 2], [2, 4, 0], [8, 8, 0]
    state = step(selector, state, *whole, self_bleu_M=[0.6, 0.1, 0.3])
    first_I = [0.8 / 4 + 0.2 * 0.9, 0.8 * 3 / 16 + 0.2 * 0.4, 0.8 * 7 / 32]
    np.testing.assert_allclose(state.weight_I, first_I, rtol=1e-6)


def chosen(mixture, weight_I, num_prompts, num_draws=4000):
    """How often each item is in a batch."""
    selector = mmr1.SPEC(diversity_weight=0, mixture=mixture)
    state = selector.init(len(weight_I)).replace(weight_I=jnp.array(weight_I))
    keys = jax.random.split(jax.random.key(0), num_draws)
    propose = jax.vmap(lambda key: selector.propose(state, key, num_prompts).index_M)
    return np.bincount(np.ravel(propose(keys)), minlength=len(weight_I)) / num_draws


def test_draws_follow_the_weights_and_half_of_them_nothing():
    weight_I = [0.1, 0.2, 0.7, 0.0]
    np.testing.assert_allclose(chosen(1.0, weight_I, 1), weight_I, atol=0.03)
    np.testing.assert_allclose(chosen(0.0, weight_I, 1), 0.25, atol=0.03)
    # One evenly (item 3 in a quarter), one by weight among the others: item 2 is the first with
    # 1/4, the second after 0, 1, 3 with 7/9, 7/8, 7/10.
    share = (1 + 7 / 9 + 7 / 8 + 7 / 10) / 4
    np.testing.assert_allclose(chosen(0.5, weight_I, 2)[2:], [share, 0.25], atol=0.03)


def bleu(answer, references):
    """Papineni et al. 2002 with counters: clipped precisions of order 1 to 3, brevity penalty."""
    logs = []
    for order in (1, 2, 3):
        runs = lambda x, n=order: collections.Counter(zip(*(x[i:] for i in range(n)), strict=False))
        count, most = runs(answer), collections.Counter()
        for reference in references:
            most |= runs(reference)
        matches = (count & most).total()
        if order == 1 and not matches:
            return 0.0
        logs.append(math.log((matches or 0.1) / max(count.total(), 1)))
    closest = min((abs(len(r) - len(answer)), len(r)) for r in references)[1]
    return math.exp(min(0.0, 1 - closest / len(answer)) + sum(logs) / 3)


@pytest.mark.parametrize("vocabulary", [2, 5, 200_000])
def test_equals_the_definition(vocabulary):
    """Forty groups of 2 to 9 answers of 0 to 12 tokens."""
    rng = np.random.default_rng(vocabulary)
    for _ in range(40):
        lengths = rng.integers(0, 13, rng.integers(2, 10))
        answers = [rng.integers(0, vocabulary, n) for n in lengths]
        expected = [
            bleu(tuple(x), [tuple(y) for j, y in enumerate(answers) if j != i])
            for i, x in enumerate(answers)
        ]
        np.testing.assert_allclose(mmr1.bleu(answers), expected, rtol=1e-9)


def test_groups_without_padding():
    """Group 0 says the same twice, group 1 nothing in common, group 2 is alone."""
    token_NT = np.array([[1, 2, 3, 0], [4, 5, 6, 7], [1, 2, 3, 9], [8, 8, 8, 8], [1] * 4])
    length_N, group_N = np.array([3, 4, 3, 4, 4]), np.array([0, 1, 0, 1, 2])
    score_M = mmr1.self_bleu(token_NT, length_N, group_N, 3)
    np.testing.assert_allclose(score_M, [1, 0, 1])
