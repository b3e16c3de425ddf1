"""ARCUS: each equation against a loop or by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from tests.samplers import environment
from vade_jax.samplers.rivals import arcus

QUARTER = np.pi / 4


def state_of(mean_I, var_I, seen_I, **values):
    state = arcus.SPEC().init(len(mean_I))
    values = {name: jnp.asarray(value, state[name].dtype) for name, value in values.items()}
    return state.replace(
        mean_I=jnp.asarray(mean_I, jnp.float32),
        var_I=jnp.asarray(var_I, jnp.float32),
        seen_I=jnp.asarray(seen_I, jnp.int32),
        **values,
    )


def test_an_update_against_a_loop():
    """Seen two and, all but right, four steps ago; seen first; without answers; left alone."""
    mean_I, var_I = np.array([0.4, 1.55, QUARTER, 0.6, 1.0]), np.array([0.1, 0.2, 0.3, 0.05, 0.08])
    seen_I, v, q, step = [5, 3, -1, 4, 6], 0.01, 0.002, 7
    state = state_of(mean_I, var_I, seen_I, drift=v, noise=q, step=step)
    right, trials = [6, 3, 5, 0], [8, 8, 8, 0]
    after = arcus.SPEC().update(state, environment.counts([0, 1, 2, 3], right, trials))

    errors, slopes, excess, steps = 0.0, 0.0, [], []
    mean, var = mean_I.copy(), var_I.copy()
    for i, k, n in zip([0, 1, 2, 3], right, trials, strict=True):
        if n == 0:
            continue
        z, r = np.arcsin(np.sqrt((k + 0.375) / (n + 0.75))), 1 / (4 * n + 2)
        if seen_I[i] >= 0:
            d = step - seen_I[i]
            errors += z - mean[i]
            slopes += d * max(np.sin(2 * mean[i]), 0.05)
            excess.append((z - mean[i]) ** 2 - var[i] - r)
            steps.append(d)
        gain = var[i] / (var[i] + r)
        mean[i], var[i] = mean[i] + gain * (z - mean[i]), (1 - gain) * var[i]
    v += 0.1 * errors / slopes
    q = max(1e-5, 0.9 * q + 0.1 * max(q + np.mean(excess) / np.mean(steps), 0))
    np.testing.assert_allclose(after.drift, v, rtol=1e-4)
    np.testing.assert_allclose(after.noise, q, rtol=1e-4)
    np.testing.assert_allclose(after.mean_I, mean + v * np.sin(2 * mean), rtol=1e-5)
    np.testing.assert_allclose(after.var_I, var + q, rtol=1e-4)
    assert after.seen_I.tolist() == [7, 7, 7, 4, 6] and after.step == 8


def test_items_not_seen_are_like_those_seen_once_there_are_100():
    rng = np.random.default_rng(0)
    mean_I, var_I = rng.uniform(0.2, 1.3, 103), rng.uniform(0.01, 0.1, 103)
    for unseen, like in ((3, True), (4, False)):
        seen_I = np.where(np.arange(103) < unseen, -1, 2)
        after = arcus.predicted(state_of(mean_I, var_I, seen_I, noise=0.003))
        known = mean_I[unseen:], var_I[unseen:] + 0.003
        wanted = known[0].mean(), known[0].var() + known[1].mean()
        wanted = wanted if like else (mean_I[:unseen], var_I[:unseen])
        np.testing.assert_allclose(after.mean_I[:unseen], wanted[0], rtol=1e-5)
        np.testing.assert_allclose(after.var_I[:unseen], wanted[1], rtol=1e-5)


def test_the_chance_of_a_mixed_group():
    """.694 at the prior; exact for E[1 - exp(-G psi^2) - ...] over all of the line."""
    found = arcus.prob_mixed(jnp.array([QUARTER, 0.3]), jnp.array([np.pi**2 / 48, 0.05]), 8)
    assert found[0] == pytest.approx(0.694, abs=5e-4)
    density = stats.norm(0.3, np.sqrt(0.05)).pdf
    mixed = lambda x: 1 - np.exp(-8 * x**2) - np.exp(-8 * (np.pi / 2 - x) ** 2)
    expected = integrate.quad(lambda x: density(x) * mixed(x), -3, 3)[0]
    np.testing.assert_allclose(found[1], expected, rtol=1e-5)


def aims(mean_I, var, slack, num_prompts):
    state = state_of(mean_I, np.full(len(mean_I), var), np.zeros(len(mean_I)))
    return float(arcus.best_target(state, 8, num_prompts, 0.3, slack))


def test_the_target_is_the_hardest_that_brings_enough():
    """Against a loop over the 41 targets; a larger slack allows harder prompts."""
    rng = np.random.default_rng(1)
    mean_I, var, size = rng.uniform(0, np.pi / 2, 400), 0.01, 40
    a, width = 1 + 16 * var, lambda x: min(np.sin(x), np.cos(x)) ** 2 / 2
    y_I = 1 - (np.exp(-8 * mean_I**2 / a) + np.exp(-8 * (np.pi / 2 - mean_I) ** 2 / a)) / np.sqrt(a)
    share_Q, target_Q = [], np.linspace(np.arcsin(0.25), np.pi / 2 - np.arcsin(0.25), 41)
    for target in target_Q:
        total = width(target) + var
        s_I = np.sqrt(width(target) / total) * y_I
        s_I = (s_I * np.exp(-((mean_I - target) ** 2) / (2 * total))) ** (1 / 0.3)
        low, high = 0.0, 1e9
        for _ in range(200):
            c = (low + high) / 2
            low, high = (c, high) if np.minimum(1, c * s_I).sum() < size else (low, c)
        share_Q.append((np.minimum(1, low * s_I) * y_I).sum() / size)
    for slack in (0.0, 0.03, 0.2):
        expected = target_Q[np.argmax(np.array(share_Q) >= max(share_Q) - slack - 1e-6)]
        assert aims(mean_I, var, slack, size) == pytest.approx(expected, abs=1e-5)
    assert aims(mean_I, var, 0.2, size) < aims(mean_I, var, 0.03, size) < QUARTER
