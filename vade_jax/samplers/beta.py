"""The Beta posterior of every item's pass rate: the equations of VADE (arXiv 2511.18902).

`alpha_I` and `beta_I` are decayed counts of right and wrong answers. The posterior of the pass rate p
is Beta(alpha + 1, beta + 1): without answers, all p are equally likely. The prior's +1 never decays.
"""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays, fields, types
from vade_jax.samplers import base, gamma, per_item
from vade_jax.samplers.base import S, State
from vade_jax.types import Array


# ------------------------------------------------------------------------------ drawing
def draw(key: jax.Array, alpha_I: Array, beta_I: Array) -> jax.Array:
    """Returns one draw p ~ Beta(alpha + 1, beta + 1) for every item: Algorithm 1's Thompson draw.

    p = x / (x + y) with x ~ Gamma(alpha + 1), y ~ Gamma(beta + 1). `key` decides all draws; with the same
    key, an item's draw depends only on its index and its counts. Exact up to float32: normals and
    uniforms have 23 bits, as in `jax.random`. A NaN count gives NaN.
    """
    chex.assert_rank([alpha_I, beta_I], 1)
    chex.assert_equal_shape([alpha_I, beta_I])
    words, num_items = jax.random.bits(key, (2, 2), jnp.uint32), len(alpha_I)
    x_I = gamma.draw(words[0], arrays.padded(alpha_I) + 1)
    y_I = gamma.draw(words[1], arrays.padded(beta_I) + 1)
    return (x_I / (x_I + y_I))[:num_items]


def draw_any(key: jax.Array, a_I: Array, b_I: Array) -> jax.Array:
    """Returns one draw p ~ Beta(a, b) for every item, also for a or b below 1; both above 0.

    Gamma(a) is Gamma(a + 1) u^(1/a), with u uniform (Marsaglia and Tsang 2000). For a small a that is too
    small for a float, so the ratio is taken in logarithms.
    """
    words = jax.random.bits(key, (3, 2), jnp.uint32)
    x_I, y_I = gamma.draw(words[0], a_I + 1), gamma.draw(words[1], b_I + 1)
    item_I = jnp.arange(len(a_I), dtype=jnp.uint32)

    def share(item_I: Array, x_I: Array, y_I: Array, a_I: Array, b_I: Array) -> jax.Array:
        u_I, v_I = gamma.uniforms(words[2], item_I)
        return jax.nn.sigmoid(jnp.log(x_I / y_I) + jnp.log(u_I) / a_I - jnp.log(v_I) / b_I)

    return arrays.in_two(share, item_I, x_I, y_I, a_I, b_I)


def posterior_mean(alpha_I: Array, beta_I: Array) -> Array:
    """Returns E[p] = (alpha + 1) / (alpha + beta + 2)."""
    return (alpha_I + 1) / (alpha_I + beta_I + 2)


# ------------------------------------------------------------------------------ counting
def decay_and_count(
    alpha_I: Array,
    beta_I: Array,
    index_M: Array,
    successes_M: Array,
    trials_M: Array,
    *,
    decay_selected: float,
    decay_rest: float,
) -> tuple[jax.Array, jax.Array]:
    """Returns both counts after one step, Eq. 5 and 6.

    Eq. 5, selected: (alpha, beta) <- (lambda_1 alpha + r, lambda_1 beta + n - r).
    Eq. 6, the rest: (alpha, beta) <- (lambda_2 alpha, lambda_2 beta).

    Args:
        alpha_I: right answers so far, decayed.
        beta_I: wrong answers so far, decayed.
        index_M: the items rolled out, without duplicates.
        successes_M: r, right answers of the step.
        trials_M: n, valid answers of the step. A prompt without any is treated as one of the rest:
            nothing was observed that could replace its history.
        decay_selected: lambda_1.
        decay_rest: lambda_2.
    """
    chex.assert_rank([alpha_I, beta_I, index_M, successes_M, trials_M], 1)
    chex.assert_equal_shape([alpha_I, beta_I])
    chex.assert_equal_shape([index_M, successes_M, trials_M])
    decays = {"decay_selected": decay_selected, "decay_rest": decay_rest}
    return (
        decay_and_add(alpha_I, index_M, successes_M, trials_M, **decays),
        decay_and_add(beta_I, index_M, trials_M - successes_M, trials_M, **decays),
    )


def decay_and_add(
    count_I: Array,
    index_M: Array,
    new_M: Array,
    trials_M: Array,
    *,
    decay_selected: float,
    decay_rest: float,
) -> jax.Array:
    """Returns one count of every item after a step in which `new_M` was counted; see `decay_and_count`."""
    decay_M = jnp.where(trials_M > 0, decay_selected, decay_rest)
    selected_M = decay_M * count_I[index_M] + new_M
    return jnp.asarray(decay_rest * count_I).at[index_M].set(selected_M)


@chex.dataclass(frozen=True)
class BetaState(types.Pytree):
    """The state of a selector that only counts: p ~ Beta(alpha + 1, beta + 1)."""

    alpha_I: jax.Array = per_item.starts(0.0)  # right answers
    beta_I: jax.Array = per_item.starts(0.0)  # wrong answers


@dataclasses.dataclass(frozen=True)
class CountingOptions(base.Options):
    """The hyperparameters of a selector that counts and may know pass rates before the first answer."""

    # Answers that a pass rate of `selector.arrays.pass_rate` counts as; they decay like answers
    prior_strength: float = fields.number(8.0, at_least=0)


PASS_RATE = base.PerItem("pass_rate")
NEEDS = base.Needs(items=(PASS_RATE,))  # of a selector that needs nothing else


def begin(
    state: type[S],
    options: CountingOptions,
    num_items: int,
    *,
    pass_rate: Array | None = None,
    **others: Any,
) -> S:
    """Returns a state before the first answer: alpha = n p, beta = n (1 - p), for n = `prior_strength`.

    An item with p None or NaN has no counts; without `pass_rate`, no item has any.
    """
    if pass_rate is not None:
        p_I = np.asarray(pass_rate, np.float32)  # None becomes NaN
        known_I = ~np.isnan(p_I)
        if not known_I.any():
            raise ValueError("pass_rate: none of the items has one")
        p_I = per_item.rates("a prior", "pass_rate", np.where(known_I, p_I, 0), num_items)
        n_I = np.float32(options.prior_strength) * known_I
        others |= {"alpha_I": n_I * p_I, "beta_I": n_I * (1 - p_I)}
    return per_item.begin(state, num_items, **others)


def counted(state: State, feedback: types.Feedback, **decays: float) -> State:
    """Returns `state` with its `alpha_I` and `beta_I` updated by `decay_and_count`."""
    of_step = feedback.index_M, feedback.successes_M, feedback.trials_M
    alpha_I, beta_I = decay_and_count(state.alpha_I, state.beta_I, *of_step, **decays)
    return state.replace(alpha_I=alpha_I, beta_I=beta_I)


# ------------------------------------------------------------------------------ scoring
def info_gain(p_I: Array) -> Array:
    """Returns I(p) = p (1 - p)^2, Eq. 4: largest, 4/27, at p = 1/3."""
    return p_I * (1 - p_I) * (1 - p_I)


def outcome_variance(p_I: Array) -> Array:
    """Returns p (1 - p), the paper's ablation of Eq. 4: largest, 1/4, at p = 1/2."""
    return p_I * (1 - p_I)


INFO_GAINS = {"p(1-p)^2": info_gain, "p(1-p)": outcome_variance}


def prob_mixed(alpha_I: Array, beta_I: Array, num_rollouts: int | Array) -> jax.Array:
    """Returns the predictive probability that G answers are neither all right nor all wrong.

    1 - B(a+G, b) / B(a, b) - B(a, b+G) / B(a, b) with a = alpha + 1, b = beta + 1. Both quotients are
    products: B(a+G, b) / B(a, b) = prod_k (a+k) / (a+b+k), k < G. 1 minus the larger one is computed as
    -expm1 of a sum of log1p, because lgamma would lose all digits for large counts.
    """
    if isinstance(num_rollouts, int) or np.ndim(num_rollouts) == 0:
        return arrays.in_two(lambda a_I, b_I: _prob_mixed(a_I, b_I, num_rollouts), alpha_I, beta_I)
    return arrays.in_two(_prob_mixed, alpha_I, beta_I, num_rollouts)


def _prob_mixed(alpha_I: Array, beta_I: Array, num_rollouts: int | Array) -> jax.Array:
    # The probability is symmetric in a and b, so a may be the larger one.
    a_I = jnp.maximum(alpha_I, beta_I) + 1.0
    b_I = jnp.minimum(alpha_I, beta_I) + 1.0

    def add(k: jax.Array, logs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        # G may differ between prompts: the loop runs to the largest, and factors from G on do not count.
        on_I, total_I = k < num_rollouts, a_I + b_I + k
        return (
            logs[0] + jnp.where(on_I, jnp.log1p(-b_I / total_I), 0),
            logs[1] + jnp.where(on_I, jnp.log((b_I + k) / total_I), 0),
        )

    zeros = jnp.zeros_like(a_I), jnp.zeros_like(a_I)
    logs = jax.lax.fori_loop(0, jnp.max(jnp.asarray(num_rollouts)), add, zeros)
    return -jnp.expm1(logs[0]) - jnp.exp(logs[1])


def believe(state: State, proposal: types.Proposal) -> dict[str, Array]:
    """Implements `Sampler.believe` for states with `alpha_I` and `beta_I`."""
    alpha_M, beta_M = state.alpha_I[proposal.index_M], state.beta_I[proposal.index_M]
    return {
        "alpha": alpha_M,
        "beta": beta_M,
        "posterior_mean": posterior_mean(alpha_M, beta_M),
        "prob_mixed": prob_mixed(alpha_M, beta_M, proposal.num_rollouts_M),
    }
