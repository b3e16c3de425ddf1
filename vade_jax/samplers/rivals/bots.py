"""BOTS (arXiv 2510.26374): items that are not rolled out get guessed answers, which count a little.

Every step changes the counts of every item, with lambda = `forget`, rho = `guess_weight` and G answers per
prompt:

    rolled out   alpha <- (1 - lambda) alpha + right answers
    the rest     alpha <- (1 - lambda) alpha + rho G g

and the same for beta with wrong answers and 1 - g. The guess g of an item's pass rate is interpolated
between the pass rates of two reference models, a weak and a strong one: g = clip(weak + c (strong - weak),
0, 1). The policy's progress c is a running mean, where each step's value comes from the same interpolation
between the mean pass rates of the step's prompts. BOTS chooses the items whose Thompson draw is nearest to
1/2.

This follows the public code (Trinity-RFT), where a larger lambda forgets faster; the paper describes it both
ways.

Departures from the code:
- Reference pass rates are optional. Without them, g is the mean posterior mean over all items. Most of that
  is guessed itself, so it stays near the prior's 1/2 if there are many more items than in 1 / lambda batches.
- A prompt's answers count as they are; the code scales their pass rate to the nominal number of answers.
- A prompt without valid answers is treated as one of the rest.
- A step in whose prompts the references differ by less than 0.01 does not move c. The code divides by the
  difference, so that one such step could move c by thousands.
- The options that halve rho while guesses are poor, score the mean, or draw by the distance to 1/2, are left
  out.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array

MOMENTUM = 0.9  # momentum of c, as in the code
_ALIKE = 0.01  # difference of the references' mean pass rates that says too little about c


@dataclasses.dataclass(frozen=True)
class BotsOptions(beta.CountingOptions):
    """The hyperparameters of BOTS; the defaults are those of its published configuration."""

    forget: float = fields.fraction(0.1)  # lambda, the share of every count that a step forgets
    guess_weight: float = fields.fraction(0.1)  # rho, how much a guessed answer counts


@chex.dataclass(frozen=True)
class BotsState(beta.BetaState):
    """Counts of answers, guessed ones included, and how far the policy is between the references."""

    # c: 0 is as good as the weak reference, 1 as the strong one
    progress: Array = per_item.starts(0.0)
    started: Array = per_item.starts(False)  # whether c has been measured
    weak_I: Array | None = None  # float32, pass rates of the weak reference; None: no reference
    strong_I: Array | None = None  # float32, pass rates of the strong reference


def selector(options: BotsOptions) -> base.Sampler:
    """Returns BOTS; `init` takes the pass rates of both references, or neither."""

    def init(
        num_items: int,
        *,
        weak_rate: Array | None = None,
        strong_rate: Array | None = None,
        **prior: Array,
    ) -> BotsState:
        state = beta.begin(BotsState, options, num_items, **prior)
        if weak_rate is None and strong_rate is None:
            return state
        return state.replace(
            weak_I=per_item.rates("bots", "weak_rate", weak_rate, num_items),
            strong_I=per_item.rates("bots", "strong_rate", strong_rate, num_items),
        )

    def propose(state: BotsState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        p_I = beta.draw(keys.draw, state.alpha_I, state.beta_I)
        nearness_I = -jnp.abs(p_I - 0.5)
        return ranking.best(nearness_I, keys.ties, num_prompts, options.num_rollouts, p_I)

    def update(state: BotsState, feedback: types.Feedback) -> BotsState:
        state = advanced(state, feedback)
        guess_I = guess(state)
        stays, weight = 1 - options.forget, options.guess_weight * options.num_rollouts
        index_M, asked_M = feedback.index_M, feedback.trials_M > 0

        def count(count_I: Array, guessed_I: Array, new_M: Array) -> jax.Array:
            rest_I = stays * count_I + weight * guessed_I
            seen_M = stays * count_I[index_M] + new_M
            return jnp.asarray(rest_I).at[index_M].set(jnp.where(asked_M, seen_M, rest_I[index_M]))

        wrong_M = feedback.trials_M - feedback.successes_M
        return state.replace(
            alpha_I=count(state.alpha_I, guess_I, feedback.successes_M),
            beta_I=count(state.beta_I, 1 - guess_I, wrong_M),
        )

    references = base.PerItem("weak_rate"), base.PerItem("strong_rate")
    needs = base.Needs(items=(*references, beta.PASS_RATE))
    return base.compiled(init, propose, update, believe=beta.believe, needs=needs)


SPEC = base.Spec("bots", BotsOptions, selector)


def advanced(state: BotsState, feedback: types.Feedback) -> BotsState:
    """Returns the state with c moved a tenth of the way to the value that this step's prompts give."""
    if state.weak_I is None or state.strong_I is None:
        return state
    index_M, asked_M = feedback.index_M, feedback.trials_M > 0
    total = jnp.maximum(jnp.sum(asked_M), 1)
    mean = lambda x_M: jnp.sum(jnp.where(asked_M, x_M, 0.0)) / total
    weak, strong = mean(state.weak_I[index_M]), mean(state.strong_I[index_M])
    rate = mean(feedback.successes_M / jnp.maximum(feedback.trials_M, 1))
    new = (rate - weak) / (strong - weak + 1e-6)
    moved = jnp.where(state.started, MOMENTUM * state.progress + (1 - MOMENTUM) * new, new)
    is_told = jnp.any(asked_M) & (jnp.abs(strong - weak) >= _ALIKE)
    progress = jnp.where(is_told, moved, state.progress)
    return state.replace(progress=progress, started=state.started | is_told)


def guess(state: BotsState) -> jax.Array:
    """Returns g, the guessed pass rate of every item."""
    if state.weak_I is None or state.strong_I is None:
        mean_I = beta.posterior_mean(state.alpha_I, state.beta_I)
        return jnp.full_like(mean_I, jnp.nanmean(mean_I))
    return jnp.clip(state.weak_I + state.progress * (state.strong_I - state.weak_I), 0, 1)
