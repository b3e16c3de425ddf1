"""Gains against differences of values and quadrature, filling by hand."""

import jax.numpy as jnp
import numpy as np
from scipy import integrate, stats

from vade_jax.samplers import knapsack


def value(num, p):
    return (1 - p**num - (1 - p) ** num) * p * (1 - p) ** 2


def test_gain_is_a_difference_of_values():
    p_M = np.array([0.05, 1 / 3, 0.9])
    gain_MG = knapsack.gain(jnp.asarray(p_M), 20)
    for n in range(1, 20):
        expected_M = value(n + 1, p_M) - value(n, p_M)
        np.testing.assert_allclose(gain_MG[:, n], expected_M, rtol=1e-4, atol=1e-7)


def test_expected_gain_is_that_under_the_posterior():
    counts = [(0, 0), (3, 0.5), (0, 9), (6, 2)]
    alpha_M, beta_M = jnp.array(counts, jnp.float32).T
    gain_MG = knapsack.expected_gain(alpha_M, beta_M, 40)
    for m, (alpha, beta) in enumerate(counts):
        for n in (1, 2, 7, 39):
            density = stats.beta(alpha + 1, beta + 1).pdf
            one_more = lambda p, n=n, f=density: (value(n + 1, p) - value(n, p)) * f(p)
            expected = integrate.quad(one_more, 0, 1, epsabs=1e-12)[0]
            np.testing.assert_allclose(gain_MG[m, n], expected, rtol=1e-3)


def test_usable_answers_by_hand():
    """With ln .1 / ln max(p, 1-p): 35.7 of 1/16, 8.004 of 1/4, 3.3 of 1/2; the last is not mixed."""
    p_M = jnp.array([1 / 16, 1 / 4, 1 / 2, 1 / 2])
    mixed_M = jnp.array([True, True, True, False])
    assert knapsack.usable(p_M, mixed_M, 0.9, 128) == 35 + 8 + 3
    assert knapsack.usable(p_M, mixed_M, 0.9, 20) == 20 + 8 + 3


def test_filling_by_hand():
    """Two given to each, six more: the WITHIN cells by gain, then those of the REST."""
    gain_MG = jnp.array([[9.0, 9, 5, 3, 1], [9, 9, 4, 2, 0], [9, 9, -2, -3, -4]])
    order_MG = jnp.array([knapsack.WITHIN] * 2 + [knapsack.REST])[:, None]
    order_MG = jnp.broadcast_to(order_MG, gain_MG.shape)
    low_M = jnp.array([2, 2, 2])
    fill = lambda budget: knapsack.fill(gain_MG, low_M, order_MG, budget).tolist()
    assert [fill(n) for n in (6, 7, 9, 10)] == [
        [2, 2, 2],
        [3, 2, 2],
        [4, 3, 2],
        [4, 4, 2],
    ]
    assert [fill(n) for n in (12, 13, 15)] == [[5, 5, 2], [5, 5, 3], [5, 5, 5]]


def test_what_is_beyond_use_is_filled_last():
    """4 usable of two mixed prompts; then those all wrong, then the others, then the rest."""
    gain_MG = jnp.array([[9.0, 9, 5, 3, 1], [9, 9, 4, 2, 0.5]] + [[0.0] * 5] * 2)
    mixed_M = jnp.array([True, True, False, False])
    wrong_M = jnp.array([False, False, True, False])
    order_MG = knapsack.fill_order(gain_MG, jnp.full(4, 2), mixed_M, wrong_M, 4)
    within, wrong, rest, beyond = 0, 1, 2, 3
    assert order_MG[:, 2:].tolist() == [
        [within, within, beyond],
        [within, within, beyond],
        [wrong] * 3,
        [rest] * 3,
    ]
