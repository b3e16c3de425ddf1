"""DIVA's selector: groups of variants, passes over the data, and when difficulties change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers

make = samplers.SAMPLERS["diva"]


def answered(proposal, rate_I, rng, rate_of_variants=None):
    """Returns feedback; variants may be easier than their problems."""
    feedback = environment.feedback(jax.device_get(proposal), rate_I, rng)
    feedback = feedback.replace(
        extra_M=jax.device_get(proposal.extra_M),
    )
    if rate_of_variants is None:
        return feedback
    right_M = np.where(
        feedback.extra_M["variant"] > 0,
        rate_of_variants * feedback.trials_M,
        feedback.successes_M,
    )
    return feedback.replace(successes_M=right_M.astype(np.float32))


def test_a_problem_comes_first_and_its_variants_behind_it():
    sampler = make(num_rollouts=5, num_variants=3)
    state = sampler.init(7).replace(difficulty_I=jnp.arange(1.0, 8.0))
    proposal = sampler.propose(state, jax.random.key(0), 12)
    index_QU = np.asarray(proposal.index_M).reshape(3, 4)
    assert np.all(index_QU == index_QU[:, :1]) and len(set(index_QU[:, 0])) == 3
    assert proposal.extra_M["variant"].tolist() == [0, 1, 2, 3] * 3
    assert proposal.num_rollouts_M.tolist() == [5] * 12
    own_Q = np.asarray(proposal.extra_M["difficulty"]).reshape(3, 4)[:, 0]
    np.testing.assert_array_equal(own_Q, index_QU[:, 0] + 1)
    assert proposal.index_M.dtype == proposal.extra_M["variant"].dtype == jnp.int32


def test_every_problem_once_an_epoch():
    sampler, rng = make(num_rollouts=2, num_variants=1), np.random.default_rng(0)
    state, count_I = sampler.init(7), np.zeros(7, int)
    for step in range(21):
        proposal = sampler.propose(state, jax.random.key(step), 6)
        np.add.at(count_I, np.asarray(proposal.index_M)[::2], 1)
        assert np.ptp(count_I) <= 1
        state = sampler.update(state, answered(proposal, np.full(7, 0.5), rng))
    assert state.visits_I.tolist() == count_I.tolist() == [9] * 7


def run(num_steps, rate_I, rate_of_variants=None, **options):
    """Returns the difficulties before each step, and after the last."""
    sampler, rng = make(num_rollouts=2, **options), np.random.default_rng(0)
    state, history = sampler.init(4), []
    for step in range(num_steps):
        history.append(np.asarray(state.difficulty_I))
        proposal = sampler.propose(state, jax.random.key(step), 4)  # 2 of 4 problems
        feedback = answered(proposal, rate_I, rng, rate_of_variants)
        state = sampler.update(state, feedback)
    return [*history, np.asarray(state.difficulty_I)]


ALTERNATING = np.array([0.0, 1.0, 0.0, 1.0])


def test_an_epoch_ends_before_difficulties_change():
    history = run(4, ALTERNATING)
    assert np.all(history[1] == 5)  # half of the problems are answered
    assert history[2].tolist() == history[3].tolist() == [7, 3, 7, 3]
    assert history[4].tolist() == [9, 1, 9, 1]


def test_step_by_step_they_change_at_once():
    history = run(4, ALTERNATING, when="step")
    assert sorted(history[1]) != [5, 5, 5, 5] and np.sum(history[1] == 5) == 2
    assert history[2].tolist() == [7, 3, 7, 3] and history[4].tolist() == [9, 1, 9, 1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # none right but half of the variants: s = 1/4 of the group, 0 of the problem
        ({}, 5 + 4 * 0.25),
        ({"eta": 8}, 5 + 8 * 0.25),
        ({"estimate": "original"}, 7),
        ({"rule": "table"}, 6),
        ({"rule": "table", "estimate": "original"}, 7),
        ({"rule": "table", "table": ((0.25, 3), (1.0, -3))}, 8),
    ],
)
def test_hints_help_only_the_estimate_that_counts_them(options, expected):
    last = run(2, np.zeros(4), rate_of_variants=0.5, **options)[-1]
    np.testing.assert_allclose(last, expected)


def test_the_score_may_be_the_reward():
    sampler = make(num_rollouts=2, rule="table", score="reward", when="step")
    state = sampler.init(1)
    proposal = sampler.propose(state, jax.random.key(0), 2)
    feedback = answered(proposal, np.zeros(1), np.random.default_rng(0))
    # Wrong but well formed: 0.1 each, so +1, where the accuracy gives +2.
    formed = feedback.replace(reward_N=np.full(4, 0.1, np.float32))
    assert sampler.update(state, formed).difficulty_I.tolist() == [6]
    by_accuracy = make(num_rollouts=2, rule="table", when="step")
    assert by_accuracy.update(state, formed).difficulty_I.tolist() == [7]
    # An invalid answer counts in neither: 0.1 of one, or nothing at all.
    invalid = formed.replace(
        valid_N=np.array([True, False, False, False]),
        reward_N=np.array([0.05, np.nan, 0.7, 0.7], np.float32),
        trials_M=np.array([1, 0], np.float32),
    )
    assert sampler.update(state, invalid).difficulty_I.tolist() == [7]


def test_without_variants_it_is_uniform_with_a_difficulty():
    sampler = make(num_rollouts=2, num_variants=0)
    proposal = sampler.propose(sampler.init(5), jax.random.key(0), 5)
    assert sorted(proposal.index_M.tolist()) == list(range(5))
    assert proposal.extra_M["variant"].tolist() == [0] * 5
    assert proposal.extra_M["difficulty"].tolist() == [5] * 5


def test_a_simulation_without_variants_may_leave_them_out():
    sampler = make(num_rollouts=2, estimate="original", when="step")
    proposal = sampler.propose(sampler.init(3), jax.random.key(0), 2)
    feedback = environment.feedback(
        jax.device_get(proposal), np.zeros(3), np.random.default_rng(0)
    )
    state = sampler.update(sampler.init(3), feedback)
    assert sorted(state.difficulty_I.tolist()) == [5, 5, 7]
    assert sorted(state.visits_I.tolist()) == [0, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_variants": -1}, "num_variants=-1: set it to at least 0"),
        ({"rule": "cubic"}, "rule='cubic'.*linear"),
        ({"score": "loss"}, "score='loss'.*accuracy"),
        ({"when": "never"}, "when='never'.*epoch"),
        ({"estimate": "hints"}, "estimate='hints'.*original"),
        ({"table": ((0.5, 1), (0.3, 2))}, r"table=.*ascending"),
        ({"table": ()}, r"table=\(\).*pairs"),
    ],
)
def test_wrong_options_are_one_clear_error(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_batch_that_is_no_whole_problems_is_an_error():
    sampler = make(num_variants=3)
    with pytest.raises(ValueError, match=r"num_prompts=6 .*multiple of .*= 4"):
        sampler.propose(sampler.init(9), jax.random.key(0), 6)
