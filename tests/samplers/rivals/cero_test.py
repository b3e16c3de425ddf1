"""CERO against a loop in NumPy, written with the paper's units and cases."""

import jax
import numpy as np

from tests.samplers import environment
from vade_jax.samplers.rivals import cero

NUM_ITEMS, NUM_PROMPTS, K, N_MAX = 40, 32, 25, 2  # the capacity of 33/32 is one prompt more


def exposure(theta, c, Z):
    """z* of the paper: the units after which another one gains theta; gains fall from c to c exp(-c Z)."""
    if c == 0 or theta >= c:
        return 0
    return Z if theta <= c * np.exp(-c * Z) else np.log(c / theta) / c


def test_steps_are_those_of_a_plain_loop():
    """60 steps, in which the price rises and falls; every eighth prompt has no answers."""
    selector, rng = cero.SPEC(steps=K), np.random.default_rng(0)
    state, prices = selector.init(NUM_ITEMS), []
    a, b = np.ones((2, NUM_ITEMS))
    theta, nu, R = np.full(NUM_ITEMS, 4 / 6), 0.5, N_MAX * NUM_PROMPTS * K / NUM_ITEMS
    for step in range(60):
        index = np.asarray(selector.propose(state, jax.random.key(step), NUM_PROMPTS).index_M)
        margin, rest = theta - nu, np.setdiff1d(np.arange(NUM_ITEMS), index)
        assert margin[index].min() >= margin[rest].max() - 1e-5
        asked = 8 * (rng.random(NUM_PROMPTS) < 7 / 8)
        right = rng.binomial(asked, (index / NUM_ITEMS) ** 2)
        state = selector.update(state, environment.counts(index, right, asked))
        a[index], b[index] = a[index] + right, b[index] + asked - right
        c = 4 * a * b / ((a + b) * (a + b + 1)) / R
        z = np.array([exposure(t / R, x, K * N_MAX) for t, x in zip(theta, c, strict=True)])
        # One more prompt would have been served. Which of equal ones is luck, so the state tells.
        idle = np.clip(theta + z / K / N_MAX / K**0.5, 0, 1)
        extra = rest[np.argmin((np.asarray(state.slope_I) - idle)[rest])]
        assert margin[extra] >= margin[rest].max() - 1e-5 or max(margin[rest]) <= 0
        units = np.zeros(NUM_ITEMS)
        units[[*index, extra]] = N_MAX * (margin[[*index, extra]] > 0)
        theta = np.clip(theta - (units - z / K) / N_MAX / K**0.5, 0, 1)
        nu = np.clip(nu - (1 - units.sum() / N_MAX / NUM_PROMPTS) / K**0.5, 0, 1)
        np.testing.assert_allclose(state.slope_I, theta, atol=2e-5)
        np.testing.assert_allclose(state.price, nu, atol=1e-5)
        prices.append(nu)
        theta, nu = np.asarray(state.slope_I, float), float(state.price)
    assert min(np.diff(prices)) < 0 < max(np.diff(prices))
