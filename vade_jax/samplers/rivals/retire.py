"""Retire and review: mastered prompts leave the shuffled passes, and a share of them is looked at again.

ScaleRL (arXiv 2510.13786) never asks again for a prompt whose pass rate is 0.9 or more. In open-instruct
(`no_resampling_pass_rate`) the latest group alone decides. This selector is not from a paper; it departs in
two ways:

- A prompt retires by its posterior and not by luck: when (right + 1) / (right + wrong + 2) > `rate`, where a
  visit leaves `decay` of a prompt's earlier counts. One 8/8 gives 9/10, so the prompt stays; two give 15/16,
  so it retires.
- Retired prompts are reviewed, because a policy forgets, and a pool that only shrinks hides it. `review` of
  all places go to those that retired or were last reviewed longest ago. One with a wrong answer comes back;
  one that is all right again goes to the tail of the queue.

All other places go to the active prompts in shuffled passes, as in `uniform`. If there are too few of them,
the head of the queue takes the rest. Counts are of right and wrong answers, never of the mixed reward, in
which a wrong answer earns its format.

- How little evidence is enough depends on G. Four answers must be all right three times in a row; of 9 or
  more, one group that is all right is enough. Counts approach G / (1 - decay): unless that exceeds
  (2 rate - 1) / (1 - rate), which is 8 for 0.9, nothing ever retires.
- A prompt that comes back is treated as visited in the current pass. It need not make up for the visits that
  it missed, and it keeps its counts: its next group may retire it again.
- A prompt without valid answers keeps its place, in the queue or outside.
- A pass over all items counts as evidence: it retires prompts and brings them back, and whatever stays
  retired was reviewed. It is not a step, and not a visit of the shuffled passes.
- Where a step has several rounds of rollouts, each round counts as a step.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array

NOT_RETIRED = -1
PARTS = 10_000  # the reviews of a step are counted in these parts of one
MARGIN = 1e-6  # 9/10 is not above 0.9, however it is rounded


@dataclasses.dataclass(frozen=True)
class RetireOptions(beta.CountingOptions):
    rate: float = fields.fraction(0.9)  # A posterior mean above it retires a prompt; 1: never
    # What is left of an item's counts after it is visited; items that are not visited keep theirs
    decay: float = fields.fraction(0.75)
    review: float = fields.fraction(0.05)  # Share of all places that go to retired prompts


@chex.dataclass(frozen=True)
class RetireState(beta.BetaState):
    """Counts of answers, the visits of the shuffled passes, and the queue of retired items."""

    # The pass in which an item was last visited; active items differ by at most one
    visits_I: jax.Array = per_item.starts(0)
    # The step in which a retired item retired or was last reviewed: the order of the queue
    since_I: jax.Array = per_item.starts(NOT_RETIRED)
    step: jax.Array = per_item.starts(0)  # steps so far


def selector(options: RetireOptions) -> base.Sampler:
    def propose(state: RetireState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys, retired_I = rng.selection_keys(key), state.since_I != NOT_RETIRED
        # One order for all: active items by their visits, then the queue, as if visited more often.
        after = jnp.max(state.visits_I) + 1 + state.since_I
        score_I = ranking.least_visited(jnp.where(retired_I, after, state.visits_I))
        full, part = divmod(round(options.review * num_prompts * PARTS), PARTS)
        if size := full + (part > 0):
            head_S = head(state.since_I, keys.review, size)
            is_due_S = jnp.arange(size) < full + carry(part, state.step)
            first_S = jnp.where(is_due_S & retired_I[head_S], jnp.inf, score_I[head_S])
            score_I = score_I.at[head_S].set(first_S)
        return ranking.best(score_I, keys.ties, num_prompts, options.num_rollouts)

    def update(state: RetireState, feedback: types.Feedback) -> RetireState:
        index_M, before_M = feedback.index_M, state.since_I[feedback.index_M]
        turn = 0 if base.is_pass(feedback, len(state.since_I)) else 1
        state = beta.counted(state, feedback, decay_selected=options.decay, decay_rest=1.0)
        was_retired_M = before_M != NOT_RETIRED
        mean_M = beta.posterior_mean(state.alpha_I[index_M], state.beta_I[index_M])
        is_right_M = base.outcome(feedback) == 1
        retires_M = jnp.where(was_retired_M, is_right_M, mean_M > options.rate + MARGIN)
        since_M = jnp.where(retires_M, state.step, NOT_RETIRED)
        since_M = jnp.where(feedback.trials_M > 0, since_M, before_M)
        # A review is not a visit, so the largest number of visits is that of the current pass.
        visits_I = state.visits_I.at[index_M].add(jnp.where(was_retired_M, 0, turn))
        comes_back_M = was_retired_M & (since_M == NOT_RETIRED)
        visits_M = jnp.where(comes_back_M, jnp.max(visits_I), visits_I[index_M])
        return state.replace(
            visits_I=visits_I.at[index_M].set(visits_M),
            since_I=state.since_I.at[index_M].set(since_M),
            step=state.step + turn,
        )

    def believe(state: RetireState, proposal: types.Proposal) -> dict[str, Array]:
        retired_I = (state.since_I != NOT_RETIRED).astype(jnp.float32)
        reviewed_M = retired_I[proposal.index_M]
        return {
            **beta.believe(state, proposal),
            "retire/retired": jnp.full_like(reviewed_M, jnp.mean(retired_I)),
            "retire/reviewed": reviewed_M,
        }

    init = functools.partial(beta.begin, RetireState, options)
    return base.compiled(init, propose, update, believe=believe, needs=beta.NEEDS)


SPEC = base.Spec("retire", RetireOptions, selector)


def head(since_I: Array, key: jax.Array, size: int) -> jax.Array:
    """Returns the first `size` items of the queue, the longest wait first; then any that are not in it."""
    wait_I = jnp.where(since_I == NOT_RETIRED, -jnp.inf, -since_I.astype(jnp.float32))
    index_S = ranking.top_b(wait_I, key, size)  # in random order, which decides between equal waits
    return index_S[jnp.argsort(-wait_I[index_S], stable=True)]


def carry(part: int, step: Array) -> Array:
    """Returns floor(x (t + 1)) - floor(x t) for x = `part` / PARTS < 1 and t = `step`.

    So a batch too small for one review a step gets one every few steps. In whole numbers, because float32
    products of a long run round to wrong counts; x repeats after PARTS steps, so no product overflows.
    """
    return (part * (step % PARTS) % PARTS + part) // PARTS
