"""Worlds without a model: what every item's pass rate is, and how training changes it.

A kind of world is pure functions over a frozen pytree that holds its constants too, so worlds of a
kind share one compilation. They are assumptions that show mechanisms, no evidence about training.
Letters besides those of vade_jax.types: A skills. A group of n answers teaches (n / G)^answers as
much as one of G: in proportion by default, as all answers weigh the same in the loss.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields
from vade_jax.samplers import gaussian
from vade_jax.types import Array

State = Any  # a frozen dataclass of arrays
NUM_SKILLS = 16
NUM_BANDS = 8
HOPELESS_RATE = 0.01
HOPELESS_HARM = 0.5  # a lucky group teaches this much, in the wrong direction
DIFFICULTY = 0.3, 2.2  # mean and standard deviation of the logit


@chex.dataclass(frozen=True)
class Groups:
    """The groups of one training step; slots that were not filled are not `trained_M`."""

    index_M: Array  # int32
    successes_M: Array  # float32
    trials_M: Array  # float32
    trained_M: Array  # bool


class Kind(NamedTuple):
    """What the arena knows of a world.

    constants: what a world of the kind can be set to, checked
    init: (key, num_items, constants) -> state
    pass_rate: (state) -> pass_rate_I
    hopeless: (state) -> hopeless_I, items that training cannot change
    learn: (state, groups, num_rollouts) -> state; `num_rollouts` is G, the size of a usual group
    progress: (state) -> scalar pass rate that the worlds of a kind are judged by
    category: (num_items) -> category_I on the host, for selectors that need one
    """

    constants: type[fields.Section]
    init: Callable[[jax.Array, int, Any], State]
    pass_rate: Callable[[State], jax.Array]
    hopeless: Callable[[State], jax.Array]
    learn: Callable[[State, Groups, int], State]
    progress: Callable[[State], jax.Array]
    category: Callable[[int], np.ndarray]


# ------------------------------------------------------------------------------ drift
@dataclasses.dataclass(frozen=True)
class DriftConstants(fields.Section):
    """Of a world of kind "drift"; gain = drift = 0 is a stationary one."""

    # p ~ Beta(shape, shape): below 1 most items are nearly solved or nearly impossible.
    shape: float = fields.number(0.35, above=0)
    gain: float = fields.number(0.5, at_least=0)  # a visit's, times sqrt(p (1-p))
    drift: float = fields.number(0.003, at_least=0)  # that a step adds to every logit
    answers: float = fields.fraction(1.0)  # 0: a group's size does not matter


@chex.dataclass(frozen=True)
class Drift:
    """Items on their own; harder ones come first."""

    logit_I: Array  # float32, of the pass rate
    gain: Array  # float32
    drift: Array  # float32
    answers: Array  # float32


def init_drift(key: jax.Array, num_items: int, constants: DriftConstants) -> Drift:
    """Returns items with p ~ Beta(shape, shape), in ascending order."""
    # The ratio of two Gamma variates has the odds of a Beta one. Their logarithms do not underflow.
    right_I, wrong_I = jax.random.loggamma(key, constants.shape, (2, num_items))
    return Drift(
        logit_I=jnp.sort(right_I - wrong_I),
        gain=jnp.float32(constants.gain),
        drift=jnp.float32(constants.drift),
        answers=jnp.float32(constants.answers),
    )


def learn_drift(state: Drift, groups: Groups, num_rollouts: int) -> Drift:
    """Returns the state after a step; every group teaches, mixed or not."""
    p_M = jax.nn.sigmoid(state.logit_I[groups.index_M])
    share_M = groups.trained_M * (groups.trials_M / num_rollouts) ** state.answers
    gain_M = state.gain * jnp.sqrt(p_M * (1 - p_M)) * share_M
    logit_I = state.logit_I.at[groups.index_M].add(gain_M) + state.drift
    return state.replace(logit_I=logit_I)


# ------------------------------------------------------------------------------ skills
@dataclasses.dataclass(frozen=True)
class SkillsConstants(fields.Section):
    """Of a world of kind "skills".

    A mixed group adds rate sqrt(q (1-q)) (2 (1-q))^hard to its item's offset, q the share of right
    answers. Other groups teach nothing.
    """

    # Share of mislabelled items: their pass rate is 0.01 for ever, and a lucky group of theirs
    # teaches its skill half as much in the wrong direction.
    hopeless: float = fields.fraction(0.08)
    rate: float = fields.number(0.35, at_least=0)
    transfer: float = fields.number(0.03, at_least=0)  # how much of that the skill gains
    forget: float = fields.fraction(0.002)  # of every offset, a step
    hard: float = fields.number(0.0, at_least=0)  # how much more hard prompts teach
    answers: float = fields.fraction(1.0)  # 0: a group's size does not matter


@chex.dataclass(frozen=True)
class Skills:
    """Items share skills: logit pass rate = skill - difficulty + the item's own offset."""

    skill_A: Array  # float32
    difficulty_I: Array  # float32
    offset_I: Array  # float32
    hopeless_I: Array  # bool, mislabelled: never right but by chance
    rate: Array  # float32
    transfer: Array  # float32
    forget: Array  # float32
    hard: Array  # float32
    answers: Array  # float32


def init_skills(key: jax.Array, num_items: int, constants: SkillsConstants) -> Skills:
    """Returns items of 16 skills, difficulty ~ N(0.3, 2.2^2)."""
    difficulty_key, hopeless_key = jax.random.split(key)
    mean, deviation = DIFFICULTY
    normal_I = jax.random.normal(difficulty_key, (num_items,))
    luck_I = jax.random.uniform(hopeless_key, (num_items,))
    return Skills(
        skill_A=jnp.zeros(NUM_SKILLS, jnp.float32),
        difficulty_I=mean + deviation * normal_I,
        offset_I=jnp.zeros(num_items, jnp.float32),
        hopeless_I=luck_I < constants.hopeless,
        rate=jnp.float32(constants.rate),
        transfer=jnp.float32(constants.transfer),
        forget=jnp.float32(constants.forget),
        hard=jnp.float32(constants.hard),
        answers=jnp.float32(constants.answers),
    )


def skill_of(num_items: int) -> np.ndarray:
    """Returns the skill of every item."""
    return np.arange(num_items, dtype=np.int32) % NUM_SKILLS


def pass_rate_skills(state: Skills) -> jax.Array:
    """Returns pass_rate_I."""
    skill_I = state.skill_A[skill_of(len(state.offset_I))]
    p_I = jax.nn.sigmoid(skill_I - state.difficulty_I + state.offset_I)
    return jnp.where(state.hopeless_I, HOPELESS_RATE, p_I)


def learn_skills(state: Skills, groups: Groups, num_rollouts: int) -> Skills:
    """Returns the state after a step; only mixed groups teach."""
    index_M, successes_M, trials_M = groups.index_M, groups.successes_M, groups.trials_M
    mixed_M = groups.trained_M & (successes_M > 0) & (successes_M < trials_M)
    q_M = successes_M / jnp.maximum(trials_M, 1)
    hard_M = (2 * (1 - q_M)) ** state.hard
    signal_M = jnp.where(mixed_M, jnp.sqrt(q_M * (1 - q_M)) * hard_M, 0.0)
    gain_M = state.rate * signal_M * (trials_M / num_rollouts) ** state.answers
    signed_M = jnp.where(state.hopeless_I[index_M], -HOPELESS_HARM, 1.0) * gain_M
    gain_A = jax.ops.segment_sum(signed_M, index_M % NUM_SKILLS, NUM_SKILLS)
    offset_I = (1 - state.forget) * state.offset_I
    return state.replace(
        skill_A=state.skill_A + state.transfer * gain_A,
        offset_I=offset_I.at[index_M].add(gain_M),
    )


def held_out(state: Skills) -> jax.Array:
    """Returns the expected pass rate of new, rightly labelled prompts."""
    mean, deviation = DIFFICULTY
    var_A = jnp.full_like(state.skill_A, deviation**2)
    return jnp.mean(gaussian.posterior_mean(state.skill_A - mean, var_A))


KINDS = {
    "drift": Kind(
        constants=DriftConstants,
        init=init_drift,
        pass_rate=lambda state: jax.nn.sigmoid(state.logit_I),
        hopeless=lambda state: jnp.zeros(state.logit_I.shape, bool),
        learn=learn_drift,
        progress=lambda state: jnp.mean(jax.nn.sigmoid(state.logit_I)),
        # A data set's own levels of difficulty: right as long as nothing has been learned.
        category=lambda num_items: np.arange(num_items) * NUM_BANDS // num_items,
    ),
    "skills": Kind(
        constants=SkillsConstants,
        init=init_skills,
        pass_rate=pass_rate_skills,
        hopeless=lambda state: state.hopeless_I,
        learn=learn_skills,
        progress=held_out,
        category=skill_of,
    ),
}
