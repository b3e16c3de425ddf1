"""Two answers, by hand: of one token with advantage 2, of two tokens with advantage -1."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.trainer import update
from vade_jax.trainer.update import Totals
from vade_jax.types import Batch

MASK = np.array([[1, 0], [1, 1]], np.float32)
OLD = np.log(np.array([[0.2, 1.0], [0.5, 0.25]], np.float32))
NEW = np.log(np.array([[0.3, 1.0], [0.25, 0.375]], np.float32))  # ratios 1.5; 0.5, 1.5
ENGINE = np.log(np.array([[0.1, 0.7], [0.25, 0.5]], np.float32))  # w = 2; 2, 0.5
REF = np.log(np.array([[0.6, 1.0], [0.25, 0.375]], np.float32))  # x = log 2; 0, 0


def batch():
    return Batch(
        prompts=None,
        token_NT=np.zeros((2, 2), np.int32),
        mask_NT=MASK,
        advantage_N=np.array([2.0, -1.0], np.float32),
        rollout_logp_NT=ENGINE,
        old_logp_NT=OLD,
        ref_logp_NT=REF,
    )


def loss(ratio, **changes):
    return small.loss(ratio, 0.2, 0.2, "token-mean", **changes)


def evaluate(objective, num_tokens=3, num_sequences=2):
    totals = Totals(jnp.float32(num_tokens), jnp.float32(num_sequences))
    return objective(jnp.asarray(NEW), batch(), totals)


def test_grpo_by_hand():
    """-1.2 x 2 (clipped); max(0.5, 0.8) (clipped) and 1.5: (-2.4 + 0.8 + 1.5) / 3."""
    loss = small.loss("token", 0.2, 0.2, "token-mean", kl_coef=0.1)
    value, metrics = evaluate(update.group_rl(loss))
    kl = (2 - np.log(2) - 1) / 3
    np.testing.assert_allclose(metrics["actor/pg_loss"], -0.1 / 3, atol=1e-6)
    np.testing.assert_allclose(metrics["actor/kl_loss"], kl, rtol=1e-5)
    np.testing.assert_allclose(value, -0.1 / 3 + 0.1 * kl, atol=1e-6)
    np.testing.assert_allclose(metrics["actor/pg_clipfrac"], 2 / 3, rtol=1e-6)
    np.testing.assert_allclose(metrics["actor/ppo_kl"], -np.log(1.5 * 0.5 * 1.5) / 3, rtol=1e-5)


def test_gspo_by_hand():
    """Ratios 1.5, and sqrt(0.5 x 1.5) = 0.866: (-1.1 x 2 + max(0.866, 0.9)) / 2."""
    loss = small.loss("sequence", 0.1, 0.1, "seq-mean-token-mean")
    value, metrics = evaluate(update.group_rl(loss))
    np.testing.assert_allclose(value, (-2.2 + 0.9) / 2, atol=1e-6)
    np.testing.assert_allclose(metrics["actor/pg_clipfrac"], 1.0, atol=1e-6)


@pytest.mark.parametrize("max_tokens", [5, 50])
def test_dr_grpo_divides_by_the_longest_answer_that_may_be(max_tokens):
    """The losses of GRPO by hand, over two answers of so many tokens, whatever width the batch has."""
    loss = small.loss("token", 0.2, 0.2, "seq-mean-token-sum-norm")
    value, _ = evaluate(update.group_rl(loss, max_tokens))
    np.testing.assert_allclose(value, (-2.4 + 0.8 + 1.5) / 2 / max_tokens, rtol=1e-5)


def test_agreement_of_trainer_and_engine_by_hand():
    """Probabilities 0.3, 0.25, 0.375 of the trainer, 0.1, 0.25, 0.5 of the engine."""
    _, metrics = evaluate(update.group_rl(loss("token")))
    expected = {
        "training/rollout_probs_diff_mean": (0.2 + 0 + 0.125) / 3,
        "training/rollout_probs_diff_max": 0.2,
        "training/rollout_logprobs_diff_mean": (np.log(3) + 0 + np.log(4 / 3)) / 3,
        "training/rollout_logprobs_diff_max": np.log(3),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("level", "cap", "weights"),
    [("token", 1.5, (1.5, 1.5, 0.5)), ("sequence", 1.5, (1.5, 1, 1)), ("token", 2.0, (2, 2, 0.5))],
)
def test_importance_weights_by_hand(level, cap, weights):
    """min(w, cap) x the losses of GRPO by hand: -2.4, 0.8, 1.5."""
    weighted = loss("token", importance=level, importance_cap=cap)
    value, metrics = evaluate(update.group_rl(weighted))
    np.testing.assert_allclose(value, np.dot(weights, [-2.4, 0.8, 1.5]) / 3, atol=1e-6)
    np.testing.assert_allclose(metrics["rollout_corr/rollout_is_mean"], np.mean(weights), rtol=1e-5)


def test_likelihood_is_the_mean_over_tokens():
    value, metrics = evaluate(update.likelihood)
    np.testing.assert_allclose(value, -np.log(0.3 * 0.25 * 0.375) / 3, rtol=1e-6)
    assert metrics == {}
