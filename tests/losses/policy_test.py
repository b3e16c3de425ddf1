"""The clipped surrogate by hand, and that micro-batches add up to the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import policy, ratios


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual_clip", "loss", "slope"),
    [
        (1.1, 2.0, None, -2.2, -2.2),  # inside: -r A, slope in log r the same
        (1.4, 2.0, None, -2.56, 0),  # above 1 + 0.28: bounded
        (0.5, 2.0, None, -1.0, -1.0),  # below, but good: not bounded
        (0.5, -2.0, None, 1.6, 0),  # below 1 - 0.2 and bad: bounded
        (1.4, -2.0, None, 2.8, 2.8),  # above, but bad: not bounded
        (5.0, -2.0, 3.0, 6.0, 0),  # beyond the dual clip: -c A
        (5.0, 2.0, 3.0, -2.56, 0),  # the dual clip is for bad answers only
    ],
)
def test_clipped(ratio, advantage, dual_clip, loss, slope):
    def clipped(log_ratio):
        return policy.clipped(
            jnp.full((1, 1), log_ratio),
            jnp.array([advantage]),
            clip_low=0.2,
            clip_high=0.28,
            dual_clip=dual_clip,
        ).loss_NT[0, 0]

    value, gradient = jax.value_and_grad(clipped)(np.log(ratio))
    np.testing.assert_allclose(value, loss, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6)


def test_gradient_on_policy_is_minus_advantage():
    """At r = 1 both branches tie: together they must still give the full gradient."""
    logp_NT, advantage_N = jnp.full((2, 3), -1.0), jnp.array([2.0, -1.0])
    for ratio in (ratios.token, ratios.sequence):
        gradient = jax.grad(
            lambda x, ratio=ratio: jnp.sum(
                policy.clipped(
                    ratio(x, logp_NT, jnp.ones((2, 3))),
                    advantage_N,
                    clip_low=3e-4,
                    clip_high=4e-4,
                ).loss_NT
            )
        )(logp_NT)
        np.testing.assert_allclose(gradient, [[-2.0] * 3, [1.0] * 3], rtol=1e-6)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("token-mean", (1 + 2 + 6) / 3),
        ("token-sum", 9),
        ("seq-mean-token-sum", (3 + 6) / 2),
        ("seq-mean-token-mean", (1.5 + 6) / 2),
        ("seq-mean-token-sum-norm", (3 + 6) / 2 / 4),
    ],
)
def test_aggregate(how, expected):
    # the third sequence is wholly masked and must not count
    x_NT = jnp.array([[1.0, 2, 50, 50], [6, 50, 50, 50], [50, 50, 50, 50]])
    mask_NT = jnp.array([[1.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(policy.aggregate(x_NT, mask_NT, how), expected)
    if how == "seq-mean-token-sum-norm":
        value = policy.aggregate(x_NT, mask_NT, how, scale=2)
        np.testing.assert_allclose(value, expected * 2)


def test_the_kl_is_of_the_tokens_own_ratios_whatever_was_clipped():
    """-(-0.5 + 3 + 1) / 3; the ratios that were clipped are others, and beyond their bounds."""
    clipped = policy.clipped(
        jnp.full((2, 2), 5.0), jnp.array([1.0, -1.0]), clip_low=0.2, clip_high=0.2
    )
    token_NT, mask_NT = jnp.array([[-0.5, 3.0], [1.0, 99.0]]), jnp.array([[1.0, 1.0], [1.0, 0.0]])
    metrics = policy.metrics(clipped, token_NT, mask_NT)
    np.testing.assert_allclose(metrics["actor/ppo_kl"], -3.5 / 3, rtol=1e-6)


@pytest.mark.parametrize("how", policy.AGGREGATIONS)
def test_micro_batches_add_up(how):
    """Values, gradients and metrics, with uneven token counts and one empty micro-batch."""
    rng = np.random.default_rng(0)
    old_NT, logp_NT = rng.normal(-1, 0.3, (2, 12, 7)).astype(np.float32)
    length_N = np.r_[rng.integers(1, 8, 9), 0, 0, 0]
    mask_NT = (np.arange(7) < length_N[:, None]).astype(np.float32)
    advantage_N = rng.normal(size=12).astype(np.float32)
    bounds = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}
    totals = {"num_tokens": mask_NT.sum(), "num_sequences": np.sum(length_N > 0)}

    batch = logp_NT, old_NT, advantage_N, mask_NT

    def loss(logp_NT, old_NT, advantage_N, mask_NT, **totals):
        log_NT = ratios.token(logp_NT, old_NT)
        clipped = policy.clipped(log_NT, advantage_N, **bounds)
        metrics = policy.metrics(clipped, log_NT, mask_NT, totals.get("num_tokens"))
        return policy.aggregate(clipped.loss_NT, mask_NT, how, **totals), metrics

    grad = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (value, metrics), gradient = grad(*batch)
    parts = [grad(*(x[i : i + 3] for x in batch), **totals) for i in range(0, 12, 3)]
    np.testing.assert_allclose(sum(p[0][0] for p in parts), value, rtol=1e-5)
    gradients = np.concatenate([p[1] for p in parts])
    np.testing.assert_allclose(gradients, gradient, rtol=1e-5, atol=1e-7)
    for name, value in metrics.items():
        total = sum(p[0][1][name] for p in parts)
        np.testing.assert_allclose(total, value, rtol=1e-5, err_msg=name)


def test_bad_names_and_values_are_named():
    x_NT = jnp.ones((1, 1))
    with pytest.raises(ValueError, match=r"'mean'.*token-mean"):
        policy.aggregate(x_NT, x_NT, "mean")
    with pytest.raises(ValueError, match=r"dual_clip=1\.0"):
        policy.clipped(x_NT, x_NT[0], clip_low=0.2, clip_high=0.2, dual_clip=1.0)
    with pytest.raises(AssertionError):
        policy.clipped(x_NT, jnp.ones(3), clip_low=0.2, clip_high=0.2)
