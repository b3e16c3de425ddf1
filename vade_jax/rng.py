"""The named random streams of a run.

All randomness of a run comes from `jax.random.key(seed)`. A step's keys depend on that key and on the
number of the step alone, so a resumed run draws what an uninterrupted one would have drawn, and two
processes draw the same. The streams of a run and of a selector's choice are named here; below them a file
may split the key that it was given.
"""

from typing import NamedTuple

import jax

# Folded into a step's key, far above the few numbers that the streams of a step use.
_PASSES = 2**20
# Folded into a stream of a step, far above the numbers of its answers and of a selector's streams.
_ROUNDS = 2**20
# Folded into the run's key, far above the numbers of steps.
_ADAPTER = 2**30


def adapter_key(key: jax.Array) -> jax.Array:
    """Returns the key of an adapter's first values, of the run with `key`."""
    return jax.random.fold_in(key, _ADAPTER)


class StepKeys(NamedTuple):
    """The three streams of one step."""

    select: jax.Array  # the selector's draws
    rollouts: jax.Array  # the answers
    validation: jax.Array  # the answers to validation questions


@jax.jit  # one by one, these operations would take milliseconds of each step
def step_keys(key: jax.Array, step: int) -> StepKeys:
    """Returns the keys of `step`, counted from 1, of the run with `key`."""
    return StepKeys(*jax.random.split(jax.random.fold_in(key, step), 3))


def untrained_validation_key(key: jax.Array) -> jax.Array:
    """Returns the key of the validation before the first step."""
    return jax.random.fold_in(key, 0)


def round_key(key: jax.Array, number: int) -> jax.Array:
    """Returns the key of round `number` of a step, from 0, of the step's stream `key`.

    The first round has the stream's own key: a step of one round draws what the first of several
    rounds draws.
    """
    return jax.random.fold_in(key, _ROUNDS + number) if number else key


def pass_key(key: jax.Array, step: int, batch: int) -> jax.Array:
    """Returns the key of the answers to one batch of the pass over all items before `step`."""
    return jax.random.fold_in(jax.random.fold_in(key, step), _PASSES + batch)


# ------------------------------------------------------------------------------ of a selector
# Streams of a selector that were added to a split key later: 0 and 1 are the split's own.
_UNIFORM, _REVIEW = 2, 3
# Folded into the key of a selector's own `seed`: a run of the same seed folds in its steps.
_OWN = 2**20
# Folded into `own_key` by a queue around a selector, which may split the same key: a split folds in
# the few numbers from 0.
_JOINING = 2**20


class SelectionKeys(NamedTuple):
    """The streams of one choice from a posterior."""

    draw: jax.Array  # the pass rates
    ties: jax.Array  # which of several equal items, and the order of the batch
    uniform: jax.Array  # the share of the batch that is drawn evenly
    review: jax.Array  # the share that comes from a queue


def selection_keys(key: jax.Array) -> SelectionKeys:
    """Returns the streams of the choice with `key`, such as `StepKeys.select`."""
    draw, ties = jax.random.split(key)
    later = (jax.random.fold_in(key, number) for number in (_UNIFORM, _REVIEW))
    return SelectionKeys(draw, ties, *later)


def own_key(seed: int, step: jax.Array) -> jax.Array:
    """Returns the key of update `step` of a selector whose `seed` decides more than its choices.

    It depends on nothing but the selector's state, so `propose` and `update` can draw the same.
    """
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _OWN), step)


def joining_key(seed: int, step: jax.Array) -> jax.Array:
    """Returns the key of who joins a queue in update `step`, for a queue around any selector.

    The selector below has `own_key` of the same seed and step: both must not draw the same numbers.
    """
    return jax.random.fold_in(own_key(seed, step), _JOINING)
