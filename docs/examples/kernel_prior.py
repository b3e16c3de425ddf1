"""Informed with another prior: the recent pass rate of nearby prompts instead of a regression.

With K_ij = exp(-|x_i - x_j|^2 / (2 width^2 D)) and the answers k_j right of n_j, all faded,
mu_i = (2 m + sum_j K_ij k_j) / (2 + sum_j K_ij n_j), m the pass rate of all. It takes the square of the
prompts, so it is for some thousands of them.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields
from vade_jax.samplers import base, beta, informed
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class KernelOptions(informed.InformedOptions):
    width: float = fields.number(
        0.5, above=0
    )  # 1: the distance at which an average pair weighs 0.4


@chex.dataclass(frozen=True)
class KernelState(informed.InformedState):
    """`weights` and `feature_ID` are such that they predict mu itself: one feature, its logit."""

    place_ID: Array
    right_I: Array  # faded by `memory` a step, not by visits
    trials_I: Array


def selector(options):
    whole = informed.selector(options)

    def init(num_items, **values):
        state = whole.init(num_items, **values)
        own = dict(state.items()) | {
            "feature_ID": np.zeros((num_items, 1), np.float32),
            "weights": informed.Weights(mean_D=np.ones(1), cov_DD=np.zeros((1, 1))),
            "place_ID": state.feature_ID[:, :-1],
            "right_I": np.zeros(num_items, np.float32),
            "trials_I": np.zeros(num_items, np.float32),
        }
        return jax.tree.map(lambda x: np.asarray(x, np.float32), KernelState(**own))

    def update(state, feedback):
        index_M, right_M, trials_M = feedback.index_M, feedback.successes_M, feedback.trials_M
        found_K = informed.likelihoods(state, index_M, right_M, trials_M)
        right_I = (options.memory * state.right_I).at[index_M].add(right_M)
        trials_I = (options.memory * state.trials_I).at[index_M].add(trials_M)
        mean_I = smoothed(state.place_ID, right_I, trials_I, options.width)
        state = state.replace(
            feature_ID=jax.scipy.special.logit(mean_I)[:, None],
            right_I=right_I,
            trials_I=trials_I,
            likelihood_K=options.memory * state.likelihood_K + found_K,
        )
        decays = {name: getattr(options, name) for name in ("decay_selected", "decay_rest")}
        return beta.counted(state, feedback, **decays)

    return base.compiled(init, whole.propose, update, believe=whole.believe, needs=whole.needs)


def smoothed(place_ID, right_I, trials_I, width):
    square_I = jnp.sum(place_ID**2, axis=1)
    distance_II = square_I[:, None] + square_I - 2 * place_ID @ place_ID.T
    kernel_II = jnp.exp(-distance_II / (2 * place_ID.shape[1] * width**2))
    overall = (1 + right_I.sum()) / (2 + trials_I.sum())
    return (2 * overall + kernel_II @ right_I) / (2 + kernel_II @ trials_I)


KERNEL = base.Spec("kernel", KernelOptions, selector)
