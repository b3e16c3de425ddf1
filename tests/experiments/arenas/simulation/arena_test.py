"""The arena: its parts by hand, what a budget buys, and closed forms in a stationary world."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from experiments.arenas.simulation import arena, results
from experiments.arenas.simulation.selectors import Cell, Entry, Shape
from experiments.arenas.simulation.worlds import DriftConstants
from vade_jax import types

SHAPE = Shape(num_items=600, num_prompts=30, num_rollouts=8, rollouts=60 * 240)
STILL = DriftConstants(gain=0.0, drift=0.0)


def cell(label, still, **settings):
    constants = STILL if still else DriftConstants()
    return Cell("", "drift", constants, SHAPE, Entry.of(label, settings), seeds=(0, 1, 2, 3))


@functools.cache
def played(label, still, **settings):
    """Returns the result and its summary."""
    result = arena.run(cell(label, still, **settings))
    return result, results.summary(result, SHAPE)


def mean(label, name, still=True):
    return results.mean(played(label, still)[1], name).mean


# ------------------------------------------------------------------------------ parts
def test_answers_of_uneven_groups():
    proposal = types.Proposal(index_M=jnp.array([3, 0, 2]), num_rollouts_M=jnp.array([1, 4, 3000]))
    p_I = jnp.array([1.0, 0.5, 0.25, 0.0])
    found = arena.answer(jax.random.key(0), p_I, 100 * jnp.arange(1.0, 5), proposal, 3005)
    assert found.trials_M.tolist() == [1, 4, 3000]
    assert found.successes_M[:2].tolist() == [0, 4]
    assert abs(found.successes_M[2] / 3000 - 0.25) < 4 * np.sqrt(3 / 16 / 3000)
    assert np.bincount(found.group_N).tolist() == [1, 4, 3000]
    length_N = found.length_N[5:]  # uniform from half to one and a half of 300
    assert 150 <= length_N.min() < 155 and 445 < length_N.max() <= 450
    assert abs(length_N.mean() - 300) < 4 * 300 / np.sqrt(12 * 3000)
    assert found.correct_N.sum() == found.successes_M.sum()
    assert np.all(found.advantage_N[:5] == 0) and abs(found.advantage_N.sum()) < 1e-2


def test_groups_are_collected_over_rounds():
    """Two of three kept, then three of three: the last one finds no room."""
    pending = arena.no_groups(4, 9)
    for index_M, keep_M in (([1, 2, 3], [1, 0, 1]), ([4, 5, 6], [1, 1, 1])):
        proposal = types.Proposal(index_M=jnp.array(index_M), num_rollouts_M=jnp.array([2, 2, 2]))
        feedback = arena.answer(jax.random.key(0), jnp.ones(9), jnp.ones(9), proposal, 6)
        pending = arena.collect(pending, feedback, jnp.array(keep_M, bool))
    assert pending.groups.index_M.tolist() == [1, 3, 4, 5]
    assert pending.groups.successes_M.tolist() == [2, 2, 2, 2]
    assert pending.groups.trained_M.all() and (pending.count, pending.rounds) == (4, 2)
    assert np.flatnonzero(pending.used_I).tolist() == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------------------------ whole plays
def test_uniform_meets_the_closed_form():
    """60 rounds are 3 whole epochs, so the expected ratio is that of the pool.

    P(mixed) of p ~ Beta(a, a) is 1 - 2 B(a+8, a) / B(a, a); the rest is noise of the pool and of
    the answers, 600 items and 4 seeds each.
    """
    a = 0.35
    expected = 1 - 2 * np.exp(special.betaln(a + 8, a) - special.betaln(a, a))
    assert abs(mean("uniform", "effective") - expected) < 4 * 0.45 / np.sqrt(2400)
    assert mean("uniform", "visited") == 1 and mean("uniform", "max_visits") == 3
    assert mean("uniform", "progress") == mean("uniform", "start")


def test_the_oracle_is_best_and_vade_beats_uniform():
    assert mean("oracle", "effective") > mean("vade", "effective") + 0.05
    assert mean("vade", "effective") > mean("uniform", "effective") + 0.1
    assert mean("oracle", "regret") < 0.05 < mean("vade", "regret")
    assert mean("uniform", "regret") == pytest.approx(0.99 - mean("uniform", "effective"), abs=0.02)
    drifting = {name: mean(name, "progress", False) for name in ("oracle", "vade", "uniform")}
    assert drifting["oracle"] > drifting["vade"] > drifting["uniform"] + 0.02
    # Nothing changes, so the posterior may forecast what it sees, but for what lucky draws hide.
    assert abs(mean("vade", "forecast_bias")) < 0.12
    assert np.isnan(mean("uniform", "forecast_gap"))


def test_seeds_differ_and_a_seed_repeats_and_a_measurement_is_paid_for_and_trains_nothing():
    first = played("vade", True)[0]
    assert len({row.tobytes() for row in first.rounds["mixed"]}) == 4
    again = arena.run(cell("vade", True))
    np.testing.assert_array_equal(again.rounds["mixed"], first.rounds["mixed"])
    assert again.compile_seconds < first.compile_seconds / 10  # nothing was compiled again
    measured = arena.run(cell("vade", True, options={"warmup": "none"}, measure_first=True))
    assert measured.paid_U[0] == 600 * 8 + 240 and len(measured.paid_U) == 40
    # Known from the start: the first rounds are as good as the later ones.
    assert measured.rounds["mixed"][:, :5].mean() > mean("uniform", "effective") + 0.1
    assert (measured.rounds["tokens"][:, 0] > 600 * 8 * 90).all()  # the pass costs tokens
