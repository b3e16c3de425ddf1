"""Entries: what each seed begins with, what the oracle takes, and when is measured."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.arenas.simulation import selectors
from experiments.arenas.simulation.selectors import Entry, Shape, schedule
from vade_jax.samplers import informed

FEATURES = np.random.default_rng(0).normal(size=(2, 9, 3))  # of two seeds


def test_each_seed_gets_its_own_features_and_pass_rates():
    rate_SI = np.random.default_rng(1).random((2, 9))
    known = {"features": FEATURES, "pass_rate": rate_SI}
    states, axis = Entry.of("informed", {"prior": "right"}).begin(8, np.arange(9), known)
    assert axis == 0
    np.testing.assert_allclose(states.alpha_I, 8 * rate_SI, rtol=1e-6)
    alone = informed.components(FEATURES[1].astype(np.float32), 16)
    np.testing.assert_array_equal(states.feature_ID[1], alone)


def test_the_oracle_takes_the_best_true_pass_rates():
    p_I = jnp.array([0.0, 0.34, 0.5, 0.9, 1.0])
    state = selectors.OracleState(pass_rate_I=p_I)
    choose = lambda number, **options: set(
        selectors.SELECTORS["oracle"](**options)
        .propose(state, jax.random.key(0), number)
        .index_M.tolist()
    )
    assert choose(1) == {1}
    assert choose(1, info_gain="p(1-p)") == {2}
    assert choose(3) == {1, 2, 3}


def test_a_schedule_by_hand():
    # 10 items, 5 prompts, 2 answers: a round costs 10 rollouts, a measurement 20.
    shape = Shape(num_items=10, num_prompts=5, num_rollouts=2, rollouts=95)
    plan = lambda **settings: schedule(Entry.of("vade", settings), shape)
    assert plan().paid_U.tolist() == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert not plan().measure_U.any()
    assert plan(measure_first=True).paid_U.tolist() == [30, 40, 50, 60, 70, 80, 90]
    assert plan(options={"warmup": "measured"}).paid_U.tolist() == [30, 40, 50, 60, 70, 80, 90]
    again = plan(measure_first=True, measure_every=2)
    assert again.paid_U.tolist() == [30, 40, 70, 80]  # the next would cost 30
    assert again.measure_U.tolist() == [True, False, True, False]
    assert plan(measure_every=3).measure_U.tolist() == [False] * 3 + [True] + [False] * 2
