"""The arena: a selector plays in a world for a budget of rollouts, many seeds at once.

A play is one scan over U rounds of rollouts. A round proposes prompts, answers them, keeps groups and updates
the selector, with B G rollouts. Kept groups are collected until there are B of them or `max_rounds` rounds
are spent; then the world trains on them. With max_rounds=1 every round trains; with 3 this is DAPO's dynamic
sampling with its cap. Groups that are dropped, or kept beyond B, are paid for. A measurement is a pass of G
rollouts over all I items, which trains on none and is also paid for. So all selectors have spent the same
after the same number of rounds, and a more expensive selector takes fewer training steps. Additional letters:
S seeds, U rounds.
"""

import functools
import time
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.arenas.simulation.selectors import Cell, Entry, Shape, schedule
from experiments.arenas.simulation.worlds import KINDS, Groups, World
from vade_jax import types
from vade_jax.losses import advantages
from vade_jax.samplers import ranking
from vade_jax.types import Array


# ------------------------------------------------------------------------------ a round
@chex.dataclass(frozen=True)
class Pending:
    """The groups kept so far for the next training step."""

    groups: Groups
    count: Array  # int32
    rounds: Array  # int32
    used_I: Array  # bool, items already rolled out for this step


def answer(
    key: jax.Array, pass_rate_I: Array, tokens_I: Array, proposal: types.Proposal, total: int
) -> types.Feedback:
    """Returns feedback on random answers, each right with its item's pass rate; `total` is N.

    The length of an answer differs by up to half from its item's mean, `tokens_I`.
    """
    index_M, num_M = proposal.index_M, proposal.num_rollouts_M
    size = len(index_M)
    group_N = jnp.repeat(jnp.arange(size), num_M, total_repeat_length=total)
    luck_N = jax.random.uniform(key, (total,))
    correct_N = (luck_N < pass_rate_I[index_M][group_N]).astype(jnp.float32)
    length_N = jax.random.uniform(jax.random.fold_in(key, 1), (total,), minval=0.5, maxval=1.5)
    return types.Feedback(
        index_M=index_M,
        successes_M=jax.ops.segment_sum(correct_N, group_N, size),
        trials_M=num_M.astype(jnp.float32),
        group_N=group_N,
        reward_N=correct_N,
        correct_N=correct_N,
        advantage_N=advantages.group_normalized(correct_N, group_N, size),
        length_N=jnp.round(tokens_I[index_M][group_N] * length_N).astype(jnp.int32),
        valid_N=jnp.ones(total, bool),
    )


def no_groups(num_prompts: int, num_items: int) -> Pending:
    """Returns the empty slots of a training step."""
    zero_M = jnp.zeros(num_prompts, jnp.float32)
    return Pending(
        groups=Groups(
            index_M=jnp.zeros(num_prompts, jnp.int32),
            successes_M=zero_M,
            trials_M=zero_M,
            trained_M=jnp.zeros(num_prompts, bool),
        ),
        count=jnp.int32(0),
        rounds=jnp.int32(0),
        used_I=jnp.zeros(num_items, bool),
    )


def unused(propose, num_prompts: int, max_rounds: int, used_I: Array) -> types.Proposal:
    """Returns the proposal of a round, without the items that this step has already rolled out.

    As in the trainer: first the unused items of the selector's proposal, then those of a larger proposal
    with the same key. Used items come last, and are only taken if the pool has no others.
    """
    first = propose(num_prompts)
    if max_rounds == 1:
        return first
    more = propose(min(max_rounds * num_prompts, len(used_I)))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, more)
    place_M, seen_I = jnp.arange(len(both.index_M)), used_I.at[first.index_M].set(True)
    again_M = jnp.where(place_M < num_prompts, used_I[both.index_M], seen_I[both.index_M])
    order_M = jnp.argsort(again_M, stable=True)[:num_prompts]
    return jax.tree.map(lambda x: x[order_M], both)


def collect(pending: Pending, feedback: types.Feedback, keep_M: Array) -> Pending:
    """Returns the step with kept groups in its free slots, as many as fit."""
    count = pending.count + jnp.cumsum(keep_M)
    size = len(pending.groups.index_M)
    slot_M = jnp.where(keep_M, count - 1, size)  # `size` is beyond the last slot: dropped

    new = Groups(
        index_M=feedback.index_M,
        successes_M=feedback.successes_M,
        trials_M=feedback.trials_M,
        trained_M=keep_M,
    )
    put = lambda x_M, new_M: x_M.at[slot_M].set(new_M, mode="drop")
    return Pending(
        groups=jax.tree.map(put, pending.groups, new),
        count=jnp.minimum(count[-1], size).astype(jnp.int32),
        rounds=pending.rounds + 1,
        used_I=pending.used_I.at[feedback.index_M].set(True),
    )


def prob_mixed(p: Array, num: Array) -> jax.Array:
    """Returns the chance that `num` answers with pass rate `p` are neither all right nor all wrong."""
    return 1 - p**num - (1 - p) ** num


# ------------------------------------------------------------------------------ a play
@chex.dataclass(frozen=True)
class Carry:
    """Everything that a round changes."""

    world: World
    posterior: Any
    pending: Pending
    visits_I: Array  # int32
    tokens: Array  # float32, of all answers that were paid for


def play(
    entry: Entry,
    shape: Shape,
    world: World,
    posterior: Any,
    key: jax.Array,
    measure_U: Array,
) -> tuple[Carry, dict[str, jax.Array]]:
    """Plays all rounds of one seed; returns the last carry and the records of the rounds.

    Args:
        entry: the selector that plays.
        shape: the sizes.
        world: the world before the first round.
        posterior: the selector's state before the first round.
        key: of all draws. Selectors share it, so that the same slot has the same draws.
        measure_U: whether all items are measured before each round.
    """
    selector = entry.functions(shape.num_rollouts)
    size, usual = shape.num_prompts, shape.num_rollouts
    of = lambda world: (world.pass_rate(), world.tokens())
    every_item = ranking.same_num_rollouts(jnp.arange(shape.num_items), usual)

    def measure(carry, key):
        feedback = answer(key, *of(carry.world), every_item, shape.of_measurement)
        return carry.replace(
            posterior=selector.update(carry.posterior, feedback),
            tokens=carry.tokens + jnp.sum(feedback.length_N),
        )

    def turn(carry, now):
        number, measured = now
        keys = jax.random.split(jax.random.fold_in(key, number), 3)
        if entry.first(usual) or entry.measure_every:
            carry = jax.lax.cond(measured, measure, lambda c, _: c, carry, keys[0])
        world, posterior = carry.world, carry.posterior
        if entry.name == "oracle":
            posterior = posterior.replace(pass_rate_I=world.pass_rate())

        # Propose, answer, keep, update, as in the training loop.
        propose = lambda number: selector.propose(posterior, keys[1], number)
        proposal = unused(propose, size, entry.max_rounds, carry.pending.used_I)
        feedback = answer(keys[2], *of(world), proposal, shape.of_round)
        pending = collect(carry.pending, feedback, selector.keep(posterior, feedback))
        trains = (pending.count == size) | (pending.rounds == entry.max_rounds)

        # Every round computes a training step, and discards it if none is due: under `vmap` over seeds
        # both branches of a `cond` would run anyway.
        pick = lambda taken, left: jax.tree.map(lambda a, b: jnp.where(trains, a, b), taken, left)
        after = Carry(
            world=pick(world.learn(pending.groups, usual), world),
            posterior=selector.update(posterior, feedback),
            pending=pick(no_groups(size, shape.num_items), pending),
            visits_I=carry.visits_I.at[feedback.index_M].add(1),
            tokens=carry.tokens + jnp.sum(feedback.length_N),
        )
        belief = selector.believe(posterior, proposal)
        return after, {
            **of_round(shape, world, feedback),
            "trains": trains,
            "used": jnp.where(trains, jnp.mean(pending.groups.mixed()), 0.0),
            "predicted": jnp.mean(belief.get("prob_mixed", jnp.nan)),
            "progress": after.world.progress(),
            "tokens": after.tokens,
        }

    carry = Carry(
        world=world,
        posterior=posterior,
        pending=no_groups(size, shape.num_items),
        visits_I=jnp.zeros(shape.num_items, jnp.int32),
        tokens=jnp.float32(0),
    )
    return jax.lax.scan(turn, carry, (jnp.arange(len(measure_U)), measure_U))


def of_round(shape: Shape, world: World, feedback: types.Feedback) -> dict[str, jax.Array]:
    """Returns statistics over all groups of a round; `results.summary` defines `regret`."""
    index_M, num_M, p_I = feedback.index_M, feedback.trials_M, world.pass_rate()
    best_M = jax.lax.top_k(prob_mixed(p_I, shape.num_rollouts), len(index_M))[0]
    return {
        "mixed": jnp.mean(feedback.mixed_M),
        "regret": jnp.mean(best_M) - jnp.mean(prob_mixed(p_I[index_M], num_M)),
        "hopeless": jnp.sum(num_M * world.hopeless()[index_M]) / shape.of_round,
    }


# ------------------------------------------------------------------------------ all seeds
class Result(NamedTuple):
    """The outcome of a cell, as arrays by name."""

    paid_U: np.ndarray  # rollouts so far
    rounds: dict[str, np.ndarray]  # [S, U]
    ends: dict[str, np.ndarray]  # [S]
    seconds: float  # for all seeds, without compilation
    compile_seconds: float


def run(cell: Cell) -> Result:
    """Plays all seeds of a cell. All selectors get the same keys: the same items, the same draws by slot."""
    kind, entry, shape = KINDS[cell.kind], cell.entry, cell.shape
    measure_U, paid_U = schedule(entry, shape)
    key_S = jax.random.split(jax.random.key(0), max(cell.seeds) + 1)[np.array(cell.seeds)]
    world_key_S, key_S = jax.vmap(jax.random.split, out_axes=1)(key_S)
    world_S = jax.vmap(lambda key: kind.begin(key, shape.num_items, cell.constants))(world_key_S)
    category_I = kind.category(shape.num_items)
    known = {"features": world_S.feature_IE, "pass_rate": jax.vmap(kind.pass_rate)(world_S)}
    posterior, axis = entry.begin(shape.num_rollouts, category_I, jax.device_get(known))

    inputs = world_S, posterior, key_S, measure_U
    start = time.perf_counter()
    # All worlds of a kind share one program, because their constants are arguments.
    name = kind, entry, shape, len(cell.seeds)
    if name not in _PROGRAMS:
        seeds = jax.vmap(functools.partial(play, entry, shape), in_axes=(0, axis, 0, None))
        _PROGRAMS[name] = jax.jit(seeds).lower(*inputs).compile()
    compiled = time.perf_counter()
    carry, records = jax.device_get(_PROGRAMS[name](*inputs))
    end = time.perf_counter()

    records["start"] = np.asarray(jax.vmap(kind.progress)(world_S))[:, None]
    hopeless_S = np.mean(jax.vmap(kind.hopeless)(world_S), axis=1)
    measured = paid_U[-1] - len(paid_U) * shape.of_round
    asked_S = np.sum(records["hopeless"], axis=1) * shape.of_round
    ends = {
        "visited": np.mean(carry.visits_I > 0, axis=1),
        "max_visits": np.max(carry.visits_I, axis=1),
        "hopeless": (asked_S + measured * hopeless_S) / paid_U[-1],
        "steps": np.sum(records["trains"], axis=1),
        "effective_first": np.mean(records["mixed"][:, :10], axis=1),
    }
    return Result(paid_U, records, ends, end - compiled, compiled - start)


_PROGRAMS: dict[Any, Any] = {}
