"""Informed against SciPy and a loop in NumPy; its regression by hand and by SciPy's optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special, stats

from tests.samplers import environment
from vade_jax.samplers import informed, ranking

NUM_ITEMS = 60
RATE = special.expit(3 * np.random.default_rng(1).normal(size=NUM_ITEMS))


def features(noise=0.3, seed=0):
    """What tells the logit of the pass rate, and four columns that tell nothing."""
    rng = np.random.default_rng(seed)
    logit_I = special.logit(RATE)
    return np.column_stack(
        [logit_I + noise * rng.normal(size=NUM_ITEMS), rng.normal(size=(NUM_ITEMS, 4))]
    )


def test_components_are_uncorrelated_and_what_is_missing_is_0():
    """Three of four columns differ between items, one is the sum of two others."""
    rng = np.random.default_rng(0)
    x_IE = rng.normal(size=(500, 4)) * [1, 20, 0.1, 0] + [5, 0, -3, 7]
    x_IE = np.column_stack([x_IE, x_IE[:, 0] + x_IE[:, 1]])
    found = informed.components(x_IE, 6)
    expected = np.diag([1.0, 1, 1, 0, 0, 0])
    np.testing.assert_allclose(found[:, :6].T @ found[:, :6] / 500, expected, atol=1e-4)
    np.testing.assert_allclose(found[:, :6].mean(0), 0, atol=1e-5)
    assert np.all(found[:, 6] == 1) and found.dtype == np.float32
    assert informed.components(x_IE, 2).shape == (500, 3)


def test_a_step_is_that_of_a_plain_loop():
    """Counts, strengths and weights, over twelve steps; some prompts have no answers."""
    options = {"memory": 0.9, "variance": 2.0, "decay_selected": 0.3, "decay_rest": 0.95}
    selector, rng = informed.SPEC(dimensions=3, **options), np.random.default_rng(0)
    state = selector.init(NUM_ITEMS, features=features())
    x_ID, weights = np.asarray(state.feature_ID), informed.unknown(4, 2.0)
    right, wrong = np.zeros((2, NUM_ITEMS))
    likely, strengths = np.zeros(13), informed.STRENGTH_K.astype(float)
    for step in range(12):
        proposal = selector.propose(state, jax.random.key(step), 6)
        index = np.asarray(proposal.index_M)
        seen = environment.feedback(proposal, RATE, rng)
        asked = np.where(rng.random(6) < 0.2, 0, seen.trials_M).astype(np.float32)
        good = np.minimum(seen.successes_M, asked)
        mean = np.clip(informed.predict(weights, x_ID), 0.005, 0.995)[index]
        for k, s in enumerate(strengths):
            a, b = right[index] + s * mean, wrong[index] + s * (1 - mean)
            found = special.betaln(a + good, b + asked - good) - special.betaln(a, b)
            likely[k] = 0.9 * likely[k] + found.sum()
        faded = informed.forget(weights, decay=0.9, variance=2.0)
        weights = informed.observe(faded, x_ID[index], good, asked)
        decay = np.full(NUM_ITEMS, 0.95)
        decay[index] = np.where(asked > 0, 0.3, 0.95)
        right, wrong = right * decay, wrong * decay
        np.add.at(right, index, good)
        np.add.at(wrong, index, asked - good)
        state = selector.update(state, seen.replace(successes_M=good, trials_M=asked))
    np.testing.assert_allclose(state.alpha_I, right, rtol=1e-5)
    np.testing.assert_allclose(state.beta_I, wrong, rtol=1e-5)
    np.testing.assert_allclose(state.likelihood_K, likely, rtol=2e-3, atol=2e-2)
    np.testing.assert_allclose(state.weights.mean_D, weights.mean_D, atol=1e-4)
    mean = np.clip(informed.predict(weights, x_ID), 0.005, 0.995)
    np.testing.assert_allclose(informed.prior_mean(state), mean, atol=1e-5)
    s = strengths[np.argmax(likely)]
    law = stats.betabinom(8, right + s * mean, wrong + s * (1 - mean))
    belief = selector.believe(state, ranking.same_num_rollouts(jnp.arange(NUM_ITEMS), 8))
    expected = (right + s * mean) / (right + wrong + s)
    np.testing.assert_allclose(belief["posterior_mean"], expected, atol=1e-4)
    np.testing.assert_allclose(belief["prob_mixed"], 1 - law.pmf(0) - law.pmf(8), atol=1e-3)
    assert np.allclose(belief["informed/strength"], s)


# ------------------------------------------------------------------------------ the regression
def weights(mean, cov):
    return informed.Weights(mean_D=jnp.float32(mean), cov_DD=jnp.float32(cov))


def test_a_steps_answers_at_once_are_the_mode_of_all_of_them():
    """Against an optimiser in float64; an item without answers tells nothing."""
    rng = np.random.default_rng(0)
    x_MD, trials_M = rng.normal(size=(20, 4)), np.r_[np.full(19, 8.0), 0]
    right_M = rng.binomial(trials_M.astype(int), special.expit(x_MD @ [1.0, -2, 0, 3]))
    half = rng.normal(size=(4, 4))
    mean, cov = rng.normal(size=4), half @ half.T + np.eye(4)

    def loss(theta):
        logit = x_MD @ theta
        likely = right_M * special.log_expit(logit) + (trials_M - right_M) * special.log_expit(
            -logit
        )
        return (theta - mean) @ np.linalg.solve(cov, theta - mean) / 2 - likely.sum()

    mode = optimize.minimize(loss, mean, tol=1e-12).x
    p_M = special.expit(x_MD @ mode)
    curvature = np.linalg.inv(cov) + (x_MD.T * (trials_M * p_M * (1 - p_M))) @ x_MD
    found = informed.observe(
        weights(mean, cov), jnp.float32(x_MD), jnp.float32(right_M), jnp.float32(trials_M)
    )
    np.testing.assert_allclose(found.mean_D, mode, atol=2e-3)
    np.testing.assert_allclose(found.cov_DD, np.linalg.inv(curvature), rtol=1e-2, atol=1e-4)
    alone = informed.observe(
        weights(mean, cov), jnp.float32(x_MD[:19]), *map(jnp.float32, (right_M[:19], trials_M[:19]))
    )
    np.testing.assert_allclose(found.mean_D, alone.mean_D, atol=1e-5)


def test_old_evidence_fades_to_the_prior_and_not_beyond():
    """One dimension: precision 10 -> .9 x 10 + .1 / 4; mean x precision -> .9 of it."""
    found = informed.forget(weights([2], [[0.1]]), decay=0.9, variance=4.0)
    precision = 0.9 * 10 + 0.1 / 4
    np.testing.assert_allclose(found.cov_DD, [[1 / precision]], rtol=1e-5)
    np.testing.assert_allclose(found.mean_D, [2 * 10 * 0.9 / precision], rtol=1e-5)
    for _ in range(300):
        found = informed.forget(found, decay=0.9, variance=4.0)
    np.testing.assert_allclose(found.cov_DD, [[4]], rtol=1e-3)
    np.testing.assert_allclose(found.mean_D, [0], atol=1e-3)


def test_the_prediction_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    x_ID, root_DD = rng.standard_normal((50, 3)), rng.standard_normal((3, 3))
    mean_D, cov_DD = rng.standard_normal(3), root_DD @ root_DD.T
    found = informed.predict(weights(mean_D, cov_DD), jnp.asarray(x_ID, jnp.float32))
    variance_I = np.einsum("id,de,ie->i", x_ID, cov_DD, x_ID)
    expected = special.expit(x_ID @ mean_D / np.sqrt(1 + np.pi * variance_I / 8))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
