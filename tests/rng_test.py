"""The named streams: none is another one, whatever step and round it is of."""

import jax
import numpy as np

from vade_jax import rng

ROUNDS, ANSWERS, STEPS = 4, 40, 3


def of_step(key, step):
    """All keys that a step draws from: by name, with what selectors and engines make of them."""
    keys = rng.step_keys(key, step)
    for number in range(ROUNDS):
        yield from rng.selection_keys(rng.round_key(keys.select, number))
        rollouts = rng.round_key(keys.rollouts, number)
        for key_of_all in (rollouts, rng.pass_key(key, step, number)):
            # Answer n draws from fold_in(key, n), in `rollout.decode`.
            yield from (jax.random.fold_in(key_of_all, n) for n in range(ANSWERS))
    yield from (rng.round_key(x, number) for x in keys for number in range(ROUNDS))
    own = rng.own_key(0, step)
    yield from (own, *jax.random.split(own), rng.joining_key(0, step))


def test_all_keys_of_a_run_are_different():
    key = jax.random.key(0)
    found = [key, rng.adapter_key(key), rng.untrained_validation_key(key)]
    for step in range(1, 1 + STEPS):
        found += of_step(key, step)
    data_KX = np.array([jax.random.key_data(one) for one in found])
    assert len(np.unique(data_KX, axis=0)) == len(found)


def test_the_first_round_has_the_key_of_the_step():
    key = rng.step_keys(jax.random.key(0), 1).rollouts
    assert rng.round_key(key, 0) == key
