"""The selector object: equal to the loop's own choices, exact after a restart, safe with threads."""

import copy
import io
import json
import pickle
from concurrent import futures

import chex
import jax
import numpy as np
import pytest

from tests import compilations
from tests.samplers import environment
from vade_jax import samplers
from vade_jax.selector import Selector, keep

IDS = [f"item-{i}" for i in range(50)]
NAN = float("nan")


@pytest.fixture(scope="module")
def fresh():
    """A selector that learns nothing, for what is refused."""
    return Selector(IDS)


def observe_all(selector, ids, right=3):
    selector.observe(ids, correct=[right] * len(ids), trials=8)


def test_chooses_what_the_four_functions_choose():
    functions, key = samplers.SAMPLERS["vade"](), jax.random.key(7)
    state, selector = functions.init(50), Selector(50, seed=7)
    rng = np.random.default_rng(0)
    for step in range(1, 12):
        step_key = jax.random.split(jax.random.fold_in(key, step), 3)[0]
        index_M = np.asarray(functions.propose(state, step_key, 6).index_M)
        ids = selector.select(6)
        np.testing.assert_array_equal(ids, index_M)
        right_M = rng.integers(0, 9, 6)
        selector.observe(ids, right_M, 8)
        state = functions.update(state, environment.counts(index_M, right_M, 8))


def test_keep_says_which_groups_are_trained_on_and_learns_nothing():
    selector = Selector(IDS, "dapo")
    before = selector.state_dict()["state"]
    ids = ["item-7", "item-2", "item-9", "item-0"]  # not in the order of the items
    assert selector.filters
    assert selector.keep(ids, [3, 0, 8, 0], [8, 8, 8, 0]).tolist() == [True, False, False, False]
    chex.assert_trees_all_equal(selector.state_dict()["state"], before)
    with pytest.raises(ValueError, match="one occurs twice"):
        selector.keep(["item-1", "item-1"], [1, 1], 8)


@pytest.mark.parametrize("name", ["vade", "kalman", "remind"])
def test_continues_from_a_file(tmp_path, name):
    first = Selector(IDS, name, seed=3)
    observe_all(first, first.select(8))
    first.save(tmp_path / "selector.npz")
    second = Selector(IDS, name, seed=3)
    second.load(tmp_path / "selector.npz")
    for _ in range(3):
        ids = first.select(8)
        assert ids == second.select(8)
        observe_all(first, ids)
        observe_all(second, ids)


def through_torch(first):
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    return loaded(torch.load(file))  # weights_only, its default


def through_json(first):
    return loaded(json.loads(json.dumps(first.state_dict())))


def loaded(state):
    again = Selector(IDS, "mopps", seed=3)
    again.load_state_dict(state)
    return again


@pytest.mark.parametrize(
    "copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, through_torch, through_json]
)
def test_a_copy_chooses_what_the_original_would_have_chosen(copied):
    """MoPPS has the seed among its options."""
    first = Selector(IDS, "mopps", seed=3)
    observe_all(first, first.select(8))
    again = copied(first)
    for _ in range(2):
        ids = first.select(8)
        assert ids == again.select(8)
        observe_all(first, ids)
        assert first.state_dict() != again.state_dict()  # it has a state of its own
        observe_all(again, ids)
    assert first.state_dict() == again.state_dict()


def test_a_seed_decides_the_draws_that_a_method_has_of_its_own():
    """MoPPS passes over the data in an order of its own before it knows anything."""
    first, again, other = (Selector(IDS, "mopps", seed=s).select(8) for s in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("rewards", "threshold"),
    [
        # strictly above; neither None nor NaN is a verdict
        ([0.6, 1, None, 0.5, 0.9, 0.51, NAN, NAN], 0.5),
        ([2, 3, 0, 1, 4, 5, 0, 0], lambda x: np.where(x == 0, np.nan, x > 1)),
    ],
)
def test_answers_of_one_id_are_added(rewards, threshold):
    counts, by_answer = Selector(10, warmup="none"), Selector(10, warmup="none")
    mixed = counts.observe([3, 5, 3, 4], correct=[1, 2, 1, 0], trials=[1, 3, 1, 0])
    # in any order, of any number
    again = by_answer.observe([3, 5, 5, 5, 3, 5, 3, 4], rewards=rewards, threshold=threshold)
    assert mixed == again == pytest.approx(1 / 3)
    chex.assert_trees_all_equal(counts.state_dict(), by_answer.state_dict())


@pytest.mark.parametrize(
    ("rewards", "groups", "kept"),
    [
        # Of the odd one, the others are all equal (NeMo-RL #3469, #4158: leave-one-out)
        ([1, 0, 0, 0, 1, 1, 1, 0, 0], "aaaabbbbb", "111111111"),
        ([0.0, *[0.95] * 7], "a" * 8, "1" * 8),
        # Sums of equal numbers round (#4158), and sums of unequal ones
        ([0.95] * 7 + [0.1] * 3, "a" * 7 + "b" * 3, "0" * 10),
        ([0.1 + 0.2, 0.3, 1e6, 1e6 + 1e-3], "aabb", "0000"),
        # The mean says nothing (OpenRLHF #1270, #1272)
        ([0.5, 0.5, 0.5, -3, 5, -5, 0, 0, 1e-3], "aaabbbccc", "000111111"),
        # One valid answer, none, or one in several rows (slime #2374)
        ([1, NAN, NAN, None, None, 0.7, 0.7, np.inf, 0.2, NAN, 0.3], "aaabbccdeee", "00000000101"),
        ([1, 0, 0, 2, 0], [7, -1, 7, -1, 3], "11110"),
        ([], [], ""),
    ],
)
def test_keep_needs_two_valid_rewards_that_differ(rewards, groups, kept):
    assert "".join(str(int(x)) for x in keep(rewards, list(groups))) == kept


def test_keep_says_where_an_advantage_is_not_zero():
    """With the group's mean as the baseline or that of the others, each computed in whole numbers."""
    rng = np.random.default_rng(0)
    group_N, tenths_N = rng.integers(0, 40, 100), rng.choice([0, 1, 10], 100)
    kept_N = keep(tenths_N / 10, group_N)
    for group, kept in zip(group_N, kept_N, strict=True):
        tenths = tenths_N[group_N == group].tolist()
        assert kept == any(x * len(tenths) != sum(tenths) for x in tenths)
        assert kept == any(x * (len(tenths) - 1) != sum(tenths) - x for x in tenths)
    assert 20 < kept_N.sum() < 80


def test_a_proposal_has_all_that_a_selector_asks_for():
    """GDRO weighs groups, Knapsack asks for uneven ones."""
    proposal = Selector(IDS, "gdro").propose(6)
    assert proposal.weight_M.tolist() == [1.0] * 6
    selector = Selector(IDS, "knapsack", num_rollouts=4)
    for _ in range(10):  # of half of the items all answers are wrong, of the others half are right
        ids = selector.select(10)
        selector.observe(ids, [int(name.removeprefix("item-")) % 2 * 4 for name in ids], 8)
    num_M = selector.propose(50).num_rollouts_M
    assert num_M.sum() == 200 and set(num_M.tolist()) == {3, 5}


def test_another_number_of_valid_answers_compiles_nothing():
    """Answers fail in almost every step: each would cost seconds, and memory that stays."""
    selector = Selector(IDS)

    def observe(failed):
        selector.observe(IDS[:8], correct=[1] * 8, trials=[8 - failed] + [8] * 7)

    observe(0)
    observe(0)  # the first had a state from elsewhere
    with compilations.count() as compiled:
        for failed in range(1, 8):
            observe(failed)
    assert compiled == []


@pytest.mark.parametrize("name", ["vade", "sec"])
def test_padding_of_answers_changes_no_bit(name, monkeypatch):
    arrays = {"category": [0, 0, 1, 1]} if name == "sec" else {}
    padded, plain = (Selector(4, name, arrays=arrays) for _ in range(2))
    padded.observe([0, 2, 1], correct=[1, 3, 0.5], trials=[2, 3, 7])
    monkeypatch.setattr("vade_jax.selector.bucket", lambda size, multiple: size)
    plain.observe([0, 2, 1], correct=[1, 3, 0.5], trials=[2, 3, 7])
    chex.assert_trees_all_equal(padded.state_dict(), plain.state_dict())


def test_sec_learns_from_valid_answers_alone():
    """Of 1 right of 2 both advantages are 1 / sqrt(2) large, of 3 of 3 they are 0; Q moves half."""
    selector = Selector(4, "sec", arrays={"category": [0, 0, 1, 1]})
    selector.observe([0, 2], correct=[1, 3], trials=[2, 3])
    value_A = selector.state_dict()["state"]["value_A"]
    np.testing.assert_allclose(value_A, [0.5**1.5, 0], rtol=1e-5)


def test_threads_never_choose_alike_and_lose_nothing():
    selector = Selector(64, seed=0, warmup="none", decay_selected=1.0, decay_rest=1.0)

    def work(_):
        ids = selector.select(4)
        selector.observe(ids, correct=[1] * 4, trials=2)
        return tuple(ids)

    with futures.ThreadPoolExecutor(8) as pool:
        chosen = list(pool.map(work, range(40)))
    assert len(set(chosen)) == 40
    state = selector.state_dict()["state"]
    assert sum(state["alpha_I"]) == sum(state["beta_I"]) == 40 * 4
    assert selector.state_dict()["selections"] == 40


def test_what_the_selector_thinks_of_every_item_can_be_read():
    selector = Selector(["a", "b", "c"], seed=0, decay_selected=1.0, decay_rest=1.0)
    selector.observe(["b"], correct=[6], trials=8)
    found = selector.beliefs()
    np.testing.assert_allclose(found["posterior_mean"], [1 / 2, 7 / 10, 1 / 2], rtol=1e-6)
    np.testing.assert_array_equal(found["alpha"], [0, 6, 0])
    assert found["prob_mixed"].shape == (3,) and Selector(3, "uniform").beliefs() == {}


@pytest.mark.parametrize(
    ("ids", "correct", "trials", "named"),
    [
        (["item-1"], [9], 8, "item-1"),
        (["item-1"], [float("nan")], 8, "item-1"),
        (["item-1"], [1], 2.5, "item-1"),
        (["item-1", "item-2"], [1, 1], [8, None], "item-2"),
        (["item-1", "item-2"], [1], 8, "length"),
        (["item-1", "item-2"], [1, 1], [8, 8, 8], "shape"),
    ],
)
def test_refuses_impossible_counts(fresh, ids, correct, trials, named):
    before = fresh.state_dict()
    with pytest.raises(ValueError, match=named):
        fresh.observe(ids, correct, trials)
    chex.assert_trees_all_equal(fresh.state_dict(), before)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"ids": "other"}, "ids"),
        ({"items": 9}, "items"),
        ({"name": "kalman"}, "name"),
        ({"arrays": {"category": "other"}}, "arrays"),
        ({"options": {"decay_rest": 0.9}}, "decay_rest"),
        ({"state": {}}, "alpha_I"),
        ({"state": {"alpha_I": np.zeros(5, np.float32)}}, "alpha_I"),
    ],
)
def test_refuses_the_state_of_another_and_keeps_its_own(fresh, changes, named):
    before, saved = fresh.state_dict(), fresh.state_dict() | changes
    with pytest.raises(ValueError, match=named):
        fresh.load_state_dict(saved)
    chex.assert_trees_all_equal(fresh.state_dict(), before)


@pytest.mark.parametrize(
    ("items", "arguments", "named"),
    [
        (4, {"name": "diva"}, "diva"),
        (4, {"per": "token"}, "lengths"),
        (4, {"decay": 0.9}, "decay_rest"),
        (4, {"name": "sec"}, "category"),
        (4, {"warmup": "measured"}, "warmup='none'"),
        (200, {"name": "vcrl"}, "next_step"),
        (0, {}, "items"),
        (["a", "b", "a"], {}, "items"),
    ],
)
def test_what_cannot_work_is_refused(items, arguments, named):
    with pytest.raises(ValueError, match=named):
        Selector(items, **arguments)
