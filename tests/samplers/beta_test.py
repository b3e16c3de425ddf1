"""The Beta draw against scipy, decay against a loop, closed forms against quadrature."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import random as jax_random
from scipy import integrate, special, stats

from vade_jax import samplers
from vade_jax.samplers import beta, gamma

COUNTS = [
    (0, 0),
    (0, 8),
    (8, 0),
    (0.5, 3),
    (1, 1),
    (3.2, 0.01),
    (30, 70),
    (999, 999),
    (1e4, 0),
    (1e4, 1),
    (0, 1e4),
    (1e4, 1e4),
]
draw = jax.jit(beta.draw)


# ------------------------------------------------------------------------------ drawing
def test_draw_has_the_beta_distribution():
    """Kolmogorov-Smirnov, 100,000 draws for each of 12 pairs of counts in one call.

    100,000 draws tell cumulative probabilities apart that differ by 0.5 %. The smallest p of 12
    fair tests is below 1e-3 once in 80 keys; the keys are fixed.
    """
    size = 100_000
    count_IX = np.tile(np.array(COUNTS, np.float32), (size, 1))  # neighbours differ
    p_I = np.asarray(draw(jax.random.key(0), count_IX[:, 0], count_IX[:, 1]))
    for (alpha, b), p_D in zip(COUNTS, p_I.reshape(size, -1).T, strict=True):
        test = stats.kstest(p_D.astype(np.float64), stats.beta(alpha + 1, b + 1).cdf)
        assert test.pvalue > 1e-3, (alpha, b, test)


def test_draw_any_has_the_beta_distribution():
    """Shapes below 1 too, where the draws crowd at 0 and 1; logit p, as p itself rounds to 0 or 1 there."""
    size = 100_001
    shapes = [(0.3, 0.3), (0.05, 2.0), (0.7, 0.02), (1.0, 1.0), (40.0, 0.5), (8.0, 12.0)]
    draw_any = jax.jit(beta.draw_any)
    for number, (a, b) in enumerate(shapes):
        a_I, b_I = np.full((2, size), [[a], [b]], np.float32)
        p_I = np.asarray(draw_any(jax.random.key(number), a_I, b_I), np.float64)
        for at in (1e-4, 0.01, 0.2, 0.5, 0.8, 0.99, 0.9999):
            expected = stats.beta(a, b).cdf(at)
            bound = 4 * np.sqrt(expected * (1 - expected) / size) + 1e-6
            assert abs(np.mean(p_I <= at) - expected) < bound, (a, b, at)


def test_draw_has_the_moments_of_random_shapes():
    """Standardised draws of 1 M different shapes: mean 0, variance 1, within 4 sigma."""
    rng = np.random.default_rng(0)
    a_I, b_I = np.exp(rng.uniform(0, np.log(1e4), (2, 1_000_000)))
    p_I = draw(jax.random.key(1), np.float32(a_I - 1), np.float32(b_I - 1))
    mean_I = a_I / (a_I + b_I)
    sd_I = np.sqrt(mean_I * (1 - mean_I) / (a_I + b_I + 1))
    z_I = (np.asarray(p_I, np.float64) - mean_I) / sd_I
    assert abs(z_I.mean()) < 4e-3
    assert abs((z_I**2).mean() - 1) < 4 * np.std(z_I**2) / 1e3


def test_draws_are_independent():
    """Neighbouring items, items 32 apart, and successive keys are uncorrelated."""
    size = 200_000
    zeros_I = jnp.zeros(size)
    p_I, q_I = (np.asarray(draw(jax.random.key(k), zeros_I, zeros_I)) for k in (0, 1))
    bound = 4 / np.sqrt(size)
    pairs = [(p_I[:-lag], p_I[lag:]) for lag in (1, 2, 31, 32, 33, 64)]
    for x, y in [*pairs, (p_I, q_I)]:
        assert abs(np.corrcoef(x, y)[0, 1]) < bound
        assert abs(np.corrcoef((x - 0.5) ** 2, (y - 0.5) ** 2)[0, 1]) < bound
    folded = [jax.random.fold_in(jax.random.key(0), step) for step in range(2)]
    x, y = (np.asarray(draw(key, zeros_I, zeros_I)) for key in folded)
    assert abs(np.corrcoef(x, y)[0, 1]) < bound


@pytest.mark.parametrize("num_items", [1, 31, 32, 33, 100])
def test_draw_depends_on_key_and_index_only(num_items):
    """The same key draws the same; neither neighbours nor padding change an item's draw."""
    alpha_I, beta_I = jnp.linspace(0, 9, 100), jnp.linspace(4, 0, 100)
    p_I = draw(jax.random.key(3), alpha_I, beta_I)
    again_I = draw(jax.random.key(3), alpha_I[:num_items], beta_I[:num_items])
    np.testing.assert_allclose(p_I[:num_items], again_I, rtol=1e-6)
    assert np.all(draw(jax.random.key(4), alpha_I, beta_I) != p_I)


def test_draw_takes_any_key_implementation_and_nan():
    alpha_I = jnp.array([jnp.nan, 1.0, 2.0])
    for impl in ("threefry2x32", "rbg"):
        p_I = draw(jax.random.key(0, impl=impl), alpha_I, jnp.ones(3))
        assert np.isnan(p_I).tolist() == [True, False, False]


def test_threefry_is_that_of_jax():
    words = jnp.array([0x13198A2E, 0x03707344], jnp.uint32)
    high_I, low_I = jax.random.bits(jax.random.key(0), (2, 50))
    expected_I = jax_random.threefry_2x32(words, jnp.concatenate([high_I, low_I]))
    actual_I = jnp.concatenate(gamma._threefry(words, high_I, low_I))
    np.testing.assert_array_equal(actual_I, expected_I)


# ------------------------------------------------------------------------------ counting
def test_decay_and_count_by_hand():
    # item 2: (0.2 x 5 + 3, 0.2 x 10 + 8 - 3); item 0: no valid answer came, so as the rest
    alpha_I, beta_I = beta.decay_and_count(
        jnp.array([4.0, 2, 5, 0]),
        jnp.array([4.0, 6, 10, 1]),
        jnp.array([2, 0]),
        jnp.array([3.0, 0]),
        jnp.array([8.0, 0]),
        decay_selected=0.2,
        decay_rest=0.5,
    )
    np.testing.assert_allclose(alpha_I, [2, 1, 4, 0], rtol=1e-6)
    np.testing.assert_allclose(beta_I, [2, 3, 7, 0.5], rtol=1e-6)


# ------------------------------------------------------------------------------ scoring
def expectation(f, alpha, b):
    """E[f(p)] under the posterior, by quadrature split where the mass is."""
    log_b = special.betaln(alpha + 1, b + 1)
    at = (alpha + 1) / (alpha + b + 2)
    sd = np.sqrt(at * (1 - at) / (alpha + b + 3))
    edges = np.unique(np.clip([0, at - 12 * sd, at, at + 12 * sd, 1], 0, 1))
    density = lambda p: np.exp(special.xlogy(alpha, p) + special.xlog1py(b, -p) - log_b)
    pieces = itertools.pairwise(edges)
    return sum(
        integrate.quad(lambda p: f(p) * density(p), *piece, epsabs=0, epsrel=1e-9)[0]
        for piece in pieces
    )


def check(actual_I, f):
    expected_I = [expectation(f, *counts) for counts in COUNTS]
    np.testing.assert_allclose(actual_I, expected_I, rtol=1e-5)


def test_posterior_mean():
    alpha_I, beta_I = jnp.array(COUNTS, jnp.float32).T
    check(beta.posterior_mean(alpha_I, beta_I), lambda p: p)


@pytest.mark.parametrize("num", [2, 8, 16])
def test_prob_mixed(num):
    alpha_I, beta_I = jnp.array(COUNTS, jnp.float32).T
    mixed_I = beta.prob_mixed(alpha_I, beta_I, num)
    check(mixed_I, lambda p: -np.expm1(num * np.log1p(-p)) - p**num)


def test_prob_mixed_of_uneven_rollouts():
    alpha_M, beta_M = jnp.array([1.0, 5, 0]), jnp.array([2.0, 0, 7])
    num_M = jnp.array([2, 8, 5])
    mixed_M = jax.jit(beta.prob_mixed)(alpha_M, beta_M, num_M)
    for i in range(3):
        one = beta.prob_mixed(alpha_M[i : i + 1], beta_M[i : i + 1], int(num_M[i]))
        np.testing.assert_allclose(mixed_M[i], one[0], rtol=1e-6)


def test_info_gain_peaks_at_a_third():
    p_I = jnp.array([0, 1 / 3, 0.5, 1])
    np.testing.assert_allclose(beta.info_gain(p_I), [0, 4 / 27, 1 / 8, 0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        beta.outcome_variance(p_I), [0, 2 / 9, 1 / 4, 0], rtol=1e-6, atol=1e-8
    )


# ------------------------------------------------------------------------------ a prior
SPECS = [x for x in samplers.SAMPLERS.values() if issubclass(x.options, beta.CountingOptions)]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_known_pass_rate_counts_as_answers(spec):
    """Alpha = n p, beta = n (1 - p); 0 for an item without one."""
    selector = spec(num_rollouts=2, prior_strength=16)
    assert "pass_rate" in selector.needs.named("optional")
    state = selector.init(4, pass_rate=[0.25, None, 1, 0])
    np.testing.assert_array_equal(state.alpha_I, [4, 0, 16, 0])
    np.testing.assert_array_equal(state.beta_I, [12, 0, 0, 16])
    assert not np.any(selector.init(4).alpha_I + selector.init(4).beta_I)
    if spec.name == "vade":  # the warm-up is for the others, and a pass before step 1 for nothing
        assert state.unseen_I.tolist() == [False, True, False, False]
        with pytest.raises(ValueError, match="pass_rate: warmup"):
            samplers.SAMPLERS["vade"](warmup="measured").init(2, pass_rate=[0.5, 0.5])
    for values in ([0.5, 1.5, 0, 0], [None] * 4, [1, 0]):  # out of range, of no item, of two
        with pytest.raises(ValueError, match="pass_rate"):
            selector.init(4, pass_rate=values)
