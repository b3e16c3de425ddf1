"""Rivals that count: their weights and scores by hand, by quadrature and by frequency."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.samplers import environment
from vade_jax.samplers import beta
from vade_jax.samplers.rivals import counting

RNG = np.random.default_rng(0)


# ------------------------------------------------------------------------------ MoPPS
def state_of(alpha_I, beta_I):
    return counting.MoppsState(
        alpha_I=jnp.array(alpha_I, jnp.float32),
        beta_I=jnp.array(beta_I, jnp.float32),
        passes_I=jnp.zeros(len(alpha_I), jnp.int32),
        step=jnp.int32(0),
    )


@pytest.mark.parametrize(("num_items", "candidates"), [(12, 2), (13, 3), (7, 16)])
def test_every_item_is_a_candidate_once_a_pass(num_items, candidates):
    """The pool takes all that are due first; the prompts chosen lie in it."""
    selector, count_I = counting.MOPPS(candidates=candidates), np.zeros(num_items, int)
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
    proposal = counting.MOPPS(target=0.2).propose(state, jax.random.key(1), 5)
    draw_key, _ = jax.random.split(jax.random.key(1))
    p_I = np.asarray(jax.jit(beta.draw)(draw_key, state.alpha_I, state.beta_I))
    expected = np.argsort(abs(p_I - 0.2))[:5]
    assert set(proposal.index_M.tolist()) == set(expected.tolist())
    np.testing.assert_allclose(proposal.p_M, p_I[proposal.index_M], rtol=1e-6)


# ------------------------------------------------------------------------------ MaPP
# Counts of right and wrong answers of the 24 prompts of three kinds.
COUNTS = [(0.0, 0.0), (4.0, 4.0), (12.0, 0.0)]


def prob_mixed(alpha, beta):
    """V for groups of 8, by quadrature."""
    density = stats.beta(alpha + 1, beta + 1).pdf
    return integrate.quad(lambda p: (1 - p**8 - (1 - p) ** 8) * density(p), 0, 1)[0]


def of_three_kinds():
    alpha_A, beta_A = np.array(COUNTS, np.float32).T
    return beta.BetaState(alpha_I=jnp.repeat(alpha_A, 8), beta_I=jnp.repeat(beta_A, 8))


def test_prompts_are_drawn_in_proportion_to_the_chance_of_a_mixed_group():
    """One of 24 by weights .778, .959 and .381, each eight times."""
    weight_A = np.array([prob_mixed(*counts) for counts in COUNTS])
    assert weight_A[0] == pytest.approx(7 / 9)  # 1 - 2 / (G + 1)
    selector, begun = counting.MAPP(), of_three_kinds()
    chosen = [int(selector.propose(begun, jax.random.key(k), 1).index_M[0]) for k in range(3000)]
    count_A = np.bincount(np.array(chosen) // 8, minlength=3)
    np.testing.assert_allclose(count_A / 3000, weight_A / weight_A.sum(), atol=0.03)


def test_a_visit_decays_towards_the_prior():
    """With a = alpha + 1: a <- .5 a + .5 + m; what is not visited, or has no answer, stays."""
    selector = counting.MAPP()
    begun = beta.BetaState(alpha_I=jnp.full(3, 5.0), beta_I=jnp.full(3, 3.0))
    after = selector.update(begun, environment.counts([2, 0], [6, 0], [8, 0]))
    # a = .5 x 6 + .5 + 6 = 9.5, b = .5 x 4 + .5 + 2 = 4.5
    np.testing.assert_allclose(after.alpha_I, [5, 5, 8.5], rtol=1e-6)
    np.testing.assert_allclose(after.beta_I, [3, 3, 3.5], rtol=1e-6)


# ------------------------------------------------------------------------------ CurES and DARE
def sure(selector, rate_I):
    """A state whose posterior means are nearly `rate_I`."""
    rate_I = jnp.asarray(rate_I, jnp.float32)
    return selector.init(len(rate_I)).replace(alpha_I=1e6 * rate_I, beta_I=1e6 * (1 - rate_I))


def test_prompts_are_drawn_by_the_standard_deviation_of_an_answer():
    """exp(sigma / tau) at sigma = .5, .3 and .0: with tau = .1, 148.4, 20.1 and 1."""
    selector, per_kind = counting.CURES(temperature=0.1), 100
    state = sure(selector, np.repeat([0.5, 0.9, 1.0], per_kind))
    keys = jax.random.split(jax.random.key(0), 3000)
    index_KM = np.asarray(jax.vmap(lambda key: selector.propose(state, key, 2).index_M)(keys))
    share = np.bincount(index_KM.ravel() // per_kind, minlength=3) / index_KM.size
    weight = np.exp(10 * np.array([0.5, 0.3, 0.001]))
    # Hardly changed by drawing without replacement: 2 of 100.
    np.testing.assert_allclose(share, weight / weight.sum(), atol=0.015)


@pytest.mark.parametrize(("options", "concentration"), [({"concentration": 5.0}, 5), ({}, 100)])
def test_dare_draws_by_a_narrow_beta_density(options, concentration):
    """100 prompts each of p = .5, .42, .6 and .8, of which the default never draws the last."""
    selector, p_A = counting.DARE(**options), np.array([0.5, 0.42, 0.6, 0.8])
    state = sure(selector, np.repeat(p_A, 100))
    keys = jax.random.split(jax.random.key(0), 3000)
    index_KM = np.asarray(jax.vmap(lambda key: selector.propose(state, key, 2).index_M)(keys))
    share_A = np.bincount(index_KM.ravel() // 100, minlength=4) / index_KM.size
    weight_A = stats.beta(1 + concentration / 2, 1 + concentration / 2).pdf(p_A)
    # Hardly changed by drawing without replacement: 2 of 400.
    np.testing.assert_allclose(share_A, weight_A / weight_A.sum(), atol=0.02)
    assert (share_A[3] > 0.05) == (concentration == 5)


# ------------------------------------------------------------------------------ InSight
SCORES = {  # (a, b) of a Beta posterior: the score of 8 answers
    (1, 1): 0.170,
    (5, 5): 0.065,
    (4, 6): 0.068,
    (3, 7): 0.061,
    (1, 9): 0.021,
    (9, 1): 0.008,
    (9, 9): 0.041,
}


def entropy(a, b):
    """The entropy of a Beta distribution, in nats."""
    ends = (a - 1) * special.psi(a) + (b - 1) * special.psi(b)
    return special.betaln(a, b) - ends + (a + b - 2) * special.psi(a + b)


def information(a, b, num_rollouts):
    """H(p) - E[H(p | s of K right)], as the paper computes it."""
    s = np.arange(num_rollouts + 1)
    log_q = special.betaln(a + s, b + num_rollouts - s) - special.betaln(a, b)
    chance = special.comb(num_rollouts, s) * np.exp(log_q)
    return entropy(a, b) - chance @ entropy(a + s, b + num_rollouts - s)


@pytest.mark.parametrize("num_rollouts", [2, 8, 32])
def test_information_is_that_of_the_papers_form(num_rollouts):
    pairs = np.array([*SCORES, (1.5, 1.0), (1, 400), (37.5, 12.25), (500, 300)])
    found = counting.information(
        jnp.float32(pairs[:, 0] - 1), jnp.float32(pairs[:, 1] - 1), num_rollouts
    )
    expected = [information(a, b, num_rollouts) for a, b in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=3e-5)


def test_the_largest_scores_are_chosen():
    """Four of seven beliefs, whose scores are known to three digits."""
    pairs = np.array(list(SCORES), np.float32)
    selector = counting.INSIGHT()
    state = selector.init(7).replace(
        alpha_I=jnp.asarray(pairs[:, 0] - 1), beta_I=jnp.asarray(pairs[:, 1] - 1)
    )
    mean_I = pairs[:, 0] / pairs.sum(1)
    weight_I = mean_I * (1 - mean_I) * np.exp(-3 * (mean_I - 0.3) ** 2)
    score_I = weight_I * counting.information(state.alpha_I, state.beta_I, 8)
    np.testing.assert_allclose(score_I, list(SCORES.values()), atol=6e-4)
    proposal = selector.propose(state, jax.random.key(0), 4)
    assert sorted(proposal.index_M.tolist()) == [0, 1, 2, 3]
    np.testing.assert_allclose(proposal.p_M, mean_I[proposal.index_M], rtol=1e-6)
