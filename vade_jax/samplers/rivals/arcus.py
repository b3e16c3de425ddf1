"""ARCUS (arXiv 2609.38018): a Gaussian posterior of arcsin sqrt(p) of every pass rate, and a moving target.

GRPO's z-scored gradient climbs psi = arcsin sqrt(p), so ARCUS tracks that instead of the pass rate p. For
every item psi ~ N(mean, var), at first N(pi/4, pi^2/48), which has the variance of a uniform psi. One step:

    correct, by k of n right    z = arcsin sqrt((k + 3/8) / (n + 3/4)), R = 1 / (4n + 2)
                                (k = 0: z = 0, k = n: z = pi/2, R = 1 / 2n)
                                K = var / (var + R), mean += K (z - mean), var *= 1 - K
    predict                     mean += v sin(2 mean), var += Q, mean within [0, pi/2]
    learn v, Q                  from the prediction errors of prompts that were seen before
    score                       s = kappa y: nearness to the target psi* times the chance of a mixed group
    choose                      B items, drawn without replacement with weights s^(1/T)
    move psi*                   towards the hardest target whose draw would bring as large a share of mixed
                                groups as the best target's, up to a slack

Once 100 items have been seen, each unseen item gets their mean, and a variance that covers their spread.

The paper leaves open where v and Q start and what clipping does: here v starts at 0 and Q at its floor, and
clipping a mean does not change var. The defaults of the options are those of its experiments.

Departures from the paper:
- The paper rolls out an extra quarter of a batch and trains on the best groups (rho = .25). Here rho = 0, as
  in the paper's comparison at equal rollouts.
- Every posterior is predicted in every step, with the v and Q of that step, not only when an item is read.
- n counts only valid answers.

The theory assumes advantages divided by the standard deviation; for others the paper uses p instead of psi.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array

PRIOR_MEAN, PRIOR_VAR = np.pi / 4, np.pi**2 / 48
LEAST_NOISE = 1e-5  # floor of Q
LEAST_SLOPE = 0.05  # floor of sin(2 mean) where v's update divides by it
ENOUGH = 100  # seen items, after which unseen items get their mean and variance
NUM_TARGETS = 41  # candidates for the target
MAX_MOVE = 0.005  # largest move of the target, in radians a step
MAX_ITEMS = 2**14  # most items that the target is computed from
NUM_NEWTON = 10  # exact to rounding unless a batch is most of the data set


@dataclasses.dataclass(frozen=True)
class ArcusOptions(base.Options):
    temperature: float = fields.number(0.3, above=0)  # T, temperature of the weighted draw
    learning_rate: float = fields.fraction(0.1)  # beta, learning rate of v and Q
    # epsilon: how much smaller the share of mixed groups may be at the target than at the best one
    slack: float = fields.fraction(0.03)


@chex.dataclass(frozen=True)
class ArcusState(types.Pytree):
    """The posterior of every item in the coming step: arcsin sqrt(p) ~ N(mean, var)."""

    mean_I: jax.Array = per_item.starts(PRIOR_MEAN)  # radians
    var_I: jax.Array = per_item.starts(PRIOR_VAR)
    seen_I: jax.Array = per_item.starts(-1)  # step of the last visit, from 0; -1 before the first
    drift: jax.Array = per_item.starts(0.0)  # v
    noise: jax.Array = per_item.starts(LEAST_NOISE)  # Q
    target: jax.Array = per_item.starts(PRIOR_MEAN)  # psi*, radians
    step: jax.Array = per_item.starts(0)


def selector(options: ArcusOptions) -> base.Sampler:
    """Returns ARCUS with rho = 0."""
    rate, num_rollouts = options.learning_rate, options.num_rollouts

    def propose(state: ArcusState, key: jax.Array, num_prompts: int) -> types.Proposal:
        mixed_I = prob_mixed(state.mean_I, state.var_I, num_rollouts)
        log_score_I = log_nearness(state.mean_I, state.var_I, state.target) + jnp.log(mixed_I)
        log_weight_I, keys = log_score_I / options.temperature, rng.selection_keys(key)
        proposal = ranking.drawn(log_weight_I, keys, num_prompts, num_rollouts)
        return proposal.replace(p_M=jnp.sin(state.mean_I[proposal.index_M]) ** 2)

    def update(state: ArcusState, feedback: types.Feedback) -> ArcusState:
        num_items, num_prompts = len(state.mean_I), len(feedback.index_M)
        state = predicted(corrected(learned(state, feedback, rate), feedback))
        state = state.replace(step=state.step + 1)
        if base.is_pass(feedback, num_items):  # no draw was made, so the target stays
            return state
        aim = best_target(state, num_rollouts, num_prompts, options.temperature, options.slack)
        move = jnp.clip(aim - state.target, -MAX_MOVE, MAX_MOVE)
        # The target stays until there were enough steps to visit every item once.
        waits = state.step < -(-num_items // num_prompts)
        return state.replace(target=state.target + jnp.where(waits, 0.0, move))

    init = functools.partial(per_item.begin, ArcusState)
    return base.compiled(init, propose, update, believe=believe)


SPEC = base.Spec("arcus", ArcusOptions, selector)


def observed(successes_M: Array, trials_M: Array) -> tuple[jax.Array, jax.Array]:
    """Returns z and R: the psi that k of n right answers suggest, and the variance of z."""
    num_M = jnp.maximum(trials_M, 1)
    right_M, wrong_M = successes_M >= num_M, successes_M <= 0
    z_M = jnp.arcsin(jnp.sqrt((successes_M + 3 / 8) / (num_M + 3 / 4)))
    z_M = jnp.where(right_M, np.pi / 2, jnp.where(wrong_M, 0.0, z_M))
    return z_M, jnp.where(right_M | wrong_M, 1 / (2 * num_M), 1 / (4 * num_M + 2))


def learned(state: ArcusState, feedback: types.Feedback, rate: float) -> ArcusState:
    """Returns the state with v and Q updated from the errors of its predictions.

    With nu = z - mean, s = var + R, d the steps since the last visit and h = max(sin 2 mean, .05), all over
    the prompts that were seen before:

        v <- v + rate sum(nu) / sum(d h)
        Q <- max(1e-5, (1 - rate) Q + rate max(Q + mean(nu^2 - s) / mean(d), 0))
    """
    index_M = feedback.index_M
    mean_M, var_M, seen_M = (x[index_M] for x in (state.mean_I, state.var_I, state.seen_I))
    z_M, noise_M = observed(feedback.successes_M, feedback.trials_M)
    again_M = (feedback.trials_M > 0) & (seen_M >= 0)

    def total(x_M: Array) -> jax.Array:
        return jnp.sum(jnp.where(again_M, x_M, 0.0))

    error_M, steps_M = z_M - mean_M, state.step - seen_M
    slope_M = jnp.maximum(jnp.sin(2 * mean_M), LEAST_SLOPE)
    steps, excess = total(steps_M), total(error_M**2 - var_M - noise_M)
    any_again = jnp.any(again_M)
    # Without such prompts both quotients are 0 / 1.
    drift = total(error_M) / jnp.where(any_again, total(steps_M * slope_M), 1)
    observed_noise = jnp.maximum(state.noise + excess / jnp.where(any_again, steps, 1), 0)
    noise = jnp.maximum((1 - rate) * state.noise + rate * observed_noise, LEAST_NOISE)
    return state.replace(drift=state.drift + rate * drift, noise=noise)


def corrected(state: ArcusState, feedback: types.Feedback) -> ArcusState:
    """Returns the state after a Kalman correction for every prompt with valid answers."""
    index_M, asked_M = feedback.index_M, feedback.trials_M > 0
    mean_M, var_M = state.mean_I[index_M], state.var_I[index_M]
    z_M, noise_M = observed(feedback.successes_M, feedback.trials_M)
    gain_M = jnp.where(asked_M, var_M / (var_M + noise_M), 0.0)
    new_M = jnp.clip(mean_M + gain_M * (z_M - mean_M), 0, np.pi / 2)
    return state.replace(
        mean_I=state.mean_I.at[index_M].set(new_M),
        var_I=state.var_I.at[index_M].set((1 - gain_M) * var_M),
        seen_I=state.seen_I.at[index_M].set(jnp.where(asked_M, state.step, state.seen_I[index_M])),
    )


def predicted(state: ArcusState) -> ArcusState:
    """Returns the state one step later; unseen items get the mean and variance of enough seen ones."""
    mean_I, var_I, seen_I = state.mean_I, state.var_I, state.seen_I >= 0
    next_I = jnp.clip(mean_I + state.drift * jnp.sin(2 * mean_I), 0, np.pi / 2)
    mean_I = jnp.where(seen_I, next_I, mean_I)
    var_I = jnp.where(seen_I, var_I + state.noise, var_I)

    count = jnp.sum(seen_I)
    average = lambda x_I: jnp.sum(jnp.where(seen_I, x_I, 0.0)) / jnp.maximum(count, 1)
    mean = average(mean_I)
    var = average((mean_I - mean) ** 2) + average(var_I)
    like_I = ~seen_I & (count >= ENOUGH)
    return state.replace(
        mean_I=jnp.where(like_I, mean, mean_I), var_I=jnp.where(like_I, var, var_I)
    )


def prob_mixed(mean_I: Array, var_I: Array, num_rollouts: int | Array) -> jax.Array:
    """Returns y, the paper's closed form for the chance of a mixed group of G answers.

    y = 1 - (exp(-G mean^2 / a) + exp(-G (pi/2 - mean)^2 / a)) / sqrt(a), a = 1 + 2 G var. The chance that all
    answers are wrong, cos(psi)^2G, is replaced by exp(-G psi^2), and that all are right likewise. And psi is
    integrated over the whole line, so y is up to .09 too high where it reaches beyond 0 or pi/2.
    """
    a_I = 1 + 2 * num_rollouts * var_I
    ends_I = jnp.exp(-num_rollouts * mean_I**2 / a_I)
    ends_I += jnp.exp(-num_rollouts * (np.pi / 2 - mean_I) ** 2 / a_I)
    # A certain posterior at 0 or pi/2 has y = 0, which rounding can make negative; its logarithm is taken.
    return jnp.maximum(1 - ends_I / jnp.sqrt(a_I), 1e-30)


def believe(state: ArcusState, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Implements `Sampler.believe`; E[sin(psi)^2] = (1 - exp(-2 var) cos(2 mean)) / 2."""
    mean_M, var_M = state.mean_I[proposal.index_M], state.var_I[proposal.index_M]
    return {
        "posterior_mean": (1 - jnp.exp(-2 * var_M) * jnp.cos(2 * mean_M)) / 2,
        "prob_mixed": prob_mixed(mean_M, var_M, proposal.num_rollouts_M),
    }


def log_nearness(mean_I: Array, var_I: Array, target: Array) -> jax.Array:
    """Returns log kappa, kappa = E[exp(-(psi - psi*)^2 / 2 sigma^2)].

    sigma = min(sin psi*, cos psi*) / sqrt 2. The weights kappa^(1/T) of distant items would underflow.
    """
    width = jnp.minimum(jnp.sin(target), jnp.cos(target)) ** 2 / 2
    total_I = width + var_I
    return 0.5 * jnp.log(width / total_I) - (mean_I - target) ** 2 / (2 * total_I)


def best_target(
    state: ArcusState, num_rollouts: int, num_prompts: int, temperature: float, slack: float
) -> jax.Array:
    """Returns the hardest of 41 targets that is expected to give enough mixed groups.

    Enough is the largest share in a batch that any target gives, minus `slack`. Of more than 16,384
    items, only an evenly spaced part is used.
    """
    num_items = len(state.mean_I)
    some = slice(None, None, -(-num_items // MAX_ITEMS))
    mean_I, var_I = state.mean_I[some], state.var_I[some]
    num_drawn = num_prompts * len(mean_I) / num_items
    mixed_I = prob_mixed(mean_I, var_I, num_rollouts)
    log_mixed_I = jnp.log(mixed_I)

    def share(target: jax.Array) -> jax.Array:
        log_I = log_nearness(mean_I, var_I, target) + log_mixed_I
        chance_I = inclusion(jnp.exp((log_I - jnp.max(log_I)) / temperature), num_drawn)
        return jnp.sum(chance_I * mixed_I) / jnp.sum(chance_I)

    # Targets from pass rate 1 / 2G to 1 - 1 / 2G, the hardest first; `argmax` finds the first good one.
    edge = np.arcsin(1 / np.sqrt(2 * num_rollouts))
    target_Q = jnp.linspace(edge, np.pi / 2 - edge, NUM_TARGETS)
    share_Q = jax.lax.map(share, target_Q)
    return target_Q[jnp.argmax(share_Q >= jnp.max(share_Q) - slack)]


def inclusion(weight_I: Array, num_drawn: float) -> jax.Array:
    """Returns each item's chance of being drawn, min(1, c w), with c such that they add up to `num_drawn`.

    If fewer items have a weight above 0, their chance is 1. The sum is concave in c, so Newton's method
    approaches c from below.
    """

    def newton(_: jax.Array, c: jax.Array) -> jax.Array:
        sure_I = c * weight_I >= 1
        rest = jnp.sum(jnp.where(sure_I, 0.0, weight_I))
        new = (num_drawn - jnp.sum(sure_I)) / jnp.maximum(rest, 1e-30)
        return jnp.clip(new, c, 1e30)

    c = num_drawn / jnp.sum(weight_I)
    return jnp.minimum(1.0, jax.lax.fori_loop(0, NUM_NEWTON, newton, c) * weight_I)
