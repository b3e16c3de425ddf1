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
    selector = make(num_rollouts=2, rule="table", score="reward", when="step")
    state = selector.init(1)
    proposal = selector.propose(state, jax.random.key(0), 2)
    feedback = answered(proposal, np.zeros(1), np.random.default_rng(0))
    # Wrong but well formed: 0.1 each, so +1, where the accuracy gives +2.
    formed = feedback.replace(reward_N=np.full(4, 0.1, np.float32))
    assert selector.update(state, formed).difficulty_I.tolist() == [6]
    by_accuracy = make(num_rollouts=2, rule="table", when="step")
    assert by_accuracy.update(state, formed).difficulty_I.tolist() == [7]
    # An invalid answer counts in neither: 0.1 of one, or nothing at all.
    invalid = formed.replace(
        valid_N=np.array([True, False, False, False]),
        reward_N=np.array([0.05, np.nan, 0.7, 0.7], np.float32),
        trials_M=np.array([1, 0], np.float32),
    )
    assert selector.update(state, invalid).difficulty_I.tolist() == [7]


def test_without_variants_it_is_uniform_with_a_difficulty():
    selector = make(num_rollouts=2, num_variants=0)
    proposal = selector.propose(selector.init(5), jax.random.key(0), 5)
    assert sorted(proposal.index_M.tolist()) == list(range(5))
    assert proposal.extra_M["variant"].tolist() == [0] * 5
    assert proposal.extra_M["difficulty"].tolist() == [5] * 5


def test_a_simulation_without_variants_may_leave_them_out():
    selector = make(num_rollouts=2, estimate="original", when="step")
    proposal = selector.propose(selector.init(3), jax.random.key(0), 2)
    feedback = environment.feedback(proposal, np.zeros(3), np.random.default_rng(0))
    state = selector.update(selector.init(3), feedback.replace(extra_M=None))
    assert sorted(state.difficulty_I.tolist()) == [5, 5, 7]
    assert sorted(state.visits_I.tolist()) == [0, 0, 1]


def test_a_batch_that_is_no_whole_problems_is_an_error():
    selector = make(num_variants=3)
    with pytest.raises(ValueError, match=r"num_prompts=6 .*multiple of .*= 4"):
        selector.propose(selector.init(9), jax.random.key(0), 6)


# ------------------------------------------------------------------------------ rules and targets
wanted = jax.jit(diva.wanted, static_argnames="num_variants")
TARGET = {1: 9, 2: 8, 3: 7, 4: 6, 5: 6, 6: 5, 7: 5, 8: 5, 9: 4}
MEAN = {1: 8, 2: 7.5, 3: 7, 4: 6.5, 5: 6, 6: 5.5, 7: 4.5, 8: 3.5, 9: 3}


def test_the_linear_rule_has_the_papers_numbers():
    # eta = 4, s = 0, .1, ... 1: 2 1.6 1.2 .8 .4 0 -.4 -.8 -1.2 -1.6 -2
    right_I = jnp.arange(11.0)
    new_I = diva.linear(jnp.full(11, 5.0), right_I, jnp.full(11, 10.0), 4.0)
    np.testing.assert_allclose(new_I, 5 + 2 - 0.4 * np.arange(11), rtol=1e-6)


def test_difficulties_stay_from_1_to_9_and_without_answers_as_they_are():
    own_I, right_I = jnp.array([8.5, 1.5, 3.3]), jnp.array([0.0, 10, 0])
    count_I = jnp.array([10.0, 10, 0])
    for new_I in (
        diva.linear(own_I, right_I, count_I, 4.0),
        diva.by_table(own_I, right_I, count_I),
    ):
        np.testing.assert_allclose(new_I, [9, 1, 3.3])


def table_oracle(right, count):
    """Closed ranges in whole numbers: 20 s against 1, 6, 10, 14, 20."""
    for edge, change in zip((1, 6, 10, 14, 20), (2, 1, 0, -1, -2), strict=True):
        if 20 * right <= edge * count:
            return change
    return 0


def test_the_table_is_exact_at_its_edges():
    pairs = [(right, count) for count in range(1, 61) for right in range(count + 1)]
    right_I, count_I = jnp.array(pairs, jnp.float32).T
    new_I = diva.by_table(jnp.full(len(pairs), 5.0), right_I, count_I)
    assert new_I.tolist() == [5 + table_oracle(*pair) for pair in pairs]
    # of the document: s = 0 .1 .2 .3 .4 .5 .6 .7 .8 1
    of_ten = {right: int(new_I[pairs.index((right, 10))]) - 5 for right in range(11)}
    assert [of_ten[r] for r in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)] == [
        *(2, 1, 1, 1, 0, 0, -1, -1, -2, -2)
    ]


def test_mean_rewards_at_an_edge_are_inside_with_some_room():
    # Three answers of reward 0.9 x 0 + 0.1 and the like: sums of float32 tenths.
    reward = np.float32(0.1) + np.float32(0.1) + np.float32(0.7)  # 0.3 on average
    new_I = diva.by_table(jnp.array([5.0]), jnp.array([reward]), jnp.array([3.0]), room=1e-5)
    assert new_I.tolist() == [6]
    above = diva.by_table(jnp.array([5.0]), jnp.array([0.91]), jnp.array([3.0]), room=1e-5)
    assert above.tolist() == [5]
    negative = diva.by_table(jnp.array([5.0]), jnp.array([-0.1]), jnp.array([3.0]))
    assert negative.tolist() == [5]


def test_an_only_variant_gets_the_one_target():
    own_Q = jnp.arange(1.0, 10.0)
    wanted_QU = wanted(jax.random.key(0), own_Q, 1)
    assert wanted_QU[:, 0].tolist() == list(TARGET.values())


@pytest.mark.parametrize("num_variants", [1, 3, 6])
def test_wanted_difficulties_are_whole_steps_away_and_in_range(num_variants):
    own_Q = jnp.linspace(1, 9, 161)
    for seed in range(20):
        wanted_QU = wanted(jax.random.key(seed), own_Q, num_variants)
        assert wanted_QU.shape == (161, num_variants)
        delta_QU = np.asarray(wanted_QU) - np.asarray(own_Q)[:, None]
        np.testing.assert_allclose(delta_QU, delta_QU.round(), atol=2e-6)
        assert np.min(wanted_QU) >= 1 - 1e-6 and np.max(wanted_QU) <= 9 + 1e-6
        if num_variants > 1:  # one easier variant at most
            assert np.max(np.sum(delta_QU.round() < 0, 1)) <= 1


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


@pytest.mark.parametrize(
    "table",
    [
        *[(1, 2), "abc", (), ((0.5, 1), (0.5, 0)), ((0.5, "x"),), ((1, 2, 3),)],
        *[((0.5, 1), (1, np.nan)), ((0.5, 1), (np.inf, -1))],
    ],
)
def test_a_table_is_of_pairs_of_numbers(table):
    with pytest.raises(
        ValueError, match=r"table=.*: give \(highest score, change\) pairs of finite numbers"
    ):
        make(rule="table", table=table)


def test_the_edge_of_a_range_may_be_any_number():
    difficulty_I, score_I = jnp.array([5.0, 5.0]), jnp.array([2.6, 2.7])
    table = ((1 / 3, 1.0), (1.0, -1.0))
    changed_I = diva.by_table(difficulty_I, score_I, jnp.full(2, 8.0), table)
    assert changed_I.tolist() == [6.0, 4.0]
