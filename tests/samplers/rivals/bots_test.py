"""BOTS: both updates by hand, the guess with and without references, the choice."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.samplers import environment
from vade_jax.samplers import beta
from vade_jax.samplers.rivals import bots

RNG = np.random.default_rng(0)


def test_update_with_references_against_a_loop():
    size, weak_I, strong_I = 12, RNG.random(12) * 0.4, 0.5 + RNG.random(12) * 0.5
    selector = bots.SPEC(num_rollouts=4, forget=0.2, guess_weight=0.3)
    state = selector.init(size, weak_rate=weak_I, strong_rate=strong_I)
    right, wrong, c = np.zeros(size), np.zeros(size), None
    for _ in range(5):
        index_M = RNG.permutation(size)[:4]
        trials_M = np.array([4, 3, 0, 4])
        right_M = np.minimum(RNG.integers(0, 5, 4), trials_M)
        state = selector.update(state, environment.counts(index_M, right_M, trials_M))
        seen = [i for i, n in zip(index_M, trials_M, strict=True) if n]
        rate = np.mean([k / n for k, n in zip(right_M, trials_M, strict=True) if n])
        weak, strong = np.mean(weak_I[seen]), np.mean(strong_I[seen])
        new = (rate - weak) / (strong - weak)
        c = new if c is None else 0.9 * c + 0.1 * new
        for i in range(size):
            g = np.clip(weak_I[i] + (strong_I[i] - weak_I[i]) * c, 0, 1)
            right[i], wrong[i] = 0.8 * right[i], 0.8 * wrong[i]
            if i in seen:
                m = index_M.tolist().index(i)
                right[i] += right_M[m]
                wrong[i] += trials_M[m] - right_M[m]
            else:
                right[i] += 0.3 * 4 * g
                wrong[i] += 0.3 * 4 * (1 - g)
        np.testing.assert_allclose(state.progress, c, rtol=1e-4)
    np.testing.assert_allclose(state.alpha_I, right, rtol=1e-4)
    np.testing.assert_allclose(state.beta_I, wrong, rtol=1e-4)


def test_without_references_the_mean_belief_is_guessed():
    """Means .75, .8 and .25 before the step, so .6 for all that are not asked."""
    selector = bots.SPEC(num_rollouts=8)
    state = selector.init(3).replace(
        alpha_I=jnp.array([2.0, 3.0, 1.0]), beta_I=jnp.array([0.0, 0.0, 5.0])
    )
    after = selector.update(state, environment.counts([1], [8], 8))
    np.testing.assert_allclose(after.alpha_I, [1.8 + 0.48, 2.7 + 8, 0.9 + 0.48], rtol=1e-6)
    np.testing.assert_allclose(after.beta_I, [0.32, 0, 4.5 + 0.32], rtol=1e-6)


def test_the_draws_nearest_to_a_half_are_chosen():
    state = bots.SPEC().init(50)
    state = state.replace(
        alpha_I=jnp.float32(RNG.random(50) * 9), beta_I=jnp.float32(RNG.random(50) * 9)
    )
    draw_key, _ = jax.random.split(jax.random.key(1))
    p_I = np.asarray(jax.jit(beta.draw)(draw_key, state.alpha_I, state.beta_I))
    proposal = bots.SPEC().propose(state, jax.random.key(1), 5)
    expected = np.argsort(abs(p_I - 0.5))[:5]
    assert sorted(proposal.index_M.tolist()) == sorted(expected.tolist())
    np.testing.assert_allclose(proposal.p_M, p_I[proposal.index_M], rtol=1e-6)
