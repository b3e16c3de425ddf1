"""InSight: its information against the paper's digamma form, its scores by number, its pool and update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from vade_jax.samplers.rivals import insight

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
    found = insight.information(
        jnp.float32(pairs[:, 0] - 1), jnp.float32(pairs[:, 1] - 1), num_rollouts
    )
    expected = [information(a, b, num_rollouts) for a, b in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=3e-5)


def test_the_largest_scores_are_chosen():
    """Four of seven beliefs, whose scores are known to three digits."""
    pairs = np.array(list(SCORES), np.float32)
    selector = insight.SPEC()
    state = selector.init(7).replace(
        alpha_I=jnp.asarray(pairs[:, 0] - 1), beta_I=jnp.asarray(pairs[:, 1] - 1)
    )
    mean_I = pairs[:, 0] / pairs.sum(1)
    score_I = insight.difficulty(mean_I, 0.3, 3.0) * insight.information(
        state.alpha_I, state.beta_I, 8
    )
    np.testing.assert_allclose(score_I, list(SCORES.values()), atol=6e-4)
    proposal = selector.propose(state, jax.random.key(0), 4)
    assert sorted(proposal.index_M.tolist()) == [0, 1, 2, 3]
    np.testing.assert_allclose(proposal.p_M, mean_I[proposal.index_M], rtol=1e-6)


def test_ties_and_candidates_are_random():
    """One item of unusual promise wins where it is a candidate: in half of all steps."""
    selector, size = insight.SPEC(candidates=5), 40
    state = selector.init(size)
    state = state.replace(
        alpha_I=jnp.full(size, 20.0).at[3].set(0), beta_I=jnp.full(size, 20.0).at[3].set(0)
    )
    chosen = [selector.propose(state, jax.random.key(k), 4).index_M.tolist() for k in range(400)]
    assert np.mean([3 in batch for batch in chosen]) == pytest.approx(0.5, abs=0.1)
    others = np.bincount(np.concatenate(chosen), minlength=size)[np.arange(size) != 3]
    assert others.min() > 10
