"""Strata: a control that learns the pass rate of every category from passes over all items.

It is not from a paper. It shows what a selector could gain if it knew how hard each kind of prompt is now.
Passes (`Collector.measure`) measure the mean pass rate p of each category; between passes nothing is learned.
Items are drawn without replacement in proportion to p (1 - p), the variance of one answer. So categories
whose answers differ fill the batch, and no such category is left out.

The estimate of p adds half a right and half a wrong answer (Jeffreys' prior). Twenty wrong answers do not
show that p is 0, and a category of weight 0 would never be drawn again: what the policy forgets for a while
would be lost for good.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import rng, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array


@chex.dataclass(frozen=True)
class StrataState(types.Pytree):
    """The pass rate of each of the A categories, from the latest pass."""

    rate_A: Array  # float32
    category_I: Array  # int32


def selector(options: base.Options) -> base.Sampler:
    """Returns the control; `init` takes each item's category, and its pass rate unless a pass measures it."""

    def init(
        num_items: int, *, category: Array | None = None, pass_rate: Array | None = None
    ) -> StrataState:
        # Before the first pass all categories have the same pass rate, so all items are equally likely.
        pass_rate = np.full(num_items, 0.5) if pass_rate is None else pass_rate
        category_I, _ = per_item.categories("strata", category, num_items)
        rate_I = per_item.rates("strata", "pass_rate", pass_rate, num_items)
        rate_A = _rate(np.bincount(category_I, rate_I), np.bincount(category_I))
        return StrataState(rate_A=rate_A.astype(np.float32), category_I=category_I)

    def propose(state: StrataState, key: jax.Array, num_prompts: int) -> types.Proposal:
        log_weight_I = jnp.log(state.rate_A * (1 - state.rate_A))[state.category_I]
        keys, p_I = rng.selection_keys(key), state.rate_A[state.category_I]
        return ranking.drawn(log_weight_I, keys, num_prompts, options.num_rollouts, p_I)

    def update(state: StrataState, feedback: types.Feedback) -> StrataState:
        if not base.is_pass(feedback, len(state.category_I)):
            return state
        arm_M = state.category_I[feedback.index_M]

        def total(x_M: Array) -> jax.Array:
            return jax.ops.segment_sum(x_M, arm_M, len(state.rate_A))

        right_A, asked_A = total(feedback.successes_M), total(feedback.trials_M)
        rate_A = jnp.where(asked_A > 0, _rate(right_A, asked_A), state.rate_A)
        return StrataState(rate_A=rate_A, category_I=state.category_I)

    items = base.PerItem("category", "required"), base.PerItem("pass_rate", "measured")
    return base.compiled(init, propose, update, needs=base.Needs(items=items))


def _rate(right_A: Array, asked_A: Array) -> Array:
    return (right_A + 0.5) / (asked_A + 1)


# One answer per item is enough to measure a category of hundreds.
PASSES = {"measure.every": 10, "measure.num_rollouts": 1}
SPEC = base.Spec("strata", base.Options, selector, goes_with=per_item.WITH_CATEGORY | PASSES)
