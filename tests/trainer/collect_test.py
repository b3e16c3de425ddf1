"""Rounds of a step by hand: a selector that goes through the items in order, and scripted answers."""

import types

import jax
import numpy as np
import pytest

from tests.rollout import fake
from tests.trainer import fakes, small
from vade_jax import samplers
from vade_jax.settings import Refill
from vade_jax.trainer import collect, step_metrics

B, G = 4, 2


def make(mixed, num_items=24, counts=True, **options):
    order = fakes.InOrder(num_items, G, counts)
    engine = fakes.Engine(mixed=set(mixed))
    run = fakes.Run(order.selector, num_items, B, engine, **options)
    run.order = order
    return run


def learned(run):
    """What each update was given: the prompts, those that only fill their place in brackets."""
    said = []
    for uids, rollouts, advantage_N in run.batches:
        valid_MG = rollouts.valid_N.reshape(-1, G)
        assert (valid_MG.all(1) == valid_MG.any(1)).all()
        np.testing.assert_array_equal(rollouts.group_N, np.repeat(range(len(uids)), G))
        right_N = rollouts.token_NT[:, 0] == fake.RIGHT
        expected_N = np.where(right_N, 1, -1) / np.sqrt(2)
        np.testing.assert_allclose(
            advantage_N[rollouts.valid_N], expected_N[rollouts.valid_N], rtol=1e-5
        )
        names = [uid if v else f"({uid})" for uid, v in zip(uids, valid_MG.all(1), strict=True)]
        said.append(" ".join(names))
    return said


# ------------------------------------------------------------------------------ filling up
@pytest.mark.parametrize(
    ("mixed", "batch", "counts"),
    [
        ([0, 1, 2, 3, 9], "0 1 2 3", [1, 4, 4, 0]),
        ([0, 2, 5, 6, 7], "0 2 5 6", [2, 8, 5, 1]),
        ([1, 5, 9, 10], "1 5 9 10", [3, 12, 4, 0]),
        ([1, 5, 11], "(0) 1 5 11", [3, 12, 3, 0]),  # the cap
    ],
)
def test_a_batch_is_filled_with_the_first_kept_groups(mixed, batch, counts):
    run = make(mixed, refill=Refill(max_rounds=3))(1)
    assert learned(run) == [batch]
    found = run.recorder.metrics[1]
    names = ("rounds", "generated_groups", "kept_groups", "surplus_groups")
    assert [found[f"vade/{name}"] for name in names] == counts
    share = min(counts[2], B) / B
    assert found["vade/trained_effective_ratio"] == share
    assert found["vade/trained_effective_ratio_correct"] == share
    assert found["vade/effective_ratio"] == counts[2] / counts[1]
    assert found["vade/rollouts_total"] == counts[1] * G
    assert found["vade/tokens_total"] == counts[1] * G * 2
    assert found["vade/unique_selected"] == counts[1]


def test_the_log_has_every_round_with_the_belief_before_it():
    data = make([0, 5], refill=Refill(max_rounds=2))(1).recorder.data[1]
    assert data.round_M.tolist() == [1] * 4 + [2] * 4
    assert data.belief["visited"].tolist() == [0] * 4 + [4] * 4
    assert data.keep_M.tolist() == [i in (0, 5) for i in range(8)]
    assert data.rollouts.group_N.tolist() == np.repeat(range(8), G).tolist()
    assert data.feedback.index_M.tolist() == list(range(8))


def test_a_group_that_only_fills_its_place_is_not_one_that_teaches():
    """Every group's rewards differ; the selector keeps two of four."""
    run = make(range(4))
    keep = lambda state, feedback: feedback.index_M % 2 == 0
    run.selector = run.selector._replace(keep=keep)
    metrics = run(1).recorder.metrics[1]
    assert learned(run) == ["0 (1) 2 (3)"]
    assert metrics["vade/trained_effective_ratio"] == 2 / 4
    assert metrics["vade/trained_effective_ratio_correct"] == 2 / 4
    assert metrics["vade/effective_ratio"] == 1


def test_what_is_missing_is_asked_for_and_forecasts_are_means_over_prompts():
    run = make([1, 3, 4, 7], refill=Refill(max_rounds=4, ask="missing"))
    size = lambda state, proposal: {
        "mine/size": np.full(len(proposal.index_M), len(proposal.index_M))
    }
    run.selector = run.selector._replace(believe=size)
    run(1)
    assert run.engine.asked == [list("0123"), list("45"), list("6"), list("7")]
    assert learned(run) == ["1 3 4 7"]
    found = run.recorder.metrics[1]["mine/size"]
    assert found == pytest.approx((4 * 4 + 2 * 2 + 1 + 1) / 8)


def test_each_round_is_predicted_by_the_state_that_proposed_it():
    run = fakes.run("dapo", 4, {"base": "vade"}, refill=Refill(max_rounds=3))
    for step in range(2, 5):
        rounds = list(fakes.rounds(run.recorder.data[step]))
        alpha_I = run.recorder.progress[step - 2].posterior.alpha_I
        for number, one in enumerate(rounds[:2]):
            expected_M = 0.999**number * alpha_I[one.index_M]
            np.testing.assert_allclose(one.belief["alpha"], expected_M, rtol=1e-6)
        expected = np.concatenate([x.belief["prob_mixed"] for x in rounds]).mean()
        found = run.recorder.metrics[step]["vade/predicted_effective_ratio"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_how_far_the_posterior_is_off_counts_prompts_with_answers():
    """Expected .5 of each prompt; right are all, none and one of four answers, and one has no answer."""
    feedback = types.SimpleNamespace(
        successes_M=np.array([4.0, 0, 1, 0]), trials_M=np.array([4.0, 4, 4, 0])
    )
    found = step_metrics.error([0.5] * 4, feedback)
    assert found == pytest.approx((0.5 + 0.5 + 0.25) / 3)


# ------------------------------------------------------------------------------ nothing kept
@pytest.mark.parametrize(("max_rounds", "rounds"), [(3, 3), (0, 6)])
def test_without_anything_to_learn_the_run_goes_on_and_counts(max_rounds, rounds):
    """Without a cap the 24 items are six rounds: then the step ends (verl#991, verl#7401)."""
    run = make([], refill=Refill(max_rounds=max_rounds))(5)
    assert run.batches == [] and run.progress.state.step == 0
    assert run.progress.step == run.progress.skipped_updates == 5 == run.engine.version
    found = run.recorder.metrics
    assert [found[step]["vade/skipped_updates"] for step in range(6)] == list(range(6))
    assert not any(name.startswith("actor/") for x in found.values() for name in x)
    assert "critic/score/trained_mean" not in found[1]
    assert found[5]["vade/rollouts_total"] == 5 * rounds * B * G


# ------------------------------------------------------------------------------ a budget
def test_a_budget_ends_the_run_after_the_step_that_reaches_it():
    """Two rounds of 4 prompts, 2 answers each, a step: 16 answers, so 33 take three steps."""
    mixed = [i for i in range(48) if i % 8 in (0, 1, 4, 5)]
    validate = lambda engine, key, version, known: ({"val": version}, known)
    run = make(mixed, 48, refill=Refill(0), max_rollouts=33, eval_every=100, validate=(validate,))
    run(9)
    assert [run.recorder.metrics[s]["vade/rollouts_total"] for s in (1, 2, 3)] == [16, 32, 48]
    assert run.recorder.saved == [(1, False), (2, False), (3, True)]
    assert run.recorder.metrics[3]["val"] == 3  # validated at the end, whatever eval_every says
    run.max_rollouts = 48  # nothing is left of it
    assert run(9).progress.step == 3
    run.max_rollouts = 49
    assert run(9).progress.step == 4


@pytest.mark.parametrize(("lag", "every"), [(0, 0), (0, 2), (1, 0)])
def test_every_answer_paid_for_is_observed_and_a_surplus_is_counted(lag, every):
    """In rounds, passes and batches made ahead, some of them lost (AReaL#450)."""
    seen, selector = [], samplers.SAMPLERS["dapo"](base="vade")

    def observe(state, feedback):
        seen.append((feedback.trials_M.sum(), np.count_nonzero(~feedback.valid_N)))
        return selector.update(state, feedback)

    run = fakes.Run(
        selector._replace(update=observe),
        engine=fakes.Engine(lost=2),
        refill=Refill(max_rounds=0),
        lag=lag,
        every=every,
    )(6)
    observed, lost = np.sum(seen, axis=0)
    assert lost >= 2 * 6 and observed + lost == run.progress.rollouts_total
    surplus = 0
    for step, (uids, _, _) in enumerate(run.batches, 1):
        found = run.recorder.metrics[step]
        assert found["vade/kept_groups"] == 16 + found["vade/surplus_groups"]
        surplus += found["vade/surplus_groups"]
        assert len(uids) == 16
    assert surplus > 0


# ------------------------------------------------------------------------------ no prompt twice
def test_a_selector_that_stands_still_gets_other_items_in_its_order():
    """It is asked for 4, then, with those used, for 8; then for 4 and 12."""
    run = make([0, 5, 11], counts=False, refill=Refill(max_rounds=3))(1)
    assert run.engine.asked == [list("0123"), list("4567"), ["8", "9", "10", "11"]]
    assert run.order.asked == [4, 4, 8, 4, 12]


def test_a_small_data_set_ends_the_step():
    """6 items: the second round has 2, a third none."""
    run = make([5], 6, counts=False, refill=Refill(max_rounds=9))(1)
    assert run.engine.asked == [list("0123"), list("45")]


# ------------------------------------------------------------------------------ keys, parts
def test_the_first_round_draws_what_a_step_of_one_round_draws(monkeypatch):
    select, answer, _ = jax.random.split(jax.random.fold_in(jax.random.key(3), 1), 3)
    chosen, choose = [], collect.choose
    monkeypatch.setattr(collect, "choose", lambda *args: chosen.append(args[3]) or choose(*args))
    one, three = make([1])(1), make([1], refill=Refill(max_rounds=3))(1)
    of_rounds = lambda key: [key, *(jax.random.fold_in(key, 2**20 + n) for n in (1, 2))]
    data = lambda keys: [jax.random.key_data(k).tolist() for k in keys]
    assert data(one.engine.keys) == data([answer])
    assert data(three.engine.keys) == data(of_rounds(answer))
    assert data(chosen) == data([select, *of_rounds(select)])


def test_parts_are_joined_and_their_groups_counted_on():
    """A group without answers, the last of the first part, counts too."""
    a, b = small.rollouts([2, 1]), small.rollouts([3, 1], seed=1)
    whole = collect.join([a, b], [3, 2])
    assert whole.group_N.tolist() == [0, 0, 1, 3, 3, 3, 4]
    np.testing.assert_array_equal(whole.token_NT, np.concatenate([a.token_NT, b.token_NT]))
    assert whole.params_version == 0
    alone = collect.join([a], [2])
    for name in a:
        np.testing.assert_array_equal(alone[name], a[name], err_msg=name)
        assert alone[name].dtype == a[name].dtype
