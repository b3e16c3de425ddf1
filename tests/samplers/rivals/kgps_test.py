"""KGPS: the walk, the average over the belief, the first pass."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from tests.samplers import environment
from vade_jax.samplers import gaussian
from vade_jax.samplers.rivals import kalman, kgps

MEAN = np.array([-3.0, -1.5, 0.0, 0.5, 2.5, 2.5], np.float32)
VAR = np.array([0.2, 1.0, 3.0, 0.3, 0.1, 3.0], np.float32)


def believed(selector):
    state = selector.init(6).replace(mean_I=jnp.array(MEAN), var_I=jnp.array(VAR))
    return state.replace(unseen_I=jnp.zeros(6, bool))


def test_the_largest_averages_are_chosen():
    """E[p (1-p)] over five nodes: .222 at 3, .166 at 2, .148 at 1, ..., .048 at 0."""
    node_Z, weight_Z = np.polynomial.hermite_e.hermegauss(5)
    score = []
    for mean, var in zip(MEAN, VAR, strict=True):
        p_Z = special.expit(mean + np.sqrt(var) * node_Z)
        score.append(np.sum(weight_Z * p_Z * (1 - p_Z)) / np.sqrt(2 * np.pi))
    selector = kgps.SPEC()
    order = np.argsort(score)[::-1]
    assert order[0] == 3 and score[5] > score[4]  # a wide belief counts for more far out
    for size in range(1, 6):
        chosen = selector.propose(believed(selector), jax.random.key(size), size).index_M
        assert set(chosen.tolist()) == set(order[:size].tolist())


def test_every_item_walks_alike():
    selector = kgps.SPEC(noise_rest=0.05)  # without evidence of another scale
    after = selector.update(believed(selector), environment.counts([3, 0], [6, 0], [8, 0]))
    given = (jnp.array([x], jnp.float32) for x in (0.5, 0.35, 6, 8))
    mean_M, var_M = gaussian.condition(*given)
    expected = VAR + 0.05
    expected[3] = var_M[0]
    np.testing.assert_allclose(after.var_I, expected, rtol=1e-6)
    np.testing.assert_allclose(after.mean_I[3], mean_M[0], rtol=1e-6)
    np.testing.assert_array_equal(np.delete(after.mean_I, 3), np.delete(MEAN, 3))


def test_the_scale_of_the_noise_is_learned_as_kalmans():
    """The belief is his: counts that jump widen it."""
    noise = {"noise_selected": 0.0, "noise_rest": 0.01}
    ours, his = kgps.SPEC(), kalman.SPEC(**noise)
    state, other = ours.init(6), his.init(6)
    for right in (8, 0, 8, 0, 8):
        seen = environment.counts([0, 1, 2, 3], [right] * 4)
        state, other = ours.update(state, seen), his.update(other, seen)
    chex.assert_trees_all_close(kalman.KalmanState(**{k: state[k] for k in other}), other)
    assert kalman.noise_scale(state.evidence_Q) > 1.5


def test_the_first_pass_visits_every_item_once():
    selector = kgps.SPEC()
    steps, state = environment.play(selector, selector.init(12), np.full(12, 0.5), 4, 3)
    visited = np.concatenate([proposal.index_M for proposal, _ in steps])
    assert sorted(visited.tolist()) == list(range(12)) and not state.unseen_I.any()
    state = selector.update(selector.init(3), environment.counts([0, 1], [3, 0], [8, 0]))
    assert state.unseen_I.tolist() == [False, False, True]  # though no valid answer came to item 1
