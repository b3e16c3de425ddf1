"""Uneven groups through the real update: equal to plain rows, one program for all splits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.qwen import inputs
from tests.trainer import small
from tests.trainer.update_test import SGD, assert_close, model_logp, plain_logp, start
from vade_jax.models import logprobs
from vade_jax.trainer import minibatches, objectives, update
from vade_jax.types import Batch

LARGE = np.array([2, 56, 2, 12])  # as Knapsack's, which go to 128
SPLITS = ([2, 26, 2, 2], [8, 8, 8, 8], [14, 2, 2, 14], [2, 3, 5, 22])


def split(rollouts, advantage_N, mini, micro):
    batches = small.split(
        small.prompts(4),
        rollouts,
        advantage_N,
        prompts_per_minibatch=mini,
        prompts_per_microbatch=micro,
        answers_per_row=8,
    )
    return [b.replace(ref_logp_NT=b.old_logp_NT - 0.5) for b in batches]


def compiled(loss):
    step = update.make(model_logp, objectives.group_rl(loss), SGD)
    return jax.jit(step, compiler_options=small.FAST)


def plain_gradient(loss, rollouts, advantage_N):
    """Loss and gradient of one row an answer, without micro-batches."""
    batch = inputs.batch(small.examples(4), small.SHAPE.image_token_id, length=32)
    rows = inputs.join(batch, rollouts.token_NT, rollouts.group_N)
    mask_NT = minibatches.answer_mask(rollouts)
    flat = Batch(
        prompts=None,
        token_NT=rollouts.token_NT,
        mask_NT=mask_NT,
        advantage_N=advantage_N,
        rollout_logp_NT=rollouts.logp_NT,
        old_logp_NT=rollouts.logp_NT,
        ref_logp_NT=rollouts.logp_NT - 0.5,
    )
    objective = objectives.group_rl(loss)
    totals = update.count(mask_NT[None])

    def value(params):
        logp_NT = plain_logp.__wrapped__(params, rows, rollouts.token_NT)
        return objective(jnp.where(mask_NT > 0, logp_NT, 0), flat, totals)[0]

    return jax.jit(jax.value_and_grad(value), compiler_options=small.FAST)(small.params())


def test_small_and_large_groups_equal_plain_rows():
    """GSPO: a mean of means over all 72 answers, of 1, 7, 1 and 2 rows. `update_test` has GRPO."""
    rollouts, advantage_N = small.rollouts(LARGE), small.advantages(72)
    value, gradient = plain_gradient(small.GSPO, rollouts, advantage_N)
    (batch,) = split(rollouts, advantage_N, 4, 2)
    assert batch.token_NT.shape[:2] == (6, 2 * 8)
    state, metrics = compiled(small.GSPO)(start(small.params()), batch)
    np.testing.assert_allclose(metrics["actor/loss"], value, rtol=1e-5)
    ours = jax.tree.map(lambda a, b: (a - b) / 0.05, small.params(), state.params)
    norm = float(metrics["actor/grad_norm"])
    assert norm > 0.1
    assert_close(ours, gradient, atol=1e-4 * norm)


def test_few_programs_for_all_splits_of_a_budget():
    """32 answers in all, a row at a time: 4 of them if all groups fill theirs, else 8."""
    step = compiled(small.GRPO)
    state = start(small.params())
    for sizes in SPLITS:
        rollouts = small.rollouts(np.array(sizes), seed=sizes[0])
        (batch,) = split(rollouts, small.advantages(32), 4, 1)
        state, metrics = step(state, batch)
        assert np.isfinite(metrics["actor/loss"])
    assert step._cache_size() == 2


def test_empty_microbatches_are_not_computed():
    """What is traced for one is a branch: an empty one returns zeros, whatever it would cost."""
    seen = []

    def logp(params, batch):
        jax.debug.callback(lambda: seen.append(1))
        return logprobs.Tokens(params["w"] * batch.token_NT, jnp.zeros(batch.token_NT.shape))

    rollouts = small.rollouts(np.array([2, 26, 2, 2]))
    (batch,) = split(rollouts, small.advantages(32), 4, 1)
    full = int(batch.mask_NT.any((1, 2)).sum())
    assert full < len(batch.mask_NT) == 8  # of 7 rows
    score = jax.jit(update.make_logprobs(logp))
    logp_ANT = jax.block_until_ready(score({"w": jnp.float32(1)}, batch))
    jax.effects_barrier()
    assert len(seen) == full
    want = np.where(batch.mask_NT.any((1, 2), keepdims=True), batch.token_NT, 0)
    np.testing.assert_array_equal(logp_ANT, want)
