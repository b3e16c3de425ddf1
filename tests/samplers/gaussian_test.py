"""The Gaussian posterior of a logit against NumPy loops and quadrature; Kalman and KGPS by hand."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.samplers import environment
from vade_jax.samplers import gaussian

# mean, variance, right, answers
CASES = [(0, 4.152, 0, 8), (1.5, 0.3, 5, 8), (-4, 2, 8, 8), (0.2, 1, 3, 4), (1, 2, 0, 0)]


def columns():
    return tuple(jnp.array(column, jnp.float32) for column in zip(*CASES, strict=True))


def test_condition_is_two_newton_steps():
    mean_M, var_M = gaussian.condition(*columns())
    for (m, v, k, n), mean, var in zip(CASES, mean_M, var_M, strict=True):
        x = m
        for _ in range(2):
            p = 1 / (1 + np.exp(-x))
            x += np.clip((k - n * p - (x - m) / v) / (n * p * (1 - p) + 1 / v), -2, 2)
        p = 1 / (1 + np.exp(-x))
        np.testing.assert_allclose(mean, x, rtol=1e-5)
        np.testing.assert_allclose(var, 1 / (n * p * (1 - p) + 1 / v), rtol=1e-5)


def expectation(f, m, v):
    density = stats.norm(m, np.sqrt(v)).pdf
    return integrate.quad(lambda x: f(x) * density(x), m - 30, m + 30, limit=500)[0]


@pytest.mark.parametrize(("m", "v", "k", "n"), CASES)
def test_integrals_over_the_logit(m, v, k, n):
    mean_M, var_M, k_M, n_M = (jnp.full(1, float(x)) for x in (m, v, k, n))
    right, wrong = special.expit, lambda x: special.expit(-x)
    likelihood = expectation(lambda x: right(x) ** k * wrong(x) ** (n - k), m, v)
    evidence_M = gaussian.log_evidence(mean_M, var_M, k_M, n_M)
    np.testing.assert_allclose(evidence_M, np.log(likelihood), rtol=1e-3, atol=1e-5)
    mixed = expectation(lambda x: 1 - right(x) ** 8 - wrong(x) ** 8, m, v)
    mixed_M = gaussian.prob_mixed(mean_M, var_M, 8)
    np.testing.assert_allclose(mixed_M, mixed, rtol=1e-3)
    p_M = gaussian.posterior_mean(mean_M, var_M)
    np.testing.assert_allclose(p_M, expectation(right, m, v), rtol=1e-4)


def test_draws_are_tempered():
    mean_I, var_I = jnp.full(50_000, -1.0), jnp.full(50_000, 4.0)
    p_I = gaussian.draw(jax.random.key(0), mean_I, var_I, 0.5)
    logit_I = np.asarray(jnp.log(p_I) - jnp.log1p(-p_I))
    test = stats.kstest(logit_I, stats.norm(-1, 1).cdf)
    assert test.pvalue > 1e-3
    still_I = gaussian.draw(jax.random.key(0), mean_I, var_I, 0.0)
    np.testing.assert_allclose(still_I, special.expit(-1), rtol=1e-6)


# ------------------------------------------------------------------------------ Kalman and KGPS
def test_update_by_hand():
    """Every variance + .002, the visited + .15 more; one without answers is not visited."""
    selector = gaussian.KALMAN()  # without evidence the scale of the noise is 1
    state = gaussian.KalmanState(
        mean_I=jnp.array([0.5, -1.0, 2.0]),
        var_I=jnp.array([1.0, 2.0, 3.0]),
        evidence_Q=jnp.zeros(9),
    )
    after = selector.update(state, environment.counts([2, 0], [5, 0], [8, 0]))
    (mean,), (var,) = gaussian.condition(*jnp.array([[2.0], [3.152], [5.0], [8.0]]))
    np.testing.assert_allclose(after.mean_I, [0.5, -1, mean], rtol=1e-5)
    np.testing.assert_allclose(after.var_I, [1.002, 2.002, var], rtol=1e-5)


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
