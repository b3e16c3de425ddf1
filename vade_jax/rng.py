"""The named random streams of a run.

All randomness of a run comes from `jax.random.key(seed)`. The keys of a step depend only on that key and on
the number of the step, so a resumed run and an uninterrupted one draw the same numbers, as do all processes.
This file names the streams of a run and of a selector's choice. Other files may split the keys that they get.
"""

from typing import NamedTuple

import jax

# The constants below are folded into keys. Each is far above the numbers that are folded into the same key
# for other streams, so that no two streams overlap.
# Into a step's key, for the batches of a pass; the streams of a step use only a few numbers.
_PASSES = 2**20
# Into a stream of a step, for its later rounds; answers and the selector's streams use smaller numbers.
_ROUNDS = 2**20
# Into the run's key, for the adapter; steps use their own numbers.
_ADAPTER = 2**30


def adapter_key(key: jax.Array) -> jax.Array:
    """Returns the key that initialises the adapter of the run with `key`."""
    return jax.random.fold_in(key, _ADAPTER)


class StepKeys(NamedTuple):
    """The three streams of one step."""

    select: jax.Array  # draws of the selector
    rollouts: jax.Array  # sampling of the answers
    validation: jax.Array  # sampling of the answers to validation questions


@jax.jit  # uncompiled, these few operations take milliseconds of each step
def step_keys(key: jax.Array, step: int) -> StepKeys:
    """Returns the keys of step `step`, counted from 1, of the run with `key`."""
    return StepKeys(*jax.random.split(jax.random.fold_in(key, step), 3))


def untrained_validation_key(key: jax.Array) -> jax.Array:
    """Returns the key of the validation before the first step."""
    return jax.random.fold_in(key, 0)


def round_key(key: jax.Array, number: int) -> jax.Array:
    """Returns the key of round `number` (from 0) of a step, where `key` is one of the step's streams.

    The first round uses the stream's own key: a step with one round draws what the first of several
    rounds draws.
    """
    return jax.random.fold_in(key, _ROUNDS + number) if number else key


def pass_key(key: jax.Array, step: int, batch: int) -> jax.Array:
    """Returns the key of the answers to one batch of the pass over all items before `step`."""
    return jax.random.fold_in(jax.random.fold_in(key, step), _PASSES + batch)


# ------------------------------------------------------------------------------ of a selector
# Streams that were added after the key was first split in two: `split` itself uses 0 and 1.
_UNIFORM, _REVIEW = 2, 3
# Folded into the key of a selector's own `seed`. A run with the same seed folds its step numbers into the
# same key, and these are smaller.
_OWN = 2**20
# Folded into `own_key` by a queue around a selector. The selector may split that key, which folds in small
# numbers from 0.
_JOINING = 2**20


class SelectionKeys(NamedTuple):
    """The streams of one choice of a batch."""

    draw: jax.Array  # draws of pass rates, or the noise of a weighted draw
    ties: jax.Array  # choice among items with equal scores, and the order of the batch
    uniform: jax.Array  # the share of the batch that is drawn uniformly
    review: jax.Array  # the share of the batch that comes from a review queue


def selection_keys(key: jax.Array) -> SelectionKeys:
    """Returns the streams of a choice from its key, such as `StepKeys.select`."""
    draw, ties = jax.random.split(key)
    later = (jax.random.fold_in(key, number) for number in (_UNIFORM, _REVIEW))
    return SelectionKeys(draw, ties, *later)


def own_key(seed: int, step: jax.Array) -> jax.Array:
    """Returns the key of update `step` for a selector that has its own `seed`.

    `update` gets no key. This one depends only on the seed and on a step counter in the selector's
    state, so `propose` and `update` can make the same draws.
    """
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _OWN), step)


def joining_key(seed: int, step: jax.Array) -> jax.Array:
    """Returns the key that decides which items join the queue around a selector in update `step`.

    It differs from `own_key`, which the selector inside may use with the same seed and step.
    """
    return jax.random.fold_in(own_key(seed, step), _JOINING)
