"""The selector object: equal to the loop's own choices, exact after a restart, safe with threads."""

import copy
import hashlib
import io
import json
import pickle
import types
from concurrent import futures

import chex
import jax
import numpy as np
import pytest

from tests.samplers import environment
from tests.trainer import small
from vade_jax import samplers
from vade_jax.selector import Selector
from vade_jax.trainer import timing

IDS = [f"item-{i}" for i in range(50)]


@pytest.fixture(scope="module")
def fresh():
    """A selector that learns nothing, for what is refused."""
    return Selector(IDS)


def observe_all(selector, ids, right=3):
    selector.observe(ids, correct=[right] * len(ids), trials=8)


def test_readme_example_learns_what_it_is_told():
    selector = Selector(100, seed=0, warmup="none")
    for _ in range(40):
        ids = selector.select(10)
        assert len(set(ids)) == 10
        selector.observe(ids, correct=[8 if i < 50 else 3 for i in ids], trials=8)
    late = np.concatenate([selector.select(10) for _ in range(10)])
    assert np.mean(late >= 50) > 0.9  # the solved half is left alone


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
    assert selector.keep([], [], 8).tolist() == []
    chex.assert_trees_all_equal(selector.state_dict()["state"], before)
    with pytest.raises(ValueError, match="one occurs twice"):
        selector.keep(["item-1", "item-1"], [1, 1], 8)


def test_a_selector_without_a_filter_keeps_all(fresh):
    assert not fresh.filters
    assert fresh.keep(IDS[:2], [0, 8], 8).tolist() == [True, True]


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
    again = Selector(IDS, "mopps", seed=3)
    again.load_state_dict(torch.load(file))  # weights_only, its default
    return again


def through_json(first):
    again = Selector(IDS, "mopps", seed=3)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
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


@pytest.mark.parametrize("name", sorted(set(samplers.SAMPLERS) - {"diva", "gdro"}))
def test_every_selector_can_be_pickled(name):
    options = {
        "vcrl": {"replay": "next_step"},
        "dapo": {"base_options": types.MappingProxyType({})},
    }
    arrays = {"category": [f"level {i % 3}" for i in range(8)], "features": np.eye(8, 5)}
    arrays |= {"pass_rate": np.full(8, 0.5), "self_bleu": [0.5] * 8}
    first = samplers.SAMPLERS[name](**options.get(name, {}))
    arrays = {x: y for x, y in arrays.items() if x in first.needs.named()}
    first = Selector(IDS[:8], name, seed=5, arrays=arrays, **options.get(name, {}))
    again = pickle.loads(pickle.dumps(first))
    assert again.state_dict() == first.state_dict()


def test_what_a_subclass_adds_is_pickled_too():
    first = Mine(4)
    first.note = "kept"
    again = copy.copy(first)
    assert type(again) is Mine and again.note == "kept"


class Mine(Selector):
    pass


def test_a_state_of_another_version_is_refused(fresh):
    saved = fresh.state_dict() | {"format": 0}
    with pytest.raises(ValueError, match=r"has format 0, which another version of vade_jax wrote"):
        fresh.load_state_dict(saved)


def test_a_seed_beyond_a_keys_32_bits_is_refused():
    """It would draw as another seed does."""
    with pytest.raises(ValueError, match=r"seed=4294967296: must be in \[0, .*32 bits"):
        Selector(4, seed=2**32)


def test_a_seed_decides_the_draws_that_a_method_has_of_its_own():
    """MoPPS passes over the data in an order of its own before it knows anything."""
    first, again, other = (Selector(IDS, "mopps", seed=s) for s in (1, 1, 2))
    chosen = first.select(8)
    assert chosen == again.select(8)
    plain = samplers.SAMPLERS["mopps"](seed=1)
    key = jax.random.split(jax.random.fold_in(jax.random.key(1), 1), 3)[0]
    index_M = plain.propose(plain.init(50), key, 8).index_M
    assert chosen == [IDS[i] for i in index_M] != other.select(8)


def test_arrays_are_ids_and_counts_too(tmp_path):
    listed = Selector([3, 5, 7], seed=1, decay_rest=0.5)
    given = Selector(np.array([3, 5, 7]), seed=np.int64(1), decay_rest=np.float64(0.5))
    given.observe(jax.numpy.array([5, 3]), np.array([1, 2]), np.array([4, 2]))
    given.save(tmp_path / "selector.npz")
    listed.load(tmp_path / "selector.npz")
    chosen = given.select(2)
    assert chosen == listed.select(2) and all(type(name) is int for name in chosen)
    assert len(Selector(np.int64(9)).select(9)) == 9


@pytest.mark.parametrize(
    ("items", "as_saved"),
    [
        (3, "[0, 1, 2]"),
        (range(3), "[0, 1, 2]"),
        (list(np.arange(3)), "[0, 1, 2]"),
        (["a", "b"], "['a', 'b']"),
        (list(np.array(["a", "b"])), "['a', 'b']"),
    ],
)
def test_equal_ids_have_one_digest(items, as_saved):
    """Files have it, so it stays as it was."""
    expected = hashlib.sha256(as_saved.encode()).hexdigest()[:16]
    assert Selector(items, "uniform").state_dict()["ids"] == expected


def test_options_of_the_selector_below_are_told_apart(tmp_path):
    made = lambda kind, rest: Selector(
        IDS, "dapo", base="vade", base_options=kind({"decay_rest": rest})
    )
    made(types.MappingProxyType, 0.9).save(tmp_path / "selector.npz")
    made(dict, 0.9).load(tmp_path / "selector.npz")
    with pytest.raises(
        ValueError, match=r"options.base_options: .*'decay_rest': 0.9.* there, .*0\.5"
    ):
        made(types.MappingProxyType, 0.5).load(tmp_path / "selector.npz")


def test_defaults_are_options_too():
    saved = Selector(9).state_dict()
    assert saved["options"]["decay_rest"] == 0.999
    Selector(9, decay_rest=0.999).load_state_dict(saved)
    with pytest.raises(ValueError, match=r"options.decay_rest: 0.999 there, 0.9 here"):
        Selector(9, decay_rest=0.9).load_state_dict(saved)


@pytest.mark.parametrize("name", ["sec", "arcus"])
def test_a_program_with_64_bits_gets_the_same(name, tmp_path):
    def chosen():
        arrays = {"category": [0, 1] * 10} if name == "sec" else {}
        made = Selector(20, name, arrays=arrays)
        for step in range(2):
            ids = made.select(4)
            made.observe(ids, [step, 1, 2, 8], 8)
            made.save(tmp_path / "selector.npz")
            made.load(tmp_path / "selector.npz")
        return made.select(4)

    expected = chosen()
    with jax.enable_x64(True):
        assert chosen() == expected


@pytest.mark.parametrize("selections", [None, -5, "3"])
def test_a_damaged_counter_is_refused(fresh, selections):
    saved = fresh.state_dict() | {"selections": selections}
    with pytest.raises(ValueError, match=r"the saved selector is damaged: .* selections there"):
        fresh.load_state_dict(saved)


def test_threads_save_one_after_another(fresh, tmp_path):
    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: fresh.save(tmp_path / "selector.npz"), range(40)))
    fresh.load(tmp_path / "selector.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["selector.npz"]


@pytest.mark.parametrize(
    ("name", "options", "fitting"),
    [
        ("vcrl", {}, {"replay": "next_step"}),
        ("remind", {"base": "vcrl"}, {"base": "vcrl", "base_options": {"replay": "next_step"}}),
    ],
)
def test_refuses_what_needs_a_second_round_of_the_step(name, options, fitting):
    with pytest.raises(ValueError, match=f"{name}.* round 2 of the same step.*'next_step'"):
        Selector(200, name, **options)
    assert len(Selector(200, name, **fitting).select(8)) == 8


def test_groups_of_one_id_are_added():
    twice, once = Selector(10, warmup="none"), Selector(10, warmup="none")
    twice.observe([3, 5, 3], correct=[1, 2, 4], trials=[4, 8, 8])
    once.observe([3, 5], correct=[5, 2], trials=[12, 8])
    chex.assert_trees_all_equal(twice.state_dict(), once.state_dict())


def test_a_score_by_length_wants_the_tokens_of_the_answers():
    """Items 3 and 5 are as hard; the answers to 5 are a third as long. 11 tokens of 4 answers: 3 3 3 2."""
    made = Selector(10, warmup="none", per="token", draw="mean")
    with pytest.raises(
        ValueError, match="vade scores items by the length of answers: give `tokens`"
    ):
        made.observe([3], correct=[1], trials=[4])
    for tokens in ([11], [11, -1], [11, np.nan], [3, 11]):  # four answers have four tokens or more
        with pytest.raises(ValueError, match="tokens has shape"):
            made.observe([3, 5], correct=[1, 1], trials=[4, 4], tokens=tokens)
    made.observe([3, 5, 3], correct=[1, 2, 1], trials=[4, 8, 4], tokens=[11, 8, 13])
    state = made.state_dict()["state"]
    assert state["token_I"] == [0, 0, 0, 24, 0, 8, 0, 0, 0, 0]
    assert made.select(1) == [5]


def test_an_option_newer_than_a_saved_state_had_its_default(fresh):
    saved = fresh.state_dict()
    saved["options"] = {k: v for k, v in saved["options"].items() if k != "per"}
    fresh.load_state_dict(saved)
    with pytest.raises(ValueError, match=r"options.per: 'answer' there, 'token' here"):
        Selector(IDS, per="token").load_state_dict(saved)


def test_another_number_of_valid_answers_compiles_nothing():
    """Answers fail in almost every step: each would cost seconds, and memory that stays."""
    selector = Selector(IDS)

    def observe(failed):
        selector.observe(IDS[:8], correct=[1] * 8, trials=[8 - failed] + [8] * 7)

    observe(0)
    observe(0)  # the first had a state from elsewhere
    clock = timing.Clock()
    with clock("gen"):
        for failed in range(1, 8):
            observe(failed)
    assert clock.metrics(small.prompts(1), small.rollouts([1]))["perf/compilations"] == 0


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


def test_sec_needs_and_takes_categories():
    with pytest.raises(ValueError, match="category"):
        Selector(6, "sec")
    selector = Selector(6, "sec", arrays={"category": [0, 0, 0, 1, 1, 1]})
    observe_all(selector, selector.select(2))


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


@pytest.mark.parametrize(
    ("ids", "correct", "trials", "message"),
    [
        (["nobody"], [1], 8, "'nobody' is none of the 50 items"),
        (["item-1"], [9], 8, "'item-1': 9 right of 8 answers"),
        (["item-1"], [-1], 8, "right of 8"),
        (["item-1"], [float("nan")], 8, "right of 8"),
        (["item-1"], [1], 2.5, "1 right of 2.5 answers"),
        (["item-1", "item-2"], [1, 1], [8, None], "1 right of nan answers"),
        (["item-1"], [1], float("inf"), "1 right of inf answers"),
        (["item-1"], [1], ["eight"], "have to be numbers: .*eight"),
        (["item-1", "item-2"], [1], 8, "one of 2 ids"),
        (["item-1", "item-2"], [1, 1], [8, 8, 8], r"trials \(3,\): give one of 2 ids"),
    ],
)
def test_refuses_impossible_counts(fresh, ids, correct, trials, message):
    before = fresh.state_dict()
    with pytest.raises(ValueError, match=message):
        fresh.observe(ids, correct, trials)
    chex.assert_trees_all_equal(fresh.state_dict(), before)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (dict(items=IDS, seed=1), "seed: 0 there, 1 here"),
        (dict(items=IDS[::-1]), "ids: "),
        (dict(items=IDS[:9]), "items: 50 there, 9 here"),
        (dict(items=IDS, name="kalman"), "name: 'vade' there, 'kalman' here"),
        (dict(items=IDS, decay_rest=0.9), r"\(options.decay_rest: 0.999 there, 0.9 here\)"),
    ],
)
def test_refuses_the_state_of_another(fresh, tmp_path, other, message):
    fresh.save(tmp_path / "selector.npz")
    with pytest.raises(ValueError, match=message):
        Selector(**other).load(tmp_path / "selector.npz")


def test_refuses_the_state_of_other_arrays(tmp_path):
    made = lambda category: Selector(4, "pooled", arrays={"category": category})
    made([0, 0, 1, 1]).save(tmp_path / "selector.npz")
    made([0, 0, 1, 1]).load(tmp_path / "selector.npz")
    with pytest.raises(ValueError, match=r"arrays: \{'category': .* there"):
        made([0, 1, 2, 3]).load(tmp_path / "selector.npz")
    Selector(4, "bots").save(tmp_path / "bots.npz")
    rates = {"weak_rate": [0.1] * 4, "strong_rate": [0.9] * 4}
    with pytest.raises(ValueError, match=r"arrays: \{\} there, \{'strong_rate': "):
        Selector(4, "bots", arrays=rates).load(tmp_path / "bots.npz")


@pytest.mark.parametrize("name", ["vade", "arcus"])
def test_nothing_observed_is_no_step(name):
    made = Selector(9, name)
    made.observe([0, 1], [3, 8], 8)
    before = made.state_dict()["state"]
    made.observe([], [], 8)
    chex.assert_trees_all_equal(made.state_dict()["state"], before)


@pytest.mark.parametrize(
    ("name", "array"), [("strata", "pass_rate"), ("mmr1", "self_bleu"), ("bots", "weak_rate")]
)
@pytest.mark.parametrize("value", [75, "0.75", -0.1])
def test_rates_are_numbers_from_0_to_1(name, array, value):
    arrays = {"strata": ["category", "pass_rate"], "mmr1": ["pass_rate", "self_bleu"]}
    given = {x: [0.5, 0.5, 0.5] for x in arrays.get(name, ["weak_rate", "strong_rate"])}
    given[array] = [0.5, value, 0.5]
    with pytest.raises(ValueError, match=f"{array} of item . is .*: {name} wants numbers from 0"):
        Selector(3, name, arrays=given)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda saved: saved["state"].pop("alpha_I"), "alpha_I is missing there"),
        (lambda saved: saved.pop("state"), "alpha_I is missing there"),
        (
            lambda saved: saved["state"].update(alpha_I=np.zeros(5, np.float32)),
            r"alpha_I is float32\[5\] there",
        ),
        (lambda saved: saved["state"].update(alpha_I=[[0.0], []]), r"alpha_I is object\[0\] there"),
        (lambda saved: saved["state"].update(alpha_I=["a"] * 50), r"alpha_I is <U1\[50\] there"),
        (
            lambda saved: saved["state"].update(unseen_I=[0.5] * 50),
            r"unseen_I is float64.* bool\[50",
        ),
        (
            lambda saved: saved["state"].update(more=np.zeros(5, np.float32)),
            "more is not of this one",
        ),
    ],
)
def test_refuses_a_damaged_state_and_keeps_its_own(fresh, damage, message):
    before, saved = fresh.state_dict(), fresh.state_dict()
    damage(saved)
    with pytest.raises(ValueError, match=f"the saved selector is damaged: {message}"):
        fresh.load_state_dict(saved)
    chex.assert_trees_all_equal(fresh.state_dict()["state"], before["state"])


def test_refuses_a_broken_file(fresh, tmp_path):
    path = tmp_path / "selector.npz"
    fresh.save(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="not a saved selector"):
        fresh.load(path)
    np.save(tmp_path / "other.npy", np.arange(3))
    with pytest.raises(ValueError, match=r"other\.npy is not a saved selector"):
        fresh.load(tmp_path / "other.npy")
    with pytest.raises(FileNotFoundError):
        fresh.load(tmp_path / "none.npz")


def test_refuses_unknown_names_and_doubled_ids():
    for name in ("vado", "diva", "gdro"):
        with pytest.raises(ValueError, match=f"name='{name}'"):
            Selector(4, name)
    with pytest.raises(ValueError, match=r"vade has no option 'decay': it takes .*dec"):
        Selector(4, decay=0.9)
    with pytest.raises(ValueError, match="sec has no array 'level': it takes category"):
        Selector(4, "sec", arrays={"level": [1] * 4})
    for nothing in (0, -2, []):
        with pytest.raises(ValueError, match="there is nothing to select"):
            Selector(nothing)
    with pytest.raises(ValueError, match="a set, which has no order"):
        Selector({"a", "b"})
    with pytest.raises(ValueError, match="1 of 3 ids occur more than once"):
        Selector(["a", "b", "a"])
    with pytest.raises(ValueError, match="cannot choose 5 prompts of a data set of 4"):
        Selector(4).select(5)


def test_a_pass_that_it_cannot_make_is_refused():
    with pytest.raises(
        ValueError,
        match=r"a pass over all items, .*warmup=.none. of vade and observe answers to all",
    ):
        Selector(IDS, warmup="measured")


def test_what_the_selector_thinks_of_every_item_can_be_read():
    selector = Selector(["a", "b", "c"], seed=0, decay_selected=1.0, decay_rest=1.0)
    selector.observe(["b"], correct=[6], trials=8)
    found = selector.beliefs()
    np.testing.assert_allclose(found["posterior_mean"], [1 / 2, 7 / 10, 1 / 2], rtol=1e-6)
    np.testing.assert_array_equal(found["alpha"], [0, 6, 0])
    assert found["prob_mixed"].shape == (3,) and Selector(3, "uniform").beliefs() == {}
