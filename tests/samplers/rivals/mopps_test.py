"""MoPPS: the posterior by hand, one candidacy a pass, the draws nearest to 1/2."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers import beta
from vade_jax.samplers.rivals import mopps

RNG = np.random.default_rng(0)


def state_of(alpha_I, beta_I):
    return mopps.MoppsState(
        alpha_I=jnp.array(alpha_I, jnp.float32),
        beta_I=jnp.array(beta_I, jnp.float32),
        passes_I=jnp.zeros(len(alpha_I), jnp.int32),
        step=jnp.int32(0),
    )


def test_update_decays_towards_the_prior():
    """With a = alpha + 1: a <- 0.5 a + 0.5 x 2 + k s; items not visited stay."""
    selector = mopps.SPEC(decay=0.5, prior_alpha=2, prior_beta=3, candidates=1)
    first = selector.init(2)
    assert first.alpha_I.tolist() == [1, 1] and first.beta_I.tolist() == [2, 2]
    state = state_of([5, 5], [3, 3])
    state = selector.update(state, environment.counts([0], [6]))
    # a = 0.5 x 6 + 0.5 x 2 + 6 = 10, b = 0.5 x 4 + 0.5 x 3 + 2 = 5.5
    np.testing.assert_allclose(state.alpha_I[0], 9, rtol=1e-6)
    np.testing.assert_allclose(state.beta_I[0], 4.5, rtol=1e-6)
    assert state.alpha_I[1] == 5 and state.beta_I[1] == 3


@pytest.mark.parametrize(("num_items", "candidates"), [(12, 2), (13, 3), (7, 16)])
def test_every_item_is_a_candidate_once_a_pass(num_items, candidates):
    """The pool takes all that are due first; the prompts chosen lie in it."""
    selector, count_I = mopps.SPEC(candidates=candidates), np.zeros(num_items, int)
    state, size = selector.init(num_items), min(2 * candidates, num_items)
    for step in range(12):
        proposal = selector.propose(state, jax.random.key(step), 2)
        feedback = environment.feedback(proposal, np.full(num_items, 0.5), RNG)
        state = selector.update(state, feedback)
        pool = np.flatnonzero(np.asarray(state.passes_I) - count_I)
        assert len(pool) == size and set(proposal.index_M.tolist()) <= set(pool)
        count_I = np.asarray(state.passes_I)
        assert np.ptp(count_I) <= 1


def test_topk_takes_the_draws_nearest_to_the_target():
    state = state_of(RNG.random(50) * 9, RNG.random(50) * 9)
    proposal = mopps.SPEC(target=0.2).propose(state, jax.random.key(1), 5)
    draw_key, _ = jax.random.split(jax.random.key(1))
    p_I = np.asarray(beta.draw(draw_key, state.alpha_I, state.beta_I))
    expected = np.argsort(abs(p_I - 0.2))[:5]
    assert set(proposal.index_M.tolist()) == set(expected.tolist())
    np.testing.assert_allclose(proposal.p_M, p_I[proposal.index_M], rtol=1e-6)


def test_threshold_takes_random_ones_of_the_band_then_the_nearest():
    """Sharp posteriors at .2, .35, .5, .65 and .9: three in the band, .2 the next."""
    p_I = np.array([0.2, 0.35, 0.5, 0.65, 0.9])
    selector = mopps.SPEC(selection="threshold")
    state = state_of(p_I * 1e6, (1 - p_I) * 1e6)
    choose = lambda num, seed: frozenset(
        selector.propose(state, jax.random.key(seed), num).index_M.tolist()
    )
    assert {choose(1, seed) for seed in range(30)} == {frozenset({i}) for i in (1, 2, 3)}
    assert choose(4, 0) == {0, 1, 2, 3}
    np.testing.assert_allclose(
        mopps.distance(jnp.asarray(p_I), 0.3, 0.7), [0.1, 0, 0, 0, 0.2], atol=1e-6
    )
