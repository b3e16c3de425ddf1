"""DIVA-GRPO (arXiv 2603.01106): every problem comes with variants as hard as it needs.

The selector keeps how difficult each problem is and asks for harder variants of easy ones and easier
variants of hard ones. Who makes them is `data.variants`; what they do to advantages, `losses.diva`.
"""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base, checks, difficulty
from vade_jax.types import Array

RULES, SCORES = ("linear", "table"), ("accuracy", "reward")
WHENS, ESTIMATES = ("epoch", "step"), ("group", "original")
_ROOM = 1e-5  # for mean rewards at the edge of a range: tenths are no binary fractions


@chex.dataclass(frozen=True)
class State:
    """The difficulty of every problem, and the answers that are still to change it."""

    visits_I: Array  # int32
    difficulty_I: Array  # float32, from 1 to 9
    score_I: Array  # float32, the sum over these answers
    count_I: Array  # float32, how many they are


def make(
    *,
    num_rollouts: int = 8,
    num_variants: int = 1,
    rule: str = "linear",
    eta: float = 4.0,
    table: Sequence[tuple[float, float]] = difficulty.TABLE,
    score: str = "accuracy",
    when: str = "epoch",
    estimate: str = "group",
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the DIVA selector: uniform's order, each problem with its variants behind it.

    `num_prompts` is problems times (1 + num_variants): slot 0 of a problem is the problem itself.
    `extra_M["variant"]` counts the slots of a problem and `extra_M["difficulty"]` says how difficult each
    is to be (`difficulty.wanted`).

    Args:
        num_rollouts: k, answers to a prompt.
        num_variants: of each problem; the paper has 1 or 3.
        rule: what a mean score s does to a difficulty D. "linear", the paper's: D + eta (0.5 - s).
            "table", the public code's: D + the change of the range that s lies in.
        eta: of the linear rule.
        table: (highest score, change) of the ranges, ascending.
        score: "accuracy", the paper's, or the code's "reward".
        when: the paper re-calibrates after an "epoch", from all its answers; the code every "step".
        estimate: "group" takes in the answers to variants, as both do, so that hints make hard
            problems look easier; "original" leaves them out.
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.at_least("num_variants", num_variants, 0)
    checks.option("rule", rule, RULES)
    checks.at_least("eta", eta, 0)
    checks.option("score", score, SCORES)
    checks.option("when", when, WHENS)
    checks.option("estimate", estimate, ESTIMATES)
    _check_table(table)
    slots = 1 + num_variants

    def init(num_items: int) -> State:
        return State(
            visits_I=jnp.zeros(num_items, jnp.int32),
            difficulty_I=jnp.full(num_items, difficulty.FIRST, jnp.float32),
            score_I=jnp.zeros(num_items, jnp.float32),
            count_I=jnp.zeros(num_items, jnp.float32),
        )

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        num_problems = _num_problems(num_prompts, slots)
        order_key, variant_key = jax.random.split(key)
        due_I = (jnp.min(state.visits_I) - state.visits_I).astype(jnp.float32)
        index_Q = base.top_b(due_I, order_key, num_problems, mesh=mesh, axis=axis)
        own_Q = state.difficulty_I[index_Q]
        wanted_QU = difficulty.wanted(variant_key, own_Q, num_variants)
        proposal = base.same_num_rollouts(jnp.repeat(index_Q, slots), num_rollouts)
        extra_M = {
            "variant": jnp.tile(jnp.arange(slots, dtype=jnp.int32), num_problems),
            "difficulty": jnp.column_stack([own_Q, wanted_QU]).reshape(-1),
        }
        return proposal.replace(extra_M=extra_M)

    def update(state: State, feedback: types.Feedback) -> State:
        index_M = feedback.index_M
        score_M, count_M = _scores(feedback, score, estimate)
        score_I = state.score_I.at[index_M].add(score_M)
        count_I = state.count_I.at[index_M].add(count_M)
        visits_I = state.visits_I.at[index_M].max(state.visits_I[index_M] + 1)
        due = jnp.min(visits_I) > jnp.min(state.visits_I) if when == "epoch" else True
        if rule == "linear":
            new_I = difficulty.linear(state.difficulty_I, score_I, count_I, eta)
        else:
            room = _ROOM if score == "reward" else 0.0
            new_I = difficulty.by_table(
                state.difficulty_I, score_I, count_I, table, room
            )
        return State(
            visits_I=visits_I,
            difficulty_I=jnp.where(due, new_I, state.difficulty_I),
            score_I=jnp.where(due, 0, score_I),
            count_I=jnp.where(due, 0, count_I),
        )

    return base.assemble(init, propose, update, mesh=mesh, axis=axis)


def _scores(feedback, score, estimate):
    """The sum of the scores of each slot's valid answers, and how many they are."""
    score_M, count_M = feedback.successes_M, feedback.trials_M
    if score == "reward":
        reward_N = jnp.where(feedback.valid_N, feedback.reward_N, 0)
        score_M = jax.ops.segment_sum(reward_N, feedback.group_N, len(count_M))
    if estimate == "original" and feedback.extra_M is not None:
        original_M = feedback.extra_M["variant"] == 0
        score_M, count_M = score_M * original_M, count_M * original_M
    return score_M, count_M


def _num_problems(num_prompts, slots):
    if num_prompts % slots:
        raise ValueError(
            f"num_prompts={num_prompts} does not divide into problems with {slots - 1} variants"
            f" each: set num_prompts to a multiple of 1 + num_variants = {slots}"
        )
    return num_prompts // slots


def _check_table(table):
    highest = [edge for edge, _ in table]
    if not highest or highest != sorted(set(highest)):
        raise ValueError(
            f"table={tuple(table)}: give (highest score, change) pairs, scores ascending"
        )
