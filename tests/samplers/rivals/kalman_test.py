"""Kalman: the step by hand, noise learned from counts, and that it finds what teaches."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from tests.samplers import environment
from vade_jax.samplers import gaussian
from vade_jax.samplers.rivals import kalman

LEARNER = kalman.SPEC(temper=1.0, noise_rest=0.0)


def test_update_by_hand():
    """Every variance + .002, the visited + .15 more; one without answers is not visited."""
    selector = kalman.SPEC()  # without evidence the scale of the noise is 1
    state = kalman.KalmanState(
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
    selector = kalman.SPEC(memory=0.5)
    state = selector.init(3).replace(evidence_Q=jnp.arange(9.0))
    feedback = environment.counts([1], [6])
    after = selector.update(state, feedback)
    for q, scale in enumerate(2.0 ** np.arange(-4, 5)):
        var_M = jnp.full(1, 4 + scale * 0.152)
        new = gaussian.log_evidence(jnp.zeros(1), var_M, feedback.successes_M, feedback.trials_M)
        np.testing.assert_allclose(after.evidence_Q[q], q / 2 + new[0], rtol=1e-5)
    uniform = kalman.noise_scale(jnp.zeros(9))
    np.testing.assert_allclose(uniform, 1, rtol=1e-6)
    # weights 3/4 at 1/16 and 1/4 at 16: exp(3/4 log(1/16) + 1/4 log 16) = 1/4
    evidence_Q = jnp.full(9, -1e9).at[0].set(np.log(3)).at[8].set(0.0)
    np.testing.assert_allclose(kalman.noise_scale(evidence_Q), 0.25, rtol=1e-5)


def learned(noise, num_steps=50, num_items=100):
    """The noise scale learned where logits, drawn to 0, walk at random by `noise` a step."""
    rng, state = np.random.default_rng(0), LEARNER.init(num_items)
    logit_I = rng.normal(0, 1.5, num_items)
    for step in range(num_steps):
        proposal = LEARNER.propose(state, jax.random.key(step), num_items)
        feedback = environment.feedback(proposal, special.expit(logit_I), rng)
        state = LEARNER.update(state, feedback)
        logit_I = 0.98 * logit_I + rng.normal(0, np.sqrt(noise), num_items)
    return float(kalman.noise_scale(state.evidence_Q))


def test_noise_is_learned():
    """From .15 a visit; the truth is an 8th, that, and 8 times it."""
    low, middle, high = learned(0.15 / 8), learned(0.15), learned(0.15 * 8)
    assert low < 0.4 and 0.6 < middle < 1.7 and high > 5
