"""Rules that change a selector's scores: by token, a warm-up, a uniform share, a rest after a streak.

None of them is in the paper of VADE (arXiv 2511.18902). They change the scores just before the top B is
taken, so that `vade.py` itself has only the paper's lines.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import rng, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.types import Array

Options = Any  # `vade.VadeOptions`, which explains the rules


def init(options: Options, num_items: int) -> dict[str, Any]:
    """Returns the arrays that the rules keep in the selector's state."""
    return {
        "unseen_I": np.full(num_items, options.warmup == "full"),
        "streak_I": np.zeros(num_items, np.int32) if options.max_consecutive else None,
        "token_I": np.zeros(num_items, np.float32) if options.per == "token" else None,
    }


def override(
    options: Options, state: Any, score_I: Array, keys: rng.SelectionKeys, num_prompts: int
) -> Array:
    """Returns the scores, per token if configured; +inf: the item comes first, -inf: it rests."""
    if options.per == "token":
        score_I = score_I / expected_tokens(state.token_I, state.alpha_I + state.beta_I)
    score_I = jnp.where(state.unseen_I, jnp.inf, score_I)
    num_uniform = ranking.share_of(options.uniform_share, num_prompts)
    score_I = ranking.mix_uniform(score_I, keys.uniform, num_uniform)
    if not options.max_consecutive:
        return score_I
    # Last: an item that has to rest does so even if the uniform share drew it.
    return jnp.where(state.streak_I >= options.max_consecutive, -jnp.inf, score_I)


def update(state: Any, feedback: types.Feedback, decays: Mapping[str, float]) -> dict[str, Any]:
    """Returns the arrays after a proposal was answered; a pass over all items leaves streaks alone."""
    index_M, streak_I, token_I = feedback.index_M, state.streak_I, state.token_I
    if streak_I is not None and not base.is_pass(feedback, len(streak_I)):
        # A streak is of steps in a row, so it ends for every item that this step left out.
        streak_M = jnp.where(feedback.trials_M > 0, streak_I[index_M] + 1, 0)
        streak_I = jnp.zeros_like(streak_I).at[index_M].set(streak_M)
    if token_I is not None:
        token_N = (feedback.length_N * feedback.valid_N).astype(jnp.float32)
        token_M = jax.ops.segment_sum(token_N, feedback.group_N, len(index_M))
        token_I = beta.decay_and_add(token_I, index_M, token_M, feedback.trials_M, **decays)
    # Counts as seen even without valid answers, or a prompt that never gets one would always come first.
    unseen_I = state.unseen_I.at[index_M].set(False)
    return {"unseen_I": unseen_I, "streak_I": streak_I, "token_I": token_I}


def expected_tokens(token_I: Array, count_I: Array) -> Array:
    """Returns the expected tokens of an answer to each item, from the sums of answers and tokens so far.

    It is the item's own mean with the mean over all items as one more answer. So an item without answers
    gets the overall mean, and a single answer has limited weight.
    """
    total, count = jnp.sum(token_I), jnp.sum(count_I)
    mean = jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 1.0)
    return (token_I + mean) / (count_I + 1)
