"""Values, gradients and metrics of verl 0.9.1's loss code, stored in golden/."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import advantages, importance, kl, policy, ratios

GOLDEN = pathlib.Path(__file__).parent / "golden"
ARRAYS = dict(np.load(GOLDEN / "losses.npz"))
METRICS = json.loads((GOLDEN / "losses.json").read_text())
MASK = ARRAYS["mask"].astype(np.float32)
ADVANTAGE = ARRAYS["adv_grpo_norm1"][:, 0]  # every sequence has a first token
CASES = {
    "vanilla": (
        ratios.token,
        {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0},
    ),
    "clip_higher": (
        ratios.token,
        {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 10.0},
    ),
    "gspo": (ratios.sequence, {"clip_low": 3e-4, "clip_high": 4e-4}),
    "gspo_wide": (ratios.sequence, {"clip_low": 0.2, "clip_high": 0.28}),
}


def close(actual, name, rtol=1e-5, atol=1e-7):
    np.testing.assert_allclose(actual, ARRAYS[name], rtol=rtol, atol=atol)


@pytest.mark.parametrize("how", policy.AGGREGATIONS)
@pytest.mark.parametrize("case", CASES)
def test_policy_loss(case, how):
    ratio, bounds = CASES[case]

    @jax.jit
    def loss(logp_NT):
        log_ratio_NT = ratio(logp_NT, ARRAYS["old"], MASK)
        loss_NT = policy.clipped(log_ratio_NT, ADVANTAGE, **bounds).loss_NT
        return policy.aggregate(loss_NT, MASK, how)

    value, gradient = jax.value_and_grad(loss)(ARRAYS["new"])
    close(value, f"loss|{case}|{how}")
    close(gradient, f"grad|{case}|{how}")


@pytest.mark.parametrize("case", CASES)
def test_policy_metrics(case):
    ratio, bounds = CASES[case]
    token_NT = ratios.token(ARRAYS["new"], ARRAYS["old"])
    log_ratio_NT = ratio(ARRAYS["new"], ARRAYS["old"], MASK)
    clipped = policy.clipped(log_ratio_NT, ADVANTAGE, **bounds)
    metrics = policy.metrics(clipped, token_NT, MASK)
    assert len(metrics) == 3
    for name, value in metrics.items():
        expected = METRICS[f"{case}|token-mean"][name]
        np.testing.assert_allclose(value, expected, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", [*kl.ESTIMATORS, "low_var_kl"])
def test_kl(name):
    how = "k3" if name == "low_var_kl" else name

    def mean(logp_NT):
        return policy.aggregate(kl.ESTIMATORS[how](logp_NT, ARRAYS["ref"]), MASK, "token-mean")

    value, gradient = jax.value_and_grad(mean)(ARRAYS["new"])
    # e^x - x - 1 near x = 0 is a difference of numbers near 1: absolute 1e-6.
    close(kl.ESTIMATORS[how](ARRAYS["new"], ARRAYS["ref"]), f"kl|{name}", atol=1e-6)
    close(gradient, f"klgrad|{name}", atol=1e-7)
    close(value, f"klmean|{name}")


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance(level):
    """The arrays' names end in the cap, and in 0: not normalized."""
    weigh = functools.partial(importance.weights, level)
    args = ARRAYS["old"], ARRAYS["rollout"], MASK
    close(weigh(*args), f"is|{level}|2.0|0")
    gradient = jax.grad(lambda logp: jnp.sum(weigh(logp, *args[1:])))
    assert not np.any(gradient(args[0]))


@pytest.mark.parametrize("std", [False, True])
def test_advantages(std):
    advantage_N = advantages.group_normalized(
        jnp.asarray(ARRAYS["scores"]), jnp.asarray(ARRAYS["uid"]), 3, scale_by_std=std
    )
    expected_NT = ARRAYS[f"adv_grpo_norm{int(std)}"]
    np.testing.assert_allclose(advantage_N[:, None] * MASK, expected_NT, rtol=1e-5)
    assert not np.any(advantage_N[4:8])
