import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vade_jax.trainer import optimizer

PARAMS = {"vision": {"w": jnp.array([1.0, 2.0])}, "text": {"w": jnp.array([3.0, -4.0])}}
GRADS = {"vision": {"w": jnp.array([30.0, 0.0])}, "text": {"w": jnp.array([0.0, 40.0])}}


def steps(transform, num, params=PARAMS):
    state = transform.init(params)
    for _ in range(num):
        updates, state = transform.update(GRADS, state, params)
        params = optax.apply_updates(params, updates)
    return params


def test_two_steps_of_adamw_by_hand():
    """Torch's AdamW: w -= lr (m^ / (sqrt v^ + eps) + decay w), after the clip to norm 1."""
    transform = optimizer.make(learning_rate=0.1, weight_decay=0.01)
    g, w, m, v = np.array([0.6, 0.8]), np.array([1.0, -4.0]), 0.0, 0.0  # 30, 40 over 50
    for t in (1, 2):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        w = w - 0.1 * (m_hat / (np.sqrt(v_hat) + 1e-8) + 0.01 * w)
    after = steps(transform, 2)
    np.testing.assert_allclose(after["vision"]["w"][0], w[0], rtol=5e-6)
    np.testing.assert_allclose(after["text"]["w"][1], w[1], rtol=5e-6)
    # No gradient: only the decay moves it.
    np.testing.assert_allclose(after["vision"]["w"][1], 2 * 0.999**2, rtol=1e-6)


def test_a_frozen_prefix_does_not_move_and_has_no_part_in_the_clip():
    transform = optimizer.make(learning_rate=0.1, weight_decay=0.0, frozen=("vision",))
    after = steps(transform, 3)
    np.testing.assert_array_equal(after["vision"]["w"], PARAMS["vision"]["w"])
    alone = {"vision": {"w": jnp.zeros(2)}, "text": GRADS["text"]}
    plain = optimizer.make(learning_rate=0.1, weight_decay=0.0)
    updates, _ = plain.update(alone, plain.init(PARAMS), PARAMS)
    first, _ = transform.update(GRADS, transform.init(PARAMS), PARAMS)
    np.testing.assert_allclose(first["text"]["w"], updates["text"]["w"], rtol=1e-6)


def test_frozen_parameters_have_no_moments():
    state = optimizer.make(learning_rate=0.1, frozen=("vision",)).init(PARAMS)
    sizes = [leaf.size for leaf in jax.tree.leaves(state) if leaf.ndim]
    assert sizes == [2, 2]  # mu and nu of text


def test_a_prefix_that_freezes_nothing_is_an_error():
    with pytest.raises(
        ValueError, match=r"starts with 'visual'; they start with text, vis"
    ):
        optimizer.make(learning_rate=0.1, frozen=("visual",)).init(PARAMS)


def test_schedule_by_hand():
    constant = optimizer.schedule(2.0, 0, 0)
    assert [float(constant(t)) for t in (0, 5)] == [2, 2]
    ramp = optimizer.schedule(2.0, 4, 0)
    np.testing.assert_allclose([ramp(t) for t in range(6)], [0, 0.5, 1, 1.5, 2, 2])
    tail = optimizer.schedule(2.0, 4, 10)
    # Halfway down the cosine: 2 (0.9 / 2 + 0.1); at its end a tenth.
    np.testing.assert_allclose([tail(t) for t in (4, 9, 14, 20)], [2, 1.1, 0.2, 0.2])
