"""DIVA-GRPO (arXiv 2603.01106): every problem comes with variants as hard as it needs.

The selector keeps how difficult each problem is, from 1 to 9, and asks for harder variants of easy ones
and easier variants of hard ones. Who makes them, and what they do to advantages, is no part of it. Where
the paper and its public code differ, an option says which.
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
from vade_jax.samplers import base
from vade_jax.types import Array

EASIEST, HARDEST, FIRST = 1.0, 9.0, 5.0
TARGET = (9, 8, 7, 6, 6, 5, 5, 5, 4)  # of an only variant, by the problem's difficulty
TARGET_MEAN = (8, 7.5, 7, 6.5, 6, 5.5, 4.5, 3.5, 3)  # of several
TABLE = ((0.05, 2), (0.3, 1), (0.5, 0), (0.7, -1), (1.0, -2))
_HARDER = 4  # what takes the place of an easier variant is 0 .. 3 harder
_ROOM = 1e-5  # for mean rewards at the edge of a range: tenths are no binary fractions


@dataclasses.dataclass(frozen=True)
class DivaOptions(base.Options):
    """The hyperparameters of DIVA's selector."""

    num_variants: int = fields.number(1, at_least=0)  # of each problem; the paper: 1, 3
    # What a mean score s does to a difficulty D. "linear", the paper's: D + eta (0.5 - s). "table", the
    # public code's: D + the change of the range that s lies in.
    rule: str = fields.choice("linear", "table")
    eta: float = fields.number(4.0, at_least=0)  # of the linear rule
    table: Sequence[tuple[float, float]] = TABLE  # (highest score, change), ascending
    score: str = fields.choice("accuracy", "reward")  # or the code's
    # The paper re-calibrates after an "epoch", from all its answers; the code every "step".
    when: str = fields.choice("epoch", "step")
    # "group" takes in the answers to variants, as both do, so that hints make hard problems look
    # easier; "original" leaves them out.
    estimate: str = fields.choice("group", "original")

    def __post_init__(self):
        super().__post_init__()
        if not _is_table(self.table):
            raise ValueError(
                f"table={self.table!r}: give (highest score, change) pairs of numbers, scores ascending"
            )


def _is_table(given: Any) -> bool:
    """Returns whether these are pairs of numbers, the first ones ascending."""
    try:
        pairs = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        return False
    if pairs.ndim != 2 or pairs.shape[1] != 2 or np.isnan(pairs).any():
        return False
    return bool((np.diff(pairs[:, 0]) > 0).all())


@chex.dataclass(frozen=True)
class DivaState(types.Pytree):
    """The difficulty of every problem, and the answers that are still to change it."""

    visits_I: jax.Array  # int32
    difficulty_I: jax.Array  # float32, from 1 to 9
    score_I: jax.Array  # float32, the sum over these answers
    count_I: jax.Array  # float32, how many they are


def selector(options: DivaOptions) -> base.Sampler:
    """Returns the DIVA selector: uniform's order, each problem with its variants behind it.

    `num_prompts` is problems times (1 + num_variants). `extra_M["variant"]` counts the slots of a problem,
    0 is the problem itself, and `extra_M["difficulty"]` says how difficult each is to be (`wanted`).
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
        due_I = base.least_visited(state.visits_I)
        index_Q = base.top_b(due_I, order_key, num_problems)
        own_Q = state.difficulty_I[index_Q]
        wanted_QU = wanted(variant_key, own_Q, options.num_variants)
        index_M = jnp.repeat(index_Q, slots)
        proposal = base.same_num_rollouts(index_M, options.num_rollouts)
        extra_M = {
            "variant": jnp.tile(jnp.arange(slots, dtype=jnp.int32), num_problems),
            "difficulty": jnp.column_stack([own_Q, wanted_QU]).reshape(-1),
        }
        return proposal.replace(extra_M=extra_M)

    def update(state: DivaState, feedback: types.Feedback) -> DivaState:
        index_M = feedback.index_M
        score_M, count_M = scores(options, feedback)
        # A problem's slots have one index: `add` sums over them, and `max`, with the same value from
        # each, counts them as one visit.
        score_I = state.score_I.at[index_M].add(score_M)
        count_I = state.count_I.at[index_M].add(count_M)
        visits_I = state.visits_I.at[index_M].max(state.visits_I[index_M] + 1)
        # An epoch ends when the last problem has its visit: then the least number rises.
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

    return base.compiled(init, propose, update, believe=believe, needs=base.Needs(variants=True))


SPEC = base.Spec("diva", DivaOptions, selector)


def scores(options: DivaOptions, feedback: types.Feedback) -> tuple[Array, Array]:
    """Returns the sum of the scores of each slot's valid answers, and how many they are."""
    score_M, count_M = feedback.successes_M, feedback.trials_M
    if options.score == "reward":
        reward_N = jnp.where(feedback.valid_N, feedback.reward_N, 0)
        score_M = jax.ops.segment_sum(reward_N, feedback.group_N, len(count_M))
    if options.estimate == "original" and feedback.extra_M is not None:
        original_M = feedback.extra_M["variant"] == 0
        score_M, count_M = score_M * original_M, count_M * original_M
    return score_M, count_M


def believe(state: DivaState, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns the difficulties of problems and of variants: once made, those that they really have."""
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
    """Returns D + eta (0.5 - s) within [1, 9], the paper's rule; D where nothing was counted.

    Args:
        difficulty_I: D.
        score_I: the sum of the scores of the answers to each problem.
        count_I: how many these are; s is the mean.
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
    """Returns D plus the change of the range that s lies in, within [1, 9], as the code does.

    The first (highest, change) with s <= highest is taken, none for s outside of all. Sums of right
    answers are compared as whole numbers, n s <= m c for highest = m / n: 3 of 10 lie in the range
    that ends at 0.3. For other sums, `room` widens the ranges.
    """
    change_I = jnp.zeros_like(difficulty_I)
    # From the last range to the first: where several hold, the first one's change is written last.
    for highest, change in reversed(table):
        edge = fractions.Fraction(str(highest))
        most_I = (edge.numerator + room * edge.denominator) * count_I
        inside_I = score_I * edge.denominator <= most_I
        change_I = jnp.where(inside_I, jnp.float32(change), change_I)
    counted_I = (count_I > 0) & (score_I >= 0)
    return jnp.clip(difficulty_I + jnp.where(counted_I, change_I, 0), EASIEST, HARDEST)


# ------------------------------------------------------------------------------ what is asked for
def wanted(key: jax.Array, difficulty_Q: Array, num_variants: int) -> Array:
    """Returns the difficulties wanted of the variants of each problem, [Q, num_variants].

    They lie whole steps away from the problem's own, within [1, 9]. One variant gets `TARGET`.
    Several get a normal draw around `TARGET_MEAN` with standard deviation 1, rounded; of easier
    ones a problem keeps the first, and each further one becomes 0 to 3 steps harder than the
    problem instead. Between whole difficulties the targets are interpolated.
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
