"""Worlds without a model: the pass rate of every item, and how training changes it.

A world is a frozen pytree that includes its constants, so that all worlds of a kind share one compilation.
Worlds are assumptions that show mechanisms; they are not evidence about training. Additional letter: A
skills. A group of n answers teaches n / G times as much as a group of G, because answers have equal weight in
the loss.

Each kind provides, for the arena:

    Constants        the checked constants of a world of this kind
    begin            (key, num_items, constants) -> the world before the first step
    category         (num_items) -> category_I on the host, for selectors that need categories
    .pass_rate()     pass_rate_I
    .hopeless()      hopeless_I, items that training cannot change
    .tokens()        tokens_I, how long an answer to each item is on average
    .feature_IE      what is known of each item besides its category
    .learn(groups, num_rollouts)    the world after a step; `num_rollouts` is G, the usual size of a group
    .progress()      the pass rate by which worlds of this kind are judged
"""

import dataclasses
from typing import ClassVar, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields
from vade_jax.samplers import gaussian
from vade_jax.types import Array

NUM_SKILLS = 16
NUM_BANDS = 8
HOPELESS_RATE = 0.01
HOPELESS_HARM = 0.5  # a lucky group teaches its skill this share, in the wrong direction
DIFFICULTY = 0.3, 2.2  # mean and standard deviation of the logit
NOISE, KNOWN_ERROR = 10, 0.5  # features of an item, and the error of the informative ones
TOKENS = 100  # of an answer, in a world with answers of one length


@chex.dataclass(frozen=True)
class Groups:
    """The groups of one training step; `trained_M` is False in slots that were not filled."""

    index_M: Array  # int32
    successes_M: Array  # float32
    trials_M: Array  # float32
    trained_M: Array  # bool

    def mixed(self) -> Array:
        """Returns which groups have right and wrong answers: in GRPO the others teach nothing."""
        mixed_M = (self.successes_M > 0) & (self.successes_M < self.trials_M)
        return self.trained_M & mixed_M


@dataclasses.dataclass(frozen=True)
class Constants(fields.Section):
    """The constants that worlds of all kinds have."""

    # Answers to an item that is never right are e^longer times as long as to one that always is.
    longer: float = fields.number(0.0, at_least=0)
    spread: float = fields.number(0.0, at_least=0)  # further variation of the log length
    tells: float = fields.number(0.0, at_least=0)  # how clearly features show an item's difficulty
    misleads: float = fields.number(0.0, at_least=0)  # or only how far it is from the usual one


def _lengths(constants: dict[str, Array], pass_rate_I: Array, length_I: Array) -> jax.Array:
    """Returns the mean tokens of an answer to each item, which depend on `longer` and `spread`."""
    longer_I = constants["longer"] * (0.5 - pass_rate_I)
    return TOKENS * jnp.exp(longer_I + constants["spread"] * length_I)


def _features(key: jax.Array, difficulty_I: Array, constants: Constants) -> Array:
    """Returns the features of each item: its difficulty, or only its distance from the mean, among noise.

    With `misleads` the nearest neighbours of an item are equally often the easiest and the hardest.
    """
    usual_I = (difficulty_I - jnp.mean(difficulty_I)) / jnp.std(difficulty_I)
    known_I2 = jnp.stack([constants.tells * usual_I, constants.misleads * jnp.abs(usual_I)], 1)
    noise_IE = jax.random.normal(jax.random.fold_in(key, 2), (len(difficulty_I), NOISE))
    return jnp.concatenate([known_I2 + KNOWN_ERROR * noise_IE[:, :2], noise_IE[:, 2:]], 1)


def _lengths_key(key: jax.Array) -> jax.Array:
    return jax.random.fold_in(key, 1)  # separate, so that the other draws do not depend on lengths


def _as_arrays(constants: Constants) -> dict[str, Array]:
    # Arrays, because Python numbers would be compiled into the program: one program for each world.
    return {name: jnp.float32(x) for name, x in dataclasses.asdict(constants).items()}


# ------------------------------------------------------------------------------ drift
@dataclasses.dataclass(frozen=True)
class DriftConstants(Constants):
    """The constants of a world of kind "drift"; with gain = drift = 0 it is stationary."""

    # p ~ Beta(shape, shape): below 1 most items are nearly solved or nearly impossible.
    shape: float = fields.number(0.35, above=0)
    # A visit adds gain times sqrt(p (1-p)) to its item's logit.
    gain: float = fields.number(0.5, at_least=0)
    drift: float = fields.number(0.003, at_least=0)  # added to every logit by a step


@chex.dataclass(frozen=True)
class Drift:
    """Items that do not influence each other; harder items come first."""

    Constants: ClassVar = DriftConstants

    logit_I: Array  # float32, of the pass rate
    length_I: Array  # float32, standard normal: how long its answers are
    feature_IE: Array  # float32
    constants: dict[str, Array]

    @classmethod
    def begin(cls, key: jax.Array, num_items: int, constants: DriftConstants) -> Self:
        """Returns a world of items with p ~ Beta(shape, shape), in ascending order."""
        # The ratio of two Gamma variates is the odds of a Beta variate. Their logarithms do not underflow.
        right_I, wrong_I = jax.random.loggamma(key, constants.shape, (2, num_items))
        logit_I = jnp.sort(right_I - wrong_I)
        return cls(
            logit_I=logit_I,
            feature_IE=_features(key, -logit_I, constants),
            length_I=jax.random.normal(_lengths_key(key), (num_items,)),
            constants=_as_arrays(constants),
        )

    @staticmethod
    def category(num_items: int) -> np.ndarray:
        """Levels of difficulty, as a data set might have; they are right until something is learned."""
        return np.arange(num_items) * NUM_BANDS // num_items

    def pass_rate(self) -> jax.Array:
        return jax.nn.sigmoid(self.logit_I)

    def tokens(self) -> jax.Array:
        return _lengths(self.constants, self.pass_rate(), self.length_I)

    def hopeless(self) -> jax.Array:
        return jnp.zeros(self.logit_I.shape, bool)

    def progress(self) -> jax.Array:
        return jnp.mean(self.pass_rate())

    def learn(self, groups: Groups, num_rollouts: int) -> Self:
        """Returns the world after a step in which every group teaches, mixed or not."""
        c = self.constants
        p_M = jax.nn.sigmoid(self.logit_I[groups.index_M])
        share_M = groups.trained_M * groups.trials_M / num_rollouts
        gain_M = c["gain"] * jnp.sqrt(p_M * (1 - p_M)) * share_M
        return self.replace(logit_I=self.logit_I.at[groups.index_M].add(gain_M) + c["drift"])


# ------------------------------------------------------------------------------ skills
@dataclasses.dataclass(frozen=True)
class SkillsConstants(Constants):
    """The constants of a world of kind "skills".

    A mixed group adds rate sqrt(q (1-q)) (2 (1-q))^hard to its item's offset, where q is the share of right
    answers. Other groups teach nothing.
    """

    # Share of mislabelled items. Their pass rate stays 0.01, and a lucky group of such an item
    # teaches its skill half as much, in the wrong direction.
    hopeless: float = fields.fraction(0.08)
    rate: float = fields.number(0.35, at_least=0)
    transfer: float = fields.number(0.03, at_least=0)  # share of the gain that the skill gets
    forget: float = fields.fraction(0.002)  # share of every offset that a step removes
    hard: float = fields.number(0.0, at_least=0)  # how much more hard prompts teach


@chex.dataclass(frozen=True)
class Skills:
    """Items share skills: logit pass rate = skill - difficulty + the item's own offset."""

    Constants: ClassVar = SkillsConstants

    skill_A: Array  # float32
    difficulty_I: Array  # float32
    offset_I: Array  # float32
    hopeless_I: Array  # bool, mislabelled items: right only by chance
    length_I: Array  # float32, standard normal: how long its answers are
    feature_IE: Array  # float32
    constants: dict[str, Array]

    @classmethod
    def begin(cls, key: jax.Array, num_items: int, constants: SkillsConstants) -> Self:
        """Returns a world of items with 16 skills and difficulty ~ N(0.3, 2.2^2)."""
        difficulty_key, hopeless_key = jax.random.split(key)
        mean, deviation = DIFFICULTY
        difficulty_I = mean + deviation * jax.random.normal(difficulty_key, (num_items,))
        return cls(
            skill_A=jnp.zeros(NUM_SKILLS, jnp.float32),
            difficulty_I=difficulty_I,
            feature_IE=_features(key, difficulty_I, constants),
            offset_I=jnp.zeros(num_items, jnp.float32),
            hopeless_I=jax.random.uniform(hopeless_key, (num_items,)) < constants.hopeless,
            length_I=jax.random.normal(_lengths_key(key), (num_items,)),
            constants=_as_arrays(constants),
        )

    @staticmethod
    def category(num_items: int) -> np.ndarray:
        """The skill of every item."""
        return np.arange(num_items, dtype=np.int32) % NUM_SKILLS

    def pass_rate(self) -> jax.Array:
        skill_I = self.skill_A[self.category(len(self.offset_I))]
        p_I = jax.nn.sigmoid(skill_I - self.difficulty_I + self.offset_I)
        return jnp.where(self.hopeless_I, HOPELESS_RATE, p_I)

    def tokens(self) -> jax.Array:
        return _lengths(self.constants, self.pass_rate(), self.length_I)

    def hopeless(self) -> jax.Array:
        return self.hopeless_I

    def progress(self) -> jax.Array:
        """The expected pass rate of new, correctly labelled prompts."""
        mean, deviation = DIFFICULTY
        var_A = jnp.full_like(self.skill_A, deviation**2)
        return jnp.mean(gaussian.posterior_mean(self.skill_A - mean, var_A))

    def learn(self, groups: Groups, num_rollouts: int) -> Self:
        """Returns the world after a step in which only mixed groups teach."""
        c, index_M = self.constants, groups.index_M
        q_M = groups.successes_M / jnp.maximum(groups.trials_M, 1)
        hard_M = (2 * (1 - q_M)) ** c["hard"]
        signal_M = jnp.where(groups.mixed(), jnp.sqrt(q_M * (1 - q_M)) * hard_M, 0.0)
        gain_M = c["rate"] * signal_M * groups.trials_M / num_rollouts
        # A mislabelled item learns its wrong label, and teaches its skill in the wrong direction.
        signed_M = jnp.where(self.hopeless_I[index_M], -HOPELESS_HARM, 1.0) * gain_M
        gain_A = jax.ops.segment_sum(signed_M, index_M % NUM_SKILLS, NUM_SKILLS)
        offset_I = (1 - c["forget"]) * self.offset_I
        return self.replace(
            skill_A=self.skill_A + c["transfer"] * gain_A,
            offset_I=offset_I.at[index_M].add(gain_M),
        )


World = Drift | Skills
KINDS: dict[str, type[World]] = {"drift": Drift, "skills": Skills}
