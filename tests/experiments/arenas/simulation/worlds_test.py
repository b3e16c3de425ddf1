"""Worlds: one step by hand, and what they begin with against numpy and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.arenas.simulation.worlds import KINDS, Groups

G = 8


def groups(index_M, successes_M, trials_M=None, trained_M=None):
    size = len(index_M)
    return Groups(
        index_M=jnp.array(index_M, jnp.int32),
        successes_M=jnp.array(successes_M, jnp.float32),
        trials_M=jnp.array(trials_M or [G] * size, jnp.float32),
        trained_M=jnp.array(trained_M if trained_M else [True] * size),
    )


def make(kind, num_items, **constants):
    made = KINDS[kind].Constants(**constants)
    return KINDS[kind].begin(jax.random.key(0), num_items, made)


def sigma(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def test_drift_learns_by_hand():
    # Item 2 is at logit 0: sqrt(p (1-p)) = 1/2, so a whole group adds 0.4 / 2, half a group half.
    state = make("drift", 3, gain=0.4, drift=0.01).replace(logit_I=jnp.array([-2.0, 1.0, 0.0]))
    step = groups([2, 2, 1], [0, 8, 3], [8, 4, 8], [True, True, False])
    after = state.learn(step, G)
    np.testing.assert_allclose(after.logit_I, [-1.99, 1.01, 0.31], atol=1e-6)


def test_drift_begins_with_beta_in_order():
    world = make("drift", 200_000, shape=0.35)
    p_I = np.asarray(world.pass_rate(), np.float64)
    assert np.all(np.diff(p_I) >= 0)
    # Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1)).
    assert abs(p_I.mean() - 0.5) < 4 * 0.38 / np.sqrt(len(p_I))
    assert p_I.var() == pytest.approx(1 / (4 * 1.7), rel=0.01)
    assert float(world.progress()) == pytest.approx(p_I.mean(), rel=1e-4)


@pytest.mark.parametrize("kind", ["drift", "skills"])
def test_answers_are_longer_the_harder_an_item_is(kind):
    """100 e^(2 (1/2 - p) + .5 z); lengths leave all other draws as they are."""
    world = make(kind, 50_000, longer=2.0, spread=0.5)
    log_I = np.log(np.asarray(world.tokens(), np.float64) / 100)
    of_item_I = (log_I - 2 * (0.5 - np.asarray(world.pass_rate(), np.float64))) / 0.5
    assert abs(of_item_I.mean()) < 4 / np.sqrt(50_000)
    assert of_item_I.std() == pytest.approx(1, rel=0.02)
    alike = make(kind, 50_000)
    np.testing.assert_array_equal(alike.pass_rate(), world.pass_rate())
    np.testing.assert_allclose(alike.tokens(), 100)


def test_skills_learn_by_hand():
    state = make("skills", 18, rate=0.4, transfer=0.1, forget=0.5, hopeless=0.0)
    state = state.replace(offset_I=jnp.full(18, 0.2), hopeless_I=jnp.arange(18) == 1)
    # 2 of 8 right: sqrt(1/4 3/4) = 0.433. Item 16 shares item 0's skill, 17 item 1's.
    step = groups([0, 16, 1, 17, 2], [2, 8, 2, 8, 2], [8, 16, 8, 8, 8], [True] * 4 + [False])
    after = state.learn(step, G)
    gain = 0.4 * np.sqrt(3) / 4
    offset_I = np.full(18, 0.1)
    offset_I[[0, 16, 1]] += [gain, 0.4 * 0.5 * 2, gain]
    np.testing.assert_allclose(after.offset_I, offset_I, rtol=1e-5)
    skill_A = np.zeros(16)
    skill_A[:2] = 0.1 * np.array([gain + 0.4, -0.5 * gain])
    np.testing.assert_allclose(after.skill_A, skill_A, rtol=1e-5, atol=1e-7)


def test_pass_rates_of_skills():
    state = make("skills", 32, hopeless=0.0)
    state = state.replace(
        skill_A=jnp.arange(16.0) / 8, offset_I=jnp.full(32, 0.25), hopeless_I=jnp.arange(32) == 31
    )
    expected = sigma(np.tile(np.arange(16) / 8, 2) - state.difficulty_I + 0.25)
    expected[31] = 0.01
    np.testing.assert_allclose(state.pass_rate(), expected, rtol=1e-5)


def test_held_out_is_the_mean_over_new_prompts():
    skill_A = np.linspace(-1, 4, 16)
    state = make("skills", 16).replace(skill_A=jnp.asarray(skill_A, jnp.float32))
    difficulty_Q = np.random.default_rng(0).normal(0.3, 2.2, 400_000)
    expected = np.mean(sigma(skill_A[:, None] - difficulty_Q))
    assert float(state.progress()) == pytest.approx(expected, abs=1e-3)
