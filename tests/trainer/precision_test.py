"""bfloat16 weights and their remainders against float32."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.trainer import small
from tests.trainer.update_test import split, start
from vade_jax import settings
from vade_jax.models import logprobs
from vade_jax.models.qwen import layers
from vade_jax.trainer import precision, update


def of_bits(*bits):
    return jnp.asarray(np.array(bits, np.uint32).view(np.float32))


def test_a_pair_by_hand():
    # 1 and an eighth of the step to the next bfloat16; three quarters of it; half of it.
    x = of_bits(0x3F801000, 0x3F80C000, 0x3F808000)
    weight, low = precision.round_to_pair(x)
    assert weight.dtype == jnp.bfloat16 and low.dtype == jnp.uint16
    assert weight.tolist() == [1, 1 + 2**-7, 1 + 2**-7]
    assert low.tolist() == [0x9000, 0x4000, 0]


def test_a_pair_is_its_float32_bit_for_bit():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 100_000, np.uint32)
    x = bits.view(np.float32)
    x = jnp.asarray(np.where(np.abs(x) < 3e38, x, 0))  # NaN among them too
    weight, low = jax.jit(precision.round_to_pair)(x)
    np.testing.assert_array_equal(
        np.asarray(precision.join(weight, low)).view(np.uint32),
        np.asarray(x).view(np.uint32),
    )
    away = jnp.abs(weight.astype(jnp.float32) - x)  # as near as a bfloat16 can be
    assert (away <= jnp.abs(x.astype(jnp.bfloat16).astype(jnp.float32) - x)).all()


WEIGHTS = np.array([1.0, -0.25, 0.02, 0.0], np.float32)
STEPS = 2000


def many_steps(transform, params, apply):
    """Subtracts 1e-6 from every weight, 2000 times."""

    def step(carry, _):
        params, state = carry
        updates, state = transform.update(jnp.ones_like(params), state, params)
        return (apply(params, updates), state), None

    params = jnp.asarray(params)
    return jax.lax.scan(step, (params, transform.init(params)), length=STEPS)[0]


def test_updates_of_1e_6_are_not_lost_as_plain_bfloat16_loses_them():
    sgd = optax.sgd(1e-6)
    stored = WEIGHTS.astype(jnp.bfloat16)
    expected, _ = many_steps(sgd, stored.astype(np.float32), optax.apply_updates)
    plain, _ = many_steps(sgd, stored, optax.apply_updates)
    weight, state = many_steps(precision.of_bfloat16(sgd), stored, lambda _, new: new)
    np.testing.assert_array_equal(precision.join(weight, state.low), expected)
    np.testing.assert_array_equal(weight, expected.astype(jnp.bfloat16))
    np.testing.assert_array_equal(plain[:3], stored[:3])  # 0.002 was asked for
    np.testing.assert_allclose(expected, stored.astype(np.float32) - 0.002, atol=2e-4)


def test_adamw_does_the_same_in_both_but_for_the_first_moments_rounding():
    config = settings.Optimizer(learning_rate=1e-3, clip_norm=0.5)
    whole, halves = (update.make_optimizer(config, dtype) for dtype in ("float32", "bfloat16"))
    params = {"w": jnp.asarray(WEIGHTS).astype(jnp.bfloat16)}
    master = precision.to_float32(params)
    state, other = halves.init(params), whole.init(master)
    kinds = {x.dtype.name for x in jax.tree.leaves(state) if x.ndim}
    assert kinds == {"uint16", "bfloat16", "float32"}  # low half, first moment, second
    rng = np.random.default_rng(0)
    for _ in range(20):
        grads = {"w": jnp.asarray(rng.standard_normal(4, np.float32))}
        params, state = halves.update(grads, state, params)
        updates, other = whole.update(grads, other, master)
        master = optax.apply_updates(master, updates)
    found = precision.join(params["w"], state.low["w"])
    np.testing.assert_allclose(found, master["w"], atol=1e-4)
    assert np.abs(master["w"] - WEIGHTS).max() > 2e-3


def test_small_gradients_of_many_microbatches_add_up():
    """One micro-batch has a gradient of 256, three have 1 each: bfloat16 has no 257."""
    size_N = np.array([256, 1, 1, 1], np.float32)
    batch = split(small.rollouts(np.ones(4, int)), size_N, micro=1)

    def logp(params, micro):
        zeros_NT = jnp.zeros(micro.mask_NT.shape)
        return logprobs.Tokens(zeros_NT + params["w"].astype(jnp.float32), zeros_NT)

    def objective(logp_NT, micro, totals):
        return jnp.sum(logp_NT[:, 0] * micro.advantage_N), {}

    optimizer = precision.of_bfloat16(optax.identity())
    step, params = update.make(logp, objective, optimizer), {"w": jnp.ones((), jnp.bfloat16)}
    state, _ = jax.jit(step)(start(params, optimizer), batch)
    assert state.params["w"] == 1 + 259


def test_a_token_that_comes_often_has_its_whole_gradient():
    """600 times 1: a bfloat16 sum would stop at 256."""
    table = jnp.zeros((3, 2), jnp.bfloat16)
    token = jnp.ones(600, jnp.int32)
    gradient = jax.grad(lambda t: layers.look_up(t, token).astype(jnp.float32).sum())(table)
    assert gradient.dtype == jnp.bfloat16
    assert gradient.tolist() == [[0, 0], [600, 600], [0, 0]]
