"""The arena: a selector plays in a world for a budget of rollouts, many seeds at once.

One scan over U rounds of rollouts. A round proposes, answers, keeps and updates, B G rollouts; kept
groups are collected until there are B of them or `max_rounds` rounds are spent, and then train:
with max_rounds=1 that is every round, with 3 it is DAPO's dynamic sampling and its cap. What is
dropped, and kept beyond B, is paid for. A measurement rolls out all I items G times, trains on none
and is paid for, too. So all have spent the same after the same number of rounds, and what costs
more makes fewer steps. Letters besides those of vade_jax.types: S seeds, U rounds.
"""

import dataclasses
import functools
import time
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.simulation import rounds
from experiments.simulation.budget import Schedule, Shape, schedule
from experiments.simulation.contenders import Contender
from experiments.simulation.rounds import Pending, mixed, prob_mixed
from experiments.simulation.worlds import KINDS, Groups
from vade_jax import types
from vade_jax.samplers import base
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class Result:
    """What happened: arrays by name, `*_SU` a round and `*_S` at the end."""

    schedule: Schedule
    rounds: dict[str, np.ndarray]  # [S, U]
    ends: dict[str, np.ndarray]  # [S]
    seconds: float  # of all seeds, without compilation
    compile_seconds: float


@chex.dataclass(frozen=True)
class Carry:
    """Everything that a round changes."""

    world: Any
    selector: Any
    pending: Pending
    visits_I: Array  # int32


def play(kind, contender, shape, world, selector, key, measure_U):
    """Plays all rounds of one seed; returns the last carry and the records of the rounds."""
    sampler = contender.sampler(shape.num_rollouts)
    size, usual = shape.num_prompts, shape.num_rollouts
    every_item = base.same_num_rollouts(jnp.arange(shape.num_items), usual)

    def measure(carry, key):
        p_I = kind.pass_rate(carry.world)
        feedback = rounds.answer(key, p_I, every_item, shape.of_measurement)
        return carry.replace(selector=sampler.update(carry.selector, feedback))

    def turn(carry, now):
        number, measured = now
        keys = jax.random.split(jax.random.fold_in(key, number), 3)
        if contender.measures:
            carry = jax.lax.cond(measured, measure, lambda c, _: c, carry, keys[0])
        world, selector, waiting = carry.world, carry.selector, carry.pending
        p_I = kind.pass_rate(world)
        if contender.name == "oracle":
            selector = selector.replace(pass_rate_I=p_I)
        propose = lambda number: sampler.propose(selector, keys[1], number)
        proposal = rounds.unused(propose, size, contender.max_rounds, waiting.used_I)
        feedback = rounds.answer(keys[2], p_I, proposal, shape.of_round)
        keep_M = sampler.keep(selector, feedback)
        pending = rounds.collect(waiting, feedback, keep_M)
        trains = (pending.count == size) | (pending.rounds == contender.max_rounds)
        pick = functools.partial(jax.tree.map, lambda a, b: jnp.where(trains, a, b))
        after = Carry(
            world=pick(kind.learn(world, pending.groups, usual), world),
            selector=sampler.update(selector, feedback),
            pending=pick(rounds.empty(size, shape.num_items), pending),
            visits_I=carry.visits_I.at[feedback.index_M].add(1),
        )
        belief = sampler.believe(selector, proposal)
        forecast = jnp.mean(belief.get("prob_mixed", jnp.nan))
        seen = observed(shape, p_I, kind.hopeless(world), feedback)
        trained = used(pending.groups, kind.hopeless(world), trains)
        more = {"predicted": forecast, "progress": kind.progress(after.world)}
        return after, seen | trained | more

    carry = Carry(
        world=world,
        selector=selector,
        pending=rounds.empty(size, shape.num_items),
        visits_I=jnp.zeros(shape.num_items, jnp.int32),
    )
    return jax.lax.scan(turn, carry, (jnp.arange(len(measure_U)), measure_U))


def observed(
    shape: Shape, p_I: Array, hopeless_I: Array, feedback: types.Feedback
) -> dict[str, jax.Array]:
    """Returns what a round's groups were, all of them; `regret` is that of report.summary."""
    index_M, num_M = feedback.index_M, feedback.trials_M
    best_M = jax.lax.top_k(prob_mixed(p_I, shape.num_rollouts), len(index_M))[0]
    return {
        "mixed": jnp.mean(mixed(feedback.successes_M, num_M)),
        "regret": jnp.mean(best_M) - jnp.mean(prob_mixed(p_I[index_M], num_M)),
        "hopeless": jnp.sum(num_M * hopeless_I[index_M]) / shape.of_round,
    }


def used(groups: Groups, hopeless_I: Array, trains: Array) -> dict[str, jax.Array]:
    """Returns whether the round ends in a training step, and shares of its B places."""
    mixed_M = groups.trained_M & mixed(groups.successes_M, groups.trials_M)
    hopeless_M = groups.trained_M & hopeless_I[groups.index_M]
    return {
        "trains": trains,
        "used": jnp.where(trains, jnp.mean(mixed_M), 0.0),
        "hopeless_trained": jnp.where(trains, jnp.mean(hopeless_M), 0.0),
    }


# ------------------------------------------------------------------------------ all seeds
def run(
    kind_name: str,
    constants: dict[str, float],
    contender: Contender,
    shape: Shape,
    *,
    seed: int,
    num_seeds: int,
) -> Result:
    """Plays `num_seeds` seeds. Contenders share the keys: the same items, the same luck by slot.

    Raises:
        ValueError: bad constants of the world, options of the selector or sizes.
    """
    shape.check()
    kind, plan = KINDS[kind_name], schedule(contender, shape)
    key_S = jax.random.split(jax.random.key(seed), num_seeds)
    world_key_S, key_S = jax.vmap(jax.random.split, out_axes=1)(key_S)
    init = functools.partial(kind.init, num_items=shape.num_items, **constants)
    world_S = jax.vmap(init)(world_key_S)
    selector = contender.begin(shape.num_rollouts, kind.category(shape.num_items))
    arguments = world_S, selector, key_S, plan.measure_U
    start = time.perf_counter()
    program = _compiled(kind_name, contender, shape, arguments)
    compiled = time.perf_counter()
    carry, records = jax.device_get(program(*arguments))
    end = time.perf_counter()
    records["start"] = np.asarray(jax.vmap(kind.progress)(world_S))[:, None]
    hopeless_S = np.mean(jax.vmap(kind.hopeless)(world_S), axis=1)
    return Result(
        schedule=plan,
        rounds=records,
        ends=_ends(carry, records, hopeless_S, plan, shape),
        seconds=end - compiled,
        compile_seconds=compiled - start,
    )


_PROGRAMS: dict[Any, Any] = {}


def _compiled(kind_name, contender, shape, arguments):
    """One program for all worlds of a kind: their constants are arguments."""
    avals = str(jax.tree.map(jnp.shape, arguments))
    key = kind_name, contender, shape, avals
    if key not in _PROGRAMS:
        function = functools.partial(play, KINDS[kind_name], contender, shape)
        batched = jax.vmap(function, in_axes=(0, None, 0, None))
        _PROGRAMS[key] = jax.jit(batched).lower(*arguments).compile()
    return _PROGRAMS[key]


def _ends(carry, records, hopeless_S, plan, shape):
    paid = plan.paid_U[-1]
    measured = paid - len(plan.paid_U) * shape.of_round
    asked_S = np.sum(records["hopeless"], axis=1) * shape.of_round
    return {
        "visited": np.mean(carry.visits_I > 0, axis=1),
        "max_visits": np.max(carry.visits_I, axis=1),
        "hopeless": (asked_S + measured * hopeless_S) / paid,
        "steps": np.sum(records["trains"], axis=1),
    }
