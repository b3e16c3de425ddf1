"""DPS: levels as a Markov chain, by a NumPy loop and by its forecasts from the prior."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.samplers import environment
from vade_jax.samplers.rivals import dps


def numpy_step(belief, count, level, decay):
    """One prompt's step by loops; `level` is None where it was not seen."""
    move = np.array([[count[i, j] / count[:, j].sum() for j in range(3)] for i in range(3)])
    after = decay * count + (1 - decay)
    if level is None:
        return move @ belief, after
    came = np.array([move[level, j] * belief[j] for j in range(3)])
    after[level] += came / came.sum()
    return np.eye(3)[level], after


def test_update_is_the_loop():
    selector, rng = dps.SPEC(decay=0.7), np.random.default_rng(0)
    state = selector.init(6)
    expected = [(np.full(3, 1 / 3), np.ones((3, 3)))] * 6
    for _ in range(8):
        index_M, level_M = rng.permutation(6)[:4], rng.integers(0, 3, 4)
        trials_M = np.array([4, 8, 4, 0])  # the last one has no answers
        right_M = np.choose(level_M, [0, trials_M / 2, trials_M])
        state = selector.update(state, environment.counts(index_M, right_M, trials_M))
        level_I = [None] * 6
        for i, level, trials in zip(index_M, level_M, trials_M, strict=True):
            level_I[i] = level if trials else None
        expected = [numpy_step(*x, n, 0.7) for x, n in zip(expected, level_I, strict=True)]
    np.testing.assert_allclose(state.belief_I3, [f for f, _ in expected], rtol=1e-5)
    np.testing.assert_allclose(state.count_I33, [a for _, a in expected], rtol=1e-5)


def test_the_likeliest_to_be_mixed_are_chosen_and_their_forecast_is_told():
    selector = dps.SPEC()
    state = selector.update(selector.init(5), environment.counts([0, 1, 3], [0, 4, 8]))
    proposal = selector.propose(state, jax.random.key(0), 3)
    assert set(proposal.index_M.tolist()) == {1, 2, 4}  # .40, and .33 of those not seen
    one = proposal.replace(index_M=jnp.array([1, 0, 2]))
    belief = selector.believe(state, one)
    np.testing.assert_allclose(belief["prob_mixed"], [0.4, 0.3, 1 / 3], rtol=1e-6)
    assert set(belief) == {"prob_mixed"}
