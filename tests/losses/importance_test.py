"""Importance weights by hand, and the losses that they give on two answers of 4 and 3 tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import importance, policy, ratios

OLD = jnp.log(jnp.array([[0.6, 0.3, 0.9], [0.5, 0.1, 0.9]]))
ROLLOUT = jnp.log(jnp.array([[0.4, 0.1, 0.1], [0.5, 0.2, 0.1]]))
MASK = jnp.array([[1.0, 1, 0], [1, 1, 0]])  # w = 1.5, 3 and 1, 0.5

# Probabilities of the engine, of the trainer before the update, and now. w = 1, 1.5, 0.4, 1 and 1.1, 6, 1.
ENGINE = np.array([[0.5, 0.2, 0.8, 0.1], [0.4, 0.04, 0.9, 1]])
BEFORE = np.array([[0.5, 0.3, 0.32, 0.1], [0.44, 0.24, 0.9, 1]])
NOW = np.array([[0.55, 0.27, 0.32, 0.15], [0.33, 0.36, 0.63, 1]])
TOKENS = np.array([[1.0, 1, 1, 1], [1, 1, 1, 0]])
ADVANTAGE = np.array([1.0, -1.0])
CASES = {  # by hand: each weight x the clipped losses -1.1, -0.9, -1, -1.2 and 0.8, 1.5, 0.8, over 7
    "none": ({}, -0.157143),
    "raw": ({}, 0.947143),
    "token": ({}, 0.09),
    "sequence": ({}, 0.525714),
    "icepop": ({}, -0.281429),
    "geometric": ({"bounds": (0.8, 1.2)}, -0.6),
}


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("token", {}, [[1.5, 2, 0], [1, 0.5, 0]]),
        ("token", {"cap": 10}, [[1.5, 3, 0], [1, 0.5, 0]]),
        ("sequence", {"cap": 10}, [[4.5, 4.5, 0], [0.5, 0.5, 0]]),  # the product over the answer
        ("icepop", {}, [[1.5, 3, 0], [1, 0.5, 0]]),
        ("icepop", {"bounds": (0.6, 2.9)}, [[1.5, 0, 0], [1, 0, 0]]),
        # sqrt(4.5) = 2.12 and sqrt(0.5) = 0.71; by default both answers are left out
        ("geometric", {}, [[0, 0, 0], [0, 0, 0]]),
        ("geometric", {"bounds": (0.7, 2.1)}, [[0, 0, 0], [1, 1, 0]]),
        ("geometric", {"bounds": (0.8, 2.2)}, [[1, 1, 0], [0, 0, 0]]),
        ("raw", {"cap": 0.1}, [[1.5, 3, 0], [1, 0.5, 0]]),
    ],
)
def test_weights(name, options, expected):
    weight_NT = importance.weights(name, OLD, ROLLOUT, MASK, **options)
    np.testing.assert_allclose(weight_NT, expected, rtol=1e-6)
    same_NT = importance.weights(name, OLD, OLD, MASK, **options | {"cap": 2.0})
    np.testing.assert_array_equal(same_NT, MASK)


def test_a_masked_token_says_nothing():
    """Its log-prob may be -inf, if it is a banned one."""
    old_NT = OLD.at[:, 2].set(-jnp.inf)
    for name in importance.LOG_WEIGHTS:
        found, expected = (importance.weights(name, x, ROLLOUT, MASK) for x in (old_NT, OLD))
        np.testing.assert_array_equal(found, expected)


def test_metrics_by_hand():
    """Weights 1, 1.5, 0, 1 and 1.1, 0, 1: IcePop leaves out 0.4 and 6."""
    weight_NT = importance.weights("icepop", *map(jnp.log, (BEFORE, ENGINE)), TOKENS)
    found = importance.metrics(weight_NT, TOKENS, 7)
    expected = {
        "rollout_is_mean": 5.6 / 7,
        "rollout_is_max": 1.5,
        "rollout_is_square_mean": (3 + 1.5**2 + 1.1**2) / 7,
        "masked": 2 / 7,
    }
    assert found.keys() == {f"rollout_corr/{name}" for name in expected}
    for name, value in expected.items():
        np.testing.assert_allclose(found[f"rollout_corr/{name}"], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(("name", "size"), [("token", 0.860909), ("sequence", 0.75)])
def test_the_effective_size_of_a_step(name, size):
    """By token: of a sequence, 1.2^2 / 1.92. A step may have only weights of 0, or none."""
    weight_NT = importance.weights(name, *map(jnp.log, (BEFORE, ENGINE)), TOKENS)
    found = importance.effective_size(importance.metrics(weight_NT, TOKENS, 7))
    assert found.keys() == {
        f"rollout_corr/{n}"
        for n in ("rollout_is_mean", "rollout_is_max", "masked", "rollout_is_eff_sample_size")
    }
    np.testing.assert_allclose(found["rollout_corr/rollout_is_eff_sample_size"], size, atol=5e-6)
    nothing = importance.effective_size(importance.metrics(0 * weight_NT, TOKENS, 7))
    assert nothing["rollout_corr/rollout_is_eff_sample_size"] == 0
    assert importance.effective_size({"actor/loss": 1.0}) == {"actor/loss": 1.0}


# ------------------------------------------------------------------------------ losses
def loss(logp_NT, name, options, ratio=ratios.token, how="token-mean"):
    old_NT, rollout_NT = jnp.log(BEFORE), jnp.log(ENGINE)
    loss_NT = policy.clipped(
        ratio(logp_NT, old_NT, TOKENS), ADVANTAGE, clip_low=0.2, clip_high=0.2
    ).loss_NT
    if name != "none":
        loss_NT *= importance.weights(name, old_NT, rollout_NT, TOKENS, **options)
    return policy.aggregate(loss_NT, TOKENS, how, num_tokens=7, num_sequences=2)


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients(name):
    """The gradient by a loop: -A w r / 7 of a token that is not clipped, whose weight is a constant."""
    options, expected = CASES[name]
    value, gradient_NT = jax.value_and_grad(loss)(jnp.log(NOW), name, options)
    np.testing.assert_allclose(value, expected, atol=2e-6)
    by_hand = np.zeros((2, 4))
    for n, t in np.argwhere(TOKENS):
        w, r = BEFORE[n, t] / ENGINE[n, t], NOW[n, t] / BEFORE[n, t]
        answer = BEFORE[n, TOKENS[n] > 0] / ENGINE[n, TOKENS[n] > 0]
        mean = np.prod(answer) ** (1 / len(answer))
        weight = {
            "none": 1,
            "raw": w,
            "token": min(w, 2),
            "sequence": min(np.prod(answer), 2),
            "icepop": w * (0.5 <= w <= 5),
            "geometric": 0.8 <= mean <= 1.2,
        }[name]
        is_clipped = r > 1.2 if ADVANTAGE[n] > 0 else r < 0.8
        by_hand[n, t] = 0 if is_clipped else -ADVANTAGE[n] * weight * r / 7
    np.testing.assert_allclose(gradient_NT, by_hand, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"), [("none", -0.090224), ("token", 0.092876), ("sequence", 0.592286)]
)
def test_losses_of_gspo(name, expected):
    """Ratios 1.103905 and 0.923457 of the whole answers; the mean over each answer, then over both."""
    value = loss(jnp.log(NOW), name, {}, ratios.sequence, "seq-mean-token-mean")
    np.testing.assert_allclose(value, expected, atol=2e-6)
