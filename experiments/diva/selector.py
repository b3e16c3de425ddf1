"""DIVA-GRPO (arXiv 2603.01106): every problem comes with variants of a suitable difficulty.

The selector tracks the difficulty of each problem, from 1 to 9, and asks for harder variants of easy
problems and easier variants of hard ones. Making the variants, and what they change about advantages, is
done elsewhere (`experiments.diva`). Where the paper and its public code differ, an option chooses.
"""

import dataclasses
import fractions
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, types
from vade_jax.samplers import base, ranking
from vade_jax.types import Array

EASIEST, HARDEST, FIRST = 1.0, 9.0, 5.0
# Difficulty of a variant, by the difficulty of its problem (1 to 9): of the only variant, and the mean of the
# draw for each of several
TARGET = (9, 8, 7, 6, 6, 5, 5, 5, 4)
TARGET_MEAN = (8, 7.5, 7, 6.5, 6, 5.5, 4.5, 3.5, 3)
TABLE = ((0.05, 2), (0.3, 1), (0.5, 0), (0.7, -1), (1.0, -2))  # (highest mean score, change)
_HARDER = 4  # a variant that replaces a further easier one is 0 .. 3 harder than the problem
_ROOM = 1e-5  # tolerance for mean rewards at the edge of a range, as tenths are not exact in binary


@dataclasses.dataclass(frozen=True)
class DivaOptions(base.Options):
    """The hyperparameters of DIVA's selector."""

    num_variants: int = fields.number(1, at_least=0)  # Variants of each problem (the paper: 1, 3)
    # How a mean score s changes a difficulty D. "linear" (the paper): D + eta (0.5 - s). "table" (the
    # public code): D + the change that `table` has for s
    rule: str = fields.choice("linear", "table")
    eta: float = fields.number(4.0, at_least=0)  # Step size of the linear rule
    # Ranges of the rule "table", as pairs (highest score, change) with ascending scores
    table: Sequence[tuple[float, float]] = TABLE
    # Score of an answer: whether it is right, or its reward (the public code)
    score: str = fields.choice("accuracy", "reward")
    # When difficulties change: after an "epoch", from all of its answers (the paper), or after every
    # "step" (the public code)
    when: str = fields.choice("epoch", "step")
    # Answers that count for a problem. "group": those to its variants too, as in the paper and the code,
    # so that hints make hard problems look easier. "original": only those to the problem itself
    estimate: str = fields.choice("group", "original")

    def __post_init__(self):
        super().__post_init__()
        if not _is_table(self.table):
            raise ValueError(
                f"table={self.table!r}: give (highest score, change) pairs of finite numbers, scores ascending"
            )


def _is_table(given: Any) -> bool:
    """Returns whether `given` holds pairs of numbers whose first numbers ascend."""
    try:
        pairs = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        return False
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.isfinite(pairs).all():
        return False
    return bool((np.diff(pairs[:, 0]) > 0).all())


@chex.dataclass(frozen=True)
class DivaState(types.Pytree):
    """The difficulty of every problem, and the scores since it last changed."""

    visits_I: jax.Array  # int32
    difficulty_I: jax.Array  # float32, from 1 to 9
    score_I: jax.Array  # float32, sum of the scores of the answers since the last change
    count_I: jax.Array  # float32, number of these answers


def selector(options: DivaOptions) -> base.Sampler:
    """Returns the DIVA selector: problems in the order of uniform, each followed by its variants.

    `num_prompts` is the number of problems times (1 + num_variants). `extra_M["variant"]` numbers the slots
    of a problem, where 0 is the problem itself, and `extra_M["difficulty"]` is the difficulty that each slot
    should have (`wanted`).
    """
    slots = 1 + options.num_variants

    def init(num_items: int) -> DivaState:
        return DivaState(
            visits_I=jnp.zeros(num_items, jnp.int32),
            difficulty_I=jnp.full(num_items, FIRST, jnp.float32),
            score_I=jnp.zeros(num_items, jnp.float32),
            count_I=jnp.zeros(num_items, jnp.float32),
        )

    def propose(state: DivaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        if num_prompts % slots:
            raise ValueError(
                f"num_prompts={num_prompts} does not divide into problems with {slots - 1}"
                f" variants each: set num_prompts to a multiple of 1 + num_variants = {slots}"
            )
        num_problems = num_prompts // slots
        order_key, variant_key = jax.random.split(key)
        due_I = ranking.least_visited(state.visits_I)
        index_Q = ranking.top_b(due_I, order_key, num_problems)
        own_Q = state.difficulty_I[index_Q]
        wanted_QU = wanted(variant_key, own_Q, options.num_variants)
        index_M = jnp.repeat(index_Q, slots)
        proposal = ranking.same_num_rollouts(index_M, options.num_rollouts)
        extra_M = {
            "variant": jnp.tile(jnp.arange(slots, dtype=jnp.int32), num_problems),
            "difficulty": jnp.column_stack([own_Q, wanted_QU]).reshape(-1),
        }
        return proposal.replace(extra_M=extra_M)

    def update(state: DivaState, feedback: types.Feedback) -> DivaState:
        index_M = feedback.index_M
        score_M, count_M = scores(options, feedback)
        # All slots of a problem have the same index. `add` sums over them. `max` gets the same value
        # from each of them, so together they count as one visit.
        score_I = state.score_I.at[index_M].add(score_M)
        count_I = state.count_I.at[index_M].add(count_M)
        visits_I = state.visits_I.at[index_M].max(state.visits_I[index_M] + 1)
        # An epoch ends when the last problem is visited, which raises the smallest number of visits.
        ends_epoch = jnp.min(visits_I) > jnp.min(state.visits_I)
        due = ends_epoch if options.when == "epoch" else True
        if options.rule == "linear":
            new_I = linear(state.difficulty_I, score_I, count_I, options.eta)
        else:
            room = _ROOM if options.score == "reward" else 0.0
            new_I = by_table(state.difficulty_I, score_I, count_I, options.table, room)
        return DivaState(
            visits_I=visits_I,
            difficulty_I=jnp.where(due, new_I, state.difficulty_I),
            score_I=jnp.where(due, 0, score_I),
            count_I=jnp.where(due, 0, count_I),
        )

    return base.compiled(
        init, propose, update, believe=believe, needs=base.Needs(variants=True, places=slots)
    )


SPEC = base.Spec("diva", DivaOptions, selector)


def scores(options: DivaOptions, feedback: types.Feedback) -> tuple[Array, Array]:
    """Returns the sum of the scores of each slot's valid answers, and the number of these answers."""
    score_M, count_M = feedback.successes_M, feedback.trials_M
    if options.score == "reward":
        reward_N = jnp.where(feedback.valid_N, feedback.reward_N, 0)
        score_M = jax.ops.segment_sum(reward_N, feedback.group_N, len(count_M))
    if options.estimate == "original" and feedback.extra_M is not None:
        original_M = feedback.extra_M["variant"] == 0
        score_M, count_M = score_M * original_M, count_M * original_M
    return score_M, count_M


def believe(state: DivaState, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns the difficulties of problems and of variants, each NaN in the slots of the other.

    They are the wanted difficulties; once the variants are made, those that the variants really have.
    """
    del state
    assert proposal.extra_M is not None
    is_problem_M = proposal.extra_M["variant"] == 0
    difficulty_M = proposal.extra_M["difficulty"]
    return {
        "diva/difficulty_problems": jnp.where(is_problem_M, difficulty_M, jnp.nan),
        "diva/difficulty_variants": jnp.where(is_problem_M, jnp.nan, difficulty_M),
    }


# ------------------------------------------------------------------------------ how difficulties change
def linear(difficulty_I: Array, score_I: Array, count_I: Array, eta: float) -> jax.Array:
    """Returns D + eta (0.5 - s), clipped to [1, 9]: the paper's rule. Without answers D stays.

    Args:
        difficulty_I: D.
        score_I: the sum of the scores of the answers to each problem.
        count_I: the number of these answers; s is the mean score.
        eta: step size.
    """
    mean_I = score_I / jnp.maximum(count_I, 1)
    change_I = jnp.where(count_I > 0, eta * (0.5 - mean_I), 0)
    return jnp.clip(difficulty_I + change_I, EASIEST, HARDEST)


def by_table(
    difficulty_I: Array,
    score_I: Array,
    count_I: Array,
    table: Sequence[tuple[float, float]] = TABLE,
    room: float = 0.0,
) -> jax.Array:
    """Returns D plus the change that `table` has for the mean score s, clipped to [1, 9]: the code's rule.

    The change is that of the first (highest, change) with s <= highest, and 0 if there is none. For
    highest = m / n, a sum of scores S over c answers is compared in whole numbers, as n S <= m c, so that
    3 right of 10 are in the range that ends at 0.3; n is 10,000 at most. For sums of rewards, `room` widens
    the ranges.
    """
    change_I = jnp.zeros_like(difficulty_I)
    # From the last range to the first, so that the first fitting range overwrites the later ones.
    for highest, change in reversed(table):
        # Of a small denominator, because the scores are multiplied by it.
        edge = fractions.Fraction(str(highest)).limit_denominator(10_000)
        most_I = (edge.numerator + room * edge.denominator) * count_I
        inside_I = score_I * edge.denominator <= most_I
        change_I = jnp.where(inside_I, jnp.float32(change), change_I)
    counted_I = (count_I > 0) & (score_I >= 0)
    return jnp.clip(difficulty_I + jnp.where(counted_I, change_I, 0), EASIEST, HARDEST)


# ------------------------------------------------------------------------------ what is asked for
def wanted(key: jax.Array, difficulty_Q: Array, num_variants: int) -> Array:
    """Returns the wanted difficulties of the variants of each problem, [Q, num_variants].

    They are whole steps away from the problem's own difficulty, within [1, 9]. A single variant gets
    `TARGET`. Several variants get normal draws around `TARGET_MEAN` with standard deviation 1, rounded. If
    more than one of them is easier than the problem, all but the first of these become 0 to 3 steps harder
    than the problem instead. For fractional difficulties, the targets are interpolated.
    """

    def between(target: Sequence[float]) -> jax.Array:
        return jnp.interp(own_Q1, np.arange(1.0, 10.0), np.array(target, float))

    own_Q1 = difficulty_Q[:, None]
    if num_variants == 1:
        delta_QU = jnp.round(between(TARGET) - own_Q1)
    else:
        shape = len(own_Q1), num_variants
        target_key, instead_key = jax.random.split(key)
        target_QU = between(TARGET_MEAN) + jax.random.normal(target_key, shape)
        target_QU = jnp.clip(jnp.round(target_QU), EASIEST, HARDEST)
        delta_QU = jnp.round(target_QU - own_Q1)
        easier_QU = delta_QU < 0
        again_QU = easier_QU & (jnp.cumsum(easier_QU, axis=1) > 1)
        harder_QU = jax.random.randint(instead_key, shape, 0, _HARDER)
        delta_QU = jnp.where(again_QU, harder_QU, delta_QU)
    least_Q1, most_Q1 = jnp.ceil(EASIEST - own_Q1), jnp.floor(HARDEST - own_Q1)
    return own_Q1 + jnp.clip(delta_QU, least_Q1, most_Q1)
