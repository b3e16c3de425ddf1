"""DIVA's selector: groups of variants, passes over the data, and when difficulties change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.diva import selector as diva
from tests.samplers import environment
from vade_jax import samplers

make = samplers.SAMPLERS["diva"]


def answered(proposal, rate_I, rng, rate_of_variants=None):
    """Returns feedback; variants may be easier than their problems."""
    feedback = environment.feedback(proposal, rate_I, rng)
    if rate_of_variants is None:
        return feedback
    easier_M = rate_of_variants * feedback.trials_M
    of_problem_M = feedback.extra_M["variant"] == 0
    right_M = np.where(of_problem_M, feedback.successes_M, easier_M)
    return feedback.replace(successes_M=right_M.astype(np.float32))


def test_a_problem_comes_first_and_its_variants_behind_it():
    selector = make(num_rollouts=5, num_variants=3)
    state = selector.init(7).replace(difficulty_I=jnp.arange(1.0, 8.0))
    proposal = selector.propose(state, jax.random.key(0), 12)
    index_QU = np.asarray(proposal.index_M).reshape(3, 4)
    assert np.all(index_QU == index_QU[:, :1]) and len(set(index_QU[:, 0])) == 3
    assert proposal.extra_M["variant"].tolist() == [0, 1, 2, 3] * 3
    assert proposal.num_rollouts_M.tolist() == [5] * 12
    own_Q = np.asarray(proposal.extra_M["difficulty"]).reshape(3, 4)[:, 0]
    np.testing.assert_array_equal(own_Q, index_QU[:, 0] + 1)
    assert proposal.index_M.dtype == proposal.extra_M["variant"].dtype == jnp.int32


def test_every_problem_once_an_epoch():
    selector, rng = make(num_rollouts=2, num_variants=1), np.random.default_rng(0)
    state, count_I = selector.init(7), np.zeros(7, int)
    for step in range(21):
        proposal = selector.propose(state, jax.random.key(step), 6)
        np.add.at(count_I, np.asarray(proposal.index_M)[::2], 1)
        assert np.ptp(count_I) <= 1
        state = selector.update(state, answered(proposal, np.full(7, 0.5), rng))
    assert state.visits_I.tolist() == count_I.tolist() == [9] * 7


def run(num_steps, rate_I, rate_of_variants=None, **options):
    """Returns the difficulties before each step, and after the last."""
    selector, rng = make(num_rollouts=2, **options), np.random.default_rng(0)
    state, history = selector.init(4), []
    for step in range(num_steps):
        history.append(np.asarray(state.difficulty_I))
        proposal = selector.propose(state, jax.random.key(step), 4)  # 2 of 4 problems
        feedback = answered(proposal, rate_I, rng, rate_of_variants)
        state = selector.update(state, feedback)
    return [*history, np.asarray(state.difficulty_I)]


ALTERNATING = np.array([0.0, 1.0, 0.0, 1.0])


def test_an_epoch_ends_before_difficulties_change():
    history = run(4, ALTERNATING)
    assert np.all(history[1] == 5)  # half of the problems are answered
    assert history[2].tolist() == history[3].tolist() == [7, 3, 7, 3]
    assert history[4].tolist() == [9, 1, 9, 1]


@pytest.mark.parametrize("eta", [4, 8])
def test_answers_to_variants_count_for_their_problem(eta):
    # none right but half of the variants: s = 1/4
    last = run(2, np.zeros(4), rate_of_variants=0.5, eta=eta)[-1]
    np.testing.assert_allclose(last, 5 + eta * 0.25)


# ------------------------------------------------------------------------------ rules and targets
wanted = jax.jit(diva.target_difficulties, static_argnames="num_variants")
MEAN = {1: 8, 2: 7.5, 3: 7, 4: 6.5, 5: 6, 6: 5.5, 7: 4.5, 8: 3.5, 9: 3}


def test_the_linear_rule_has_the_papers_numbers():
    # eta = 4, s = 0, .1, ... 1: 2 1.6 1.2 .8 .4 0 -.4 -.8 -1.2 -1.6 -2
    right_I = jnp.arange(11.0)
    new_I = diva.recalibrated(jnp.full(11, 5.0), right_I, jnp.full(11, 10.0), 4.0)
    np.testing.assert_allclose(new_I, 5 + 2 - 0.4 * np.arange(11), rtol=1e-6)


def oracle(own, num_variants, rng):
    """Draws the variants of one problem as the public code does, in range."""
    deltas = []
    for _ in range(num_variants):
        delta = np.clip(np.round(rng.normal(MEAN[own], 1)), 1, 9) - own
        if delta < 0 and any(d < 0 for d in deltas):
            delta = min(rng.integers(0, 4), 9 - own)
        deltas.append(delta)
    return deltas


@pytest.mark.parametrize("own", [2, 5, 7, 9])
def test_several_variants_are_distributed_as_the_loop_has_them(own):
    size, rng = 4000, np.random.default_rng(0)
    wanted_QU = wanted(jax.random.key(1), jnp.full(size, float(own)), 3)
    expected_QU = np.array([oracle(own, 3, rng) for _ in range(size)])
    for u in range(3):  # the later ones differ from the first
        ours = np.bincount(np.asarray(wanted_QU[:, u], int), minlength=10) / size
        theirs = np.bincount((expected_QU[:, u] + own).astype(int), minlength=10) / size
        np.testing.assert_allclose(ours, theirs, atol=0.035)  # 3 sd of a difference
