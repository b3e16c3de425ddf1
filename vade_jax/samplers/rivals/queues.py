"""Two queues of mastered prompts that are rolled out again: ReMind around any selector, and retire.

An item that is not in the queue has `since_I` = OUT. The others have the step in which they joined it or were
last reviewed. So the queue is one number per item instead of a list, which would vary in length. Within
one step its order is random.
"""

import dataclasses
import functools
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array

OUT = -1


def head(since_I: Array, key: jax.Array, size: int) -> jax.Array:
    """Returns the first `size` items of the queue, in random order; then others, if it has fewer."""
    wait_I = jnp.where(since_I == OUT, -jnp.inf, -since_I.astype(jnp.float32))
    index_S = ranking.top_b(wait_I, key, size)
    return index_S[jnp.argsort(since_I[index_S] == OUT, stable=True)]


# ------------------------------------------------------------------------------ ReMind
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
    since_I: jax.Array = per_item.starts(OUT)
    step: jax.Array = per_item.starts(0)  # steps so far


def remind(specs: Mapping[str, base.Spec], options: RemindOptions) -> base.Sampler:
    """Returns ReMind (arXiv 2606.03087): the selector of `specs` that `options.base` names, and a queue.

        a group all right               its prompt joins the tail of the queue with probability `enter`
        a queued prompt, all right      it leaves the queue
        a queued prompt, not all right  it goes to the tail
        every `every`-th step           `share` of the B places go to the head of the queue, the others to
                                        prompts that the wrapped selector chooses, as in any other step

    A review needs no extra rollouts. For the wrapped selector it is a visit like any other: the selector
    learns from it, and may drop the group.

    We have read only the abstract of the paper. The rules and their constants are from one second-hand
    account. It leaves these points open:
    - If the wrapped selector itself chooses a queued prompt, that counts as its review.
    - Reviews take random places of the batch, but first those of prompts that are due for review anyway, so
      that no prompt is in the batch twice.
    - If the queue is shorter than the share, it takes fewer places. A share of less than one place takes one.
    - Where a step has several rounds of rollouts, each round counts as a step.
    - A pass over all items does not change the queue.
    """
    below = base.below(specs, options)

    def init(num_items: int, **arrays: Array) -> RemindState:
        return per_item.begin(RemindState, num_items, base=below.init(num_items, **arrays))

    def propose(state: RemindState, key: jax.Array, num_prompts: int) -> types.Proposal:
        proposal = below.propose(state.base, key, num_prompts)
        size = max(1, ranking.share_of(options.share, num_prompts))
        head_key, place_key = jax.random.split(rng.selection_keys(key).review)
        head_S = head(state.since_I, head_key, size)
        is_due_S = (state.since_I[head_S] != OUT) & ((state.step + 1) % options.every == 0)
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
        is_queued_M = jnp.where(since_M != OUT, ~right_M, right_M & joins_M)
        after_M = jnp.where(is_queued_M, state.step, OUT)
        # A prompt without valid answers was not reviewed: it keeps its place in the queue.
        after_M = jnp.where(feedback.trials_M > 0, after_M, since_M)
        since_I = state.since_I.at[index_M].set(after_M)
        return RemindState(base=after, since_I=since_I, step=state.step + 1)

    def believe(state: RemindState, proposal: types.Proposal) -> dict[str, Array]:
        queued_M = state.since_I[proposal.index_M] != OUT
        belief = below.believe(state.base, proposal)
        return {**belief, "remind/reviewed": queued_M.astype(jnp.float32)}

    keep_below = lambda state, feedback: below.keep(state.base, feedback)
    keep = keep_below if below.drops else base.keep_all
    return base.compiled(init, propose, update, keep=keep, believe=believe, needs=below.needs)


# ------------------------------------------------------------------------------ retire
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
    since_I: jax.Array = per_item.starts(OUT)
    step: jax.Array = per_item.starts(0)  # steps so far


def retire(options: RetireOptions) -> base.Sampler:
    """Returns a selector of shuffled passes without mastered prompts, and of a queue that reviews these.

    ScaleRL (arXiv 2510.13786) never asks again for a prompt with a pass rate of 0.9 or more. In
    open-instruct (`no_resampling_pass_rate`) the latest group alone decides. This selector is not from a
    paper; it departs in two ways:

    - A prompt retires by its posterior instead of a single group: when (right + 1) / (right + wrong + 2)
      > `rate`, where a visit leaves `decay` of a prompt's earlier counts. One 8/8 gives 9/10, so the
      prompt stays; two give 15/16, so it retires.
    - Retired prompts are reviewed, because a policy forgets, and a pool that only shrinks would hide
      that. `review` of all places go to those that retired or were last reviewed longest ago. One with a
      wrong answer comes back; one that is all right again goes to the tail of the queue.

    All other places go to the active prompts in shuffled passes, as in `uniform`. If there are too few of
    them, the head of the queue takes the rest. Counts are of right and wrong answers, never of the mixed
    reward, in which a wrong answer earns its format.

    - How much evidence is needed depends on G. Four answers must be all right three times in a row; of 9
      or more, one group that is all right is enough. Counts approach G / (1 - decay): unless that exceeds
      (2 rate - 1) / (1 - rate), which is 8 for 0.9, nothing ever retires.
    - A prompt that comes back is treated as visited in the current pass. It does not catch up on missed
      visits, and it keeps its counts, so its next group may retire it again.
    - A prompt without valid answers keeps its place, in the queue or outside.
    - A pass over all items counts as evidence: it retires prompts and brings them back, and whatever stays
      retired was reviewed. It is not a step, and not a visit of the shuffled passes.
    - Where a step has several rounds of rollouts, each round counts as a step.
    """

    def propose(state: RetireState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys, retired_I = rng.selection_keys(key), state.since_I != OUT
        # One order for all: active items by their visits, then the queue, as if visited more often.
        after_I = jnp.max(state.visits_I) + 1 + state.since_I
        score_I = ranking.least_visited(jnp.where(retired_I, after_I, state.visits_I))
        full, part = divmod(round(options.review * num_prompts * PARTS), PARTS)
        if size := full + (part > 0):
            head_S = head(state.since_I, keys.review, size)
            # The longest wait first; unsigned, OUT is the largest number.
            wait_S = state.since_I[head_S].astype(jnp.uint32)
            head_S = head_S[jnp.argsort(wait_S, stable=True)]
            # floor(x (t + 1)) - floor(x t) for x = part / PARTS < 1 and t = step: a batch too small for a
            # review a step gets one every few steps. In whole numbers, as float32 would round to wrong ones;
            # x repeats after PARTS steps, so no product overflows.
            extra = (part * (state.step % PARTS) % PARTS + part) // PARTS
            is_due_S = jnp.arange(size) < full + extra
            first_S = jnp.where(is_due_S & retired_I[head_S], jnp.inf, score_I[head_S])
            score_I = score_I.at[head_S].set(first_S)
        return ranking.best(score_I, keys.ties, num_prompts, options.num_rollouts)

    def update(state: RetireState, feedback: types.Feedback) -> RetireState:
        index_M, before_M = feedback.index_M, state.since_I[feedback.index_M]
        turn = 0 if base.is_pass(feedback, len(state.since_I)) else 1
        state = beta.counted(state, feedback, decay_selected=options.decay, decay_rest=1.0)
        was_retired_M = before_M != OUT
        mean_M = beta.posterior_mean(state.alpha_I[index_M], state.beta_I[index_M])
        is_right_M = base.outcome(feedback) == 1
        retires_M = jnp.where(was_retired_M, is_right_M, mean_M > options.rate + MARGIN)
        since_M = jnp.where(retires_M, state.step, OUT)
        since_M = jnp.where(feedback.trials_M > 0, since_M, before_M)
        # A review is not a visit, so the largest number of visits is that of the current pass.
        visits_I = state.visits_I.at[index_M].add(jnp.where(was_retired_M, 0, turn))
        comes_back_M = was_retired_M & (since_M == OUT)
        visits_M = jnp.where(comes_back_M, jnp.max(visits_I), visits_I[index_M])
        return state.replace(
            visits_I=visits_I.at[index_M].set(visits_M),
            since_I=state.since_I.at[index_M].set(since_M),
            step=state.step + turn,
        )

    def believe(state: RetireState, proposal: types.Proposal) -> dict[str, Array]:
        retired_I = (state.since_I != OUT).astype(jnp.float32)
        reviewed_M = retired_I[proposal.index_M]
        return {
            **beta.believe(state, proposal),
            "retire/retired": jnp.full_like(reviewed_M, jnp.mean(retired_I)),
            "retire/reviewed": reviewed_M,
        }

    init = functools.partial(beta.begin, RetireState, options)
    return base.compiled(init, propose, update, believe=believe, needs=beta.NEEDS)


RETIRE = base.Spec("retire", RetireOptions, retire)
