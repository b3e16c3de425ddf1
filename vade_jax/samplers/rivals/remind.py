"""ReMind (arXiv 2606.03087): wraps any selector with a queue of mastered prompts that are rolled out again.

    a group all right               its prompt joins the tail of the queue with probability `enter`
    a queued prompt, all right      it leaves the queue
    a queued prompt, not all right  it goes to the tail
    every `every`-th step           `share` of the B places go to the head of the queue, the others to
                                    prompts that the wrapped selector chooses, as in any other step

A review needs no extra rollouts. For the wrapped selector it is a visit like any other: the selector learns
from it, and may drop the group.

We have read only the abstract of the paper. The rules and their constants are from one second-hand account.
It leaves these points open:
- If the wrapped selector itself chooses a queued prompt, that counts as its review.
- Reviews take random places of the batch, but first those of prompts that are due for review anyway, so that
  no prompt is in the batch twice.
- If the queue is shorter than the share, it takes fewer places. A share of less than one place takes one.
- Where a step has several rounds of rollouts, each round counts as a step.
- A pass over all items does not change the queue.
"""

import dataclasses
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array

NOT_QUEUED = -1


@dataclasses.dataclass(frozen=True)
class RemindOptions(base.AroundOptions):
    """The hyperparameters of ReMind's queue; `base` is any other selector of this package."""

    every: int = fields.number(5, at_least=1)  # Steps from one review to the next
    # Share of the batch that reviews take in such a step
    share: float = fields.number(0.1, above=0, at_most=1)
    enter: float = fields.fraction(0.25)  # Probability that a mastered prompt joins the queue
    # Seed that decides which prompts join the queue, and seed of the wrapped selector; proposals use the
    # keys of the run
    seed: int = fields.seed()


@chex.dataclass(frozen=True)
class RemindState(types.Pytree):
    """The state of the wrapped selector, and the queue."""

    base: base.State
    # The step in which a queued item joined or was last reviewed: the order of the queue. Within one step
    # the order is random. It is one number per item because the length of a list would change.
    since_I: jax.Array = per_item.starts(NOT_QUEUED)
    step: jax.Array = per_item.starts(0)  # steps so far


def selector(specs: Mapping[str, base.Spec], options: RemindOptions) -> base.Sampler:
    """Returns the selector of `specs` that `options.base` names, with ReMind's queue around it."""
    below = base.below(specs, options)

    def init(num_items: int, **arrays: Array) -> RemindState:
        return per_item.begin(RemindState, num_items, base=below.init(num_items, **arrays))

    def propose(state: RemindState, key: jax.Array, num_prompts: int) -> types.Proposal:
        proposal = below.propose(state.base, key, num_prompts)
        size = max(1, ranking.share_of(options.share, num_prompts))
        head_key, place_key = jax.random.split(rng.selection_keys(key).review)
        head_S, is_due_S = head(state.since_I, head_key, size)
        is_due_S &= (state.step + 1) % options.every == 0
        # Where the wrapped selector chose a prompt that is due for review, its place is taken first.
        is_due_I = jnp.zeros(state.since_I.shape, bool).at[head_S].set(is_due_S)
        luck_M = jax.random.uniform(place_key, proposal.index_M.shape)
        place_S = jnp.argsort(jnp.where(is_due_I[proposal.index_M], -1.0, luck_M))[:size]

        def put(x_M: Array | None, new_S: Array | float) -> Array | None:
            if x_M is None:
                return None
            return jnp.asarray(x_M).at[place_S].set(jnp.where(is_due_S, new_S, x_M[place_S]))

        # The pass rate and weight were those of the replaced item, so they do not apply to the new one.
        return proposal.replace(
            index_M=put(proposal.index_M, head_S),
            p_M=put(proposal.p_M, jnp.nan),
            weight_M=put(proposal.weight_M, 1.0),
        )

    def update(state: RemindState, feedback: types.Feedback) -> RemindState:
        index_M, after = feedback.index_M, below.update(state.base, feedback)
        if base.is_pass(feedback, len(state.since_I)):
            return state.replace(base=after)
        right_M, since_M = base.outcome(feedback) == 1, state.since_I[index_M]
        # `update` gets no key. The selector's seed and the step decide for every item whether it may join
        # in this step, so a resumed run and feedback in another order give the same queue.
        luck_I = jax.random.uniform(rng.joining_key(options.seed, state.step), state.since_I.shape)
        joins_M = luck_I[index_M] < options.enter
        is_queued_M = jnp.where(since_M != NOT_QUEUED, ~right_M, right_M & joins_M)
        after_M = jnp.where(is_queued_M, state.step, NOT_QUEUED)
        # A prompt without valid answers was not reviewed: it keeps its place in the queue.
        after_M = jnp.where(feedback.trials_M > 0, after_M, since_M)
        since_I = state.since_I.at[index_M].set(after_M)
        return RemindState(base=after, since_I=since_I, step=state.step + 1)

    def believe(state: RemindState, proposal: types.Proposal) -> dict[str, Array]:
        queued_M = state.since_I[proposal.index_M] != NOT_QUEUED
        belief = below.believe(state.base, proposal)
        return {**belief, "remind/reviewed": queued_M.astype(jnp.float32)}

    keep_below = lambda state, feedback: below.keep(state.base, feedback)
    keep = keep_below if below.drops else base.keep_all
    return base.compiled(init, propose, update, keep=keep, believe=believe, needs=below.needs)


def head(since_I: Array, key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Returns the first `size` items of the queue, and whether each is really queued (those come first)."""
    order_I = jnp.where(since_I == NOT_QUEUED, -jnp.inf, -since_I.astype(jnp.float32))
    index_S = ranking.top_b(order_I, key, size)
    index_S = index_S[jnp.argsort(since_I[index_S] == NOT_QUEUED, stable=True)]
    return index_S, since_I[index_S] != NOT_QUEUED
