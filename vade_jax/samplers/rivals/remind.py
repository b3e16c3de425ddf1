"""ReMind (arXiv 2606.03087): around any selector, a queue of mastered prompts that are asked again.

    a group all right               its prompt joins the tail of the queue with probability `enter`
    a queued prompt, all right      it leaves the queue
    a queued prompt, not all right  it goes to the tail
    every `every`-th step           `share` of the B places go to the head of the queue, the others to
                                    the prompts that the selector below has chosen, as ever

A review costs nothing extra, and for the selector below it is a visit like any other: it learns from it,
and may drop the group.

Of the paper the abstract was read; the rules and their constants are from one second-hand account, which
leaves open what these do. If the selector below chooses a queued prompt by itself, that group counts as its
review. Reviews take random places of the batch, first those of
prompts that are on review anyway, so that none is there twice. A shorter queue takes fewer places, a share
below one place takes none. A step is a round of rollouts where there are several. A pass over all items
changes nothing in the queue.
"""

import dataclasses
import functools
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base
from vade_jax.types import Array

NOT_QUEUED = -1


@dataclasses.dataclass(frozen=True)
class RemindOptions(base.AroundOptions):
    """The hyperparameters of ReMind's queue; `base` is any selector without variants."""

    every: int = fields.number(5, at_least=1)  # steps from one review to the next
    share: float = fields.fraction(0.1)  # of the batch of such a step
    enter: float = fields.fraction(0.25)  # probability that a mastered prompt joins the queue
    # Of who joins, and of the selector below; what is proposed is the given keys'.
    seed: int = fields.seed()


@chex.dataclass(frozen=True)
class RemindState(types.Pytree):
    """The state of the selector below, and the queue."""

    base: base.State
    # int32, the step that a queued item joined in, or was last reviewed in: the queue's order. A number
    # an item, where a list would change its length; within one step the order is random.
    since_I: jax.Array
    step: jax.Array  # int32, steps so far


def selector(specs: Mapping[str, base.Spec], options: RemindOptions) -> base.Sampler:
    """Returns one of `specs` with ReMind's queue around it.

    Raises:
        ValueError: `base` or an option of it is unknown, or it asks for variants of items, which
            belong together.
    """
    below = base.below(specs, options)
    if below.needs.variants:
        raise ValueError(f"base={options.base!r} asks for variants of prompts: choose another one")

    def init(num_items: int, **arrays: Array) -> RemindState:
        return RemindState(
            base=below.init(num_items, **arrays),
            since_I=jnp.full(num_items, NOT_QUEUED, jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )

    def propose(state: RemindState, key: jax.Array, num_prompts: int) -> types.Proposal:
        proposal = below.propose(state.base, key, num_prompts)
        size = base.share_of(options.share, num_prompts)
        if size == 0:
            return proposal
        head_key, place_key = jax.random.split(rng.selection_keys(key).review)
        head_S, there_S = head(state.since_I, head_key, size)
        there_S &= (state.step + 1) % options.every == 0
        reviewed_I = jnp.zeros(state.since_I.shape, bool).at[head_S].set(there_S)
        place_S = places(reviewed_I[proposal.index_M], place_key, size)
        return replaced(proposal, place_S, head_S, there_S)

    def keep(state: RemindState, feedback: types.Feedback) -> Array:
        return below.keep(state.base, feedback)

    def update(state: RemindState, feedback: types.Feedback) -> RemindState:
        index_M, after = feedback.index_M, below.update(state.base, feedback)
        if base.is_pass(feedback, len(state.since_I)):
            return state.replace(base=after)
        right_M, since_M = base.outcome(feedback) == 1, state.since_I[index_M]
        # `update` gets no key. Which items would join in this step follows from the selector's seed
        # and the step, item by item: whatever is resumed, or comes in another order, joins alike.
        key = rng.joining_key(options.seed, state.step)
        joins_I = jax.random.uniform(key, state.since_I.shape) < options.enter
        queued_M = jnp.where(right_M, NOT_QUEUED, state.step)
        # Without a valid answer it was not reviewed: it keeps its place.
        queued_M = jnp.where(feedback.trials_M > 0, queued_M, since_M)
        others_M = jnp.where(right_M & joins_I[index_M], state.step, NOT_QUEUED)
        since_M = jnp.where(since_M != NOT_QUEUED, queued_M, others_M)
        return RemindState(
            base=after, since_I=state.since_I.at[index_M].set(since_M), step=state.step + 1
        )

    def believe(state: RemindState, proposal: types.Proposal) -> dict[str, Array]:
        queued_M = state.since_I[proposal.index_M] != NOT_QUEUED
        belief = below.believe(state.base, proposal)
        return {**belief, "remind/reviewed": queued_M.astype(jnp.float32)}

    return below._replace(
        init=init,
        propose=jax.jit(propose, static_argnames="num_prompts"),
        keep=jax.jit(keep) if below.drops else base.KEEP_ALL,
        update=jax.jit(update),
        believe=jax.jit(believe),
    )


def spec(specs: Mapping[str, base.Spec]) -> base.Spec:
    """Returns the entry `remind` of `SAMPLERS`, around any one of `specs`."""
    return base.Spec("remind", RemindOptions, functools.partial(selector, specs))


# ------------------------------------------------------------------------------ the queue
def head(since_I: Array, key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Returns the first `size` items of the queue, and whether each is there: those that are come first."""
    order_I = jnp.where(since_I == NOT_QUEUED, -jnp.inf, -since_I.astype(jnp.float32))
    index_S = base.top_b(order_I, key, size)
    index_S = index_S[jnp.argsort(since_I[index_S] == NOT_QUEUED, stable=True)]
    return index_S, since_I[index_S] != NOT_QUEUED


def places(again_M: Array, key: jax.Array, size: int) -> jax.Array:
    """Returns `size` places of a batch, random ones behind all those of `again_M`."""
    luck_M = jax.random.uniform(key, again_M.shape)
    return jnp.argsort(jnp.where(again_M, -1.0, luck_M))[:size]


def replaced(
    proposal: types.Proposal, place_S: Array, index_S: Array, there_S: Array
) -> types.Proposal:
    """Returns the proposal with the items `there_S` in these places, and as many answers as these had."""
    old_S = proposal.index_M[place_S]
    index_M = jnp.asarray(proposal.index_M).at[place_S].set(jnp.where(there_S, index_S, old_S))
    proposal = proposal.replace(index_M=index_M)
    # What was drawn for the item that gave its place away is not of the other one.
    if proposal.p_M is not None:
        p_S = jnp.where(there_S, jnp.nan, proposal.p_M[place_S])
        proposal = proposal.replace(p_M=jnp.asarray(proposal.p_M).at[place_S].set(p_S))
    if proposal.weight_M is not None:
        weight_S = jnp.where(there_S, 1.0, proposal.weight_M[place_S])
        weight_M = jnp.asarray(proposal.weight_M).at[place_S].set(weight_S)
        proposal = proposal.replace(weight_M=weight_M)
    return proposal
