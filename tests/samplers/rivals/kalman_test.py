"""Kalman and KGPS: the step by hand, noise learned from counts, what is chosen."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from tests.samplers import environment
from vade_jax.samplers import gaussian


def test_update_by_hand():
    """Every variance + .002, the visited + .15 more; one without answers is not visited."""
    selector = gaussian.KALMAN()  # without evidence the scale of the noise is 1
    state = gaussian.KalmanState(
        mean_I=jnp.array([0.5, -1.0, 2.0]),
        var_I=jnp.array([1.0, 2.0, 3.0]),
        evidence_Q=jnp.zeros(9),
    )
    after = selector.update(state, environment.counts([2, 0], [5, 0], [8, 0]))
    x, v = 2.0, 3.152
    for _ in range(2):
        p = special.expit(x)
        slope = 5 - 8 * p - (x - 2.0) / v
        x += np.clip(slope / (8 * p * (1 - p) + 1 / v), -2, 2)
    p = special.expit(x)
    np.testing.assert_allclose(after.mean_I, [0.5, -1, x], rtol=1e-5)
    expected_I = [1.002, 2.002, 1 / (8 * p * (1 - p) + 1 / v)]
    np.testing.assert_allclose(after.var_I, expected_I, rtol=1e-5)


def test_evidence_fades_and_adds_by_hand():
    selector = gaussian.KALMAN(memory=0.5)
    state = selector.init(3).replace(evidence_Q=jnp.arange(9.0))
    feedback = environment.counts([1], [6])
    after = selector.update(state, feedback)
    for q, scale in enumerate(2.0 ** np.arange(-4, 5)):
        var_M = jnp.full(1, 4 + scale * 0.152)
        new = gaussian.log_evidence(jnp.zeros(1), var_M, feedback.successes_M, feedback.trials_M)
        np.testing.assert_allclose(after.evidence_Q[q], q / 2 + new[0], rtol=1e-5)
    uniform = gaussian.noise_scale(jnp.zeros(9))
    np.testing.assert_allclose(uniform, 1, rtol=1e-6)
    # weights 3/4 at 1/16 and 1/4 at 16: exp(3/4 log(1/16) + 1/4 log 16) = 1/4
    evidence_Q = jnp.full(9, -1e9).at[0].set(np.log(3)).at[8].set(0.0)
    np.testing.assert_allclose(gaussian.noise_scale(evidence_Q), 0.25, rtol=1e-5)


# ------------------------------------------------------------------------------ KGPS
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
    selector = gaussian.KGPS()
    order = np.argsort(score)[::-1]
    assert order[0] == 3 and score[5] > score[4]  # a wide belief counts for more far out
    for size in range(1, 6):
        chosen = selector.propose(believed(selector), jax.random.key(size), size).index_M
        assert set(chosen.tolist()) == set(order[:size].tolist())


def test_every_item_walks_alike():
    selector = gaussian.KGPS(noise_rest=0.05)  # without evidence of another scale
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
    ours, his = gaussian.KGPS(), gaussian.KALMAN(**noise)
    state, other = ours.init(6), his.init(6)
    for right in (8, 0, 8, 0, 8):
        seen = environment.counts([0, 1, 2, 3], [right] * 4)
        state, other = ours.update(state, seen), his.update(other, seen)
    chex.assert_trees_all_close(gaussian.KalmanState(**{k: state[k] for k in other}), other)
    assert gaussian.noise_scale(state.evidence_Q) > 1.5
