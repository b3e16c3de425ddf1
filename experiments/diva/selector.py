"""DIVA-GRPO (arXiv 2603.01106): every problem comes with variants of a suitable difficulty.

The selector tracks the difficulty of each problem, from 1 to 9, and asks for harder variants of easy problems
and easier variants of hard ones. `experiments.diva` makes the variants and computes their advantages.

Difficulties follow the paper's rule, once an epoch and from all answers; its public code has a table of
changes after every step, from rewards. The target difficulties are those of the code: the paper leaves them
open.
"""

import dataclasses
from collections.abc import Sequence

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
_HARDER = 4  # a variant that replaces a further easier one is 0 .. 3 harder than the problem


@dataclasses.dataclass(frozen=True)
class DivaOptions(base.Options):
    """The hyperparameters of DIVA's selector."""

    num_variants: int = fields.number(1, at_least=0)  # Variants of each problem (the paper: 1, 3)
    # Step size: a mean score s of an epoch changes a difficulty D to D + eta (0.5 - s)
    eta: float = fields.number(4.0, at_least=0)
    # Changes that may be made to the pictures of harder variants
    changes: tuple[str, ...] = ("rotate", "write", "gaussian", "salt_pepper", "speckle", "blur")
    # k, how much a variant's difficulty counts in the global advantages
    weight: float = fields.number(0.1, at_least=0)
    # Factor on the local advantages: answers compared with those to the same variant
    local_share: float = fields.number(1.0, at_least=0)
    # Factor on the global advantages: answers compared with all answers to the same problem
    global_share: float = fields.number(1.0, at_least=0)


@chex.dataclass(frozen=True)
class DivaState(types.Pytree):
    """The difficulty of every problem, and the answers since it last changed."""

    visits_I: jax.Array  # int32
    difficulty_I: jax.Array  # float32, from 1 to 9
    score_I: jax.Array  # float32, right answers since the last change, also to variants
    count_I: jax.Array  # float32, valid answers since then


def selector(options: DivaOptions) -> base.Sampler:
    """Returns the DIVA selector: problems in the order of uniform, each followed by its variants.

    `num_prompts` is the number of problems times (1 + num_variants). `extra_M["variant"]` numbers the slots
    of a problem, where 0 is the problem itself, and `extra_M["difficulty"]` is the difficulty that each slot
    should have (`target_difficulties`).
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
        wanted_QU = target_difficulties(variant_key, own_Q, options.num_variants)
        index_M = jnp.repeat(index_Q, slots)
        proposal = ranking.same_num_rollouts(index_M, options.num_rollouts)
        extra_M = {
            "variant": jnp.tile(jnp.arange(slots, dtype=jnp.int32), num_problems),
            "difficulty": jnp.column_stack([own_Q, wanted_QU]).reshape(-1),
        }
        return proposal.replace(extra_M=extra_M)

    def update(state: DivaState, feedback: types.Feedback) -> DivaState:
        index_M = feedback.index_M
        # All slots of a problem have the same index. `add` sums over them. `max` gets the same value
        # from each of them, so together they count as one visit.
        score_I = state.score_I.at[index_M].add(feedback.successes_M)
        count_I = state.count_I.at[index_M].add(feedback.trials_M)
        visits_I = state.visits_I.at[index_M].max(state.visits_I[index_M] + 1)
        # An epoch ends when the last problem is visited, which raises the smallest number of visits.
        ends_epoch = jnp.min(visits_I) > jnp.min(state.visits_I)
        new_I = recalibrated(state.difficulty_I, score_I, count_I, options.eta)
        return DivaState(
            visits_I=visits_I,
            difficulty_I=jnp.where(ends_epoch, new_I, state.difficulty_I),
            score_I=jnp.where(ends_epoch, 0, score_I),
            count_I=jnp.where(ends_epoch, 0, count_I),
        )

    # A pass asks for problems without their variants, from which it learns as well.
    needs = base.Needs(passes="never", variants=True, places=slots)
    return base.compiled(init, propose, update, believe=believe, needs=needs)


SPEC = base.Spec("diva", DivaOptions, selector)


def believe(state: DivaState, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns the difficulties of problems and of variants, each NaN in the slots of the other.

    They are the target difficulties, or the actual ones once the variants are made.
    """
    del state
    assert proposal.extra_M is not None
    is_problem_M, difficulty_M = proposal.extra_M["variant"] == 0, proposal.extra_M["difficulty"]
    return {
        "diva/difficulty_problems": jnp.where(is_problem_M, difficulty_M, jnp.nan),
        "diva/difficulty_variants": jnp.where(is_problem_M, jnp.nan, difficulty_M),
    }


def recalibrated(difficulty_I: Array, score_I: Array, count_I: Array, eta: float) -> jax.Array:
    """Returns D + eta (0.5 - s), clipped to [1, 9], for the mean score s; without answers D stays."""
    mean_I = score_I / jnp.maximum(count_I, 1)
    change_I = jnp.where(count_I > 0, eta * (0.5 - mean_I), 0)
    return jnp.clip(difficulty_I + change_I, EASIEST, HARDEST)


def target_difficulties(key: jax.Array, difficulty_Q: Array, num_variants: int) -> Array:
    """Returns the target difficulties of the variants of each problem, [Q, num_variants].

    They are an integer number of steps from the problem's difficulty, within [1, 9]. A single variant gets
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
