"""Rounds of a step by hand: a selector that goes through the items in order, and scripted answers."""

import dataclasses
import types
from collections.abc import Callable

import jax
import numpy as np
import pytest

from tests.trainer import fakes, small
from vade_jax import samplers, settings
from vade_jax.rollout import fake
from vade_jax.samplers import base
from vade_jax.trainer import choosing, collect, loop, scoring, step_metrics
from vade_jax.trainer.progress import Progress
from vade_jax.types import Proposal, TrainState

B, G = 4, 2


class Engine(fake.FakeEngine):
    """Every second answer to the mixed items is right, none to the others."""

    def __init__(self, mixed):
        super().__init__({})
        self.mixed, self.keys, self.asked = set(map(str, mixed)), [], []

    def generate(self, prompts, num_rollouts_M, key, version, **kwargs):
        self.keys.append(key)
        self.asked.append([prompt.uid for prompt in prompts])
        self.pass_rate = {prompt.uid: 0.0 for prompt in prompts}
        on_group = kwargs.pop("on_group")
        made = super().generate(prompts, num_rollouts_M, key, version, **kwargs)
        mixed_N = np.array([prompts[m].uid in self.mixed for m in made.group_N])
        made.token_NT[:, 0] = mixed_N & (np.arange(len(mixed_N)) % 2 == 0)
        for m in range(len(prompts)):
            on_group(m, list(made.token_NT[made.group_N == m]))
        return made


class InOrder:
    """The least visited items first, by their number; `counts=False` never moves on."""

    def __init__(self, num_items, counts=True):
        self.num_items, self.counts, self.asked = num_items, counts, []
        self.selector = samplers.Sampler(
            self.init, self.propose, base.keep_mixed, self.update, self.believe
        )

    def init(self):
        return np.zeros(self.num_items, int)

    def propose(self, state, key, num_prompts):
        self.asked.append(num_prompts)
        index_M = np.argsort(state, kind="stable")[:num_prompts].astype(np.int32)
        return Proposal(index_M=index_M, num_rollouts_M=np.full(len(index_M), G))

    def believe(self, state, proposal):
        return {"visited": np.full(len(proposal.index_M), state.sum())}

    def update(self, state, feedback):
        return state + self.counts * np.isin(np.arange(len(state)), feedback.index_M)


class Learner:
    def __init__(self):
        self.given = []

    def __call__(self, state, prompts, rollouts, advantage_N):
        valid_M = rollouts.valid_N.reshape(-1, G).all(1)
        uids = [prompt.uid for prompt in prompts]
        self.given.append(list(zip(uids, valid_M.tolist(), strict=True)))
        assert len(rollouts.token_NT) == len(advantage_N) == G * len(prompts)
        np.testing.assert_array_equal(rollouts.group_N, np.repeat(range(len(prompts)), G))
        right_N = rollouts.token_NT[:, 0] == fake.RIGHT
        np.testing.assert_allclose(
            advantage_N[rollouts.valid_N],
            np.where(right_N, 1, -1)[rollouts.valid_N] / np.sqrt(2),
            rtol=1e-5,
        )
        return state.replace(step=state.step + 1), {"actor/loss": 0.0}


@dataclasses.dataclass
class Run:
    engine: Engine
    order: InOrder
    learner: Learner
    recorder: fakes.Recorder
    progress: Progress | None = None
    score: Callable = fakes.score

    def __call__(self, num_steps=1, max_rollouts=0, state=None, **refill):
        state = state or TrainState(params={}, opt_state=(), step=0)
        first = Progress(state, self.order.init(), np.zeros(self.order.num_items, np.int32))
        self.progress = loop.Loop(
            selector=self.order.selector,
            pool=choosing.Pool(fakes.items(self.order.num_items), fakes.build_prompt),
            engine=self.engine,
            score=self.score,
            key=jax.random.key(3),
            num_prompts=B,
            num_steps=num_steps,
            refill=settings.Refill(**refill),
            learn=self.learner,
            validate=[lambda engine, key, version, known: ({"val": version}, known)],
            recorder=self.recorder,
            eval_every=100,
            max_rollouts=max_rollouts,
        ).run(self.progress or first)
        return self


def make(mixed, num_items=24, counts=True):
    return Run(Engine(mixed), InOrder(num_items, counts), Learner(), fakes.Recorder())


def counted(run, step=1):
    names = ("rounds", "generated_groups", "kept_groups", "surplus_groups")
    return [run.recorder.metrics[step][f"vade/{name}"] for name in names]


# ------------------------------------------------------------------------------ filling up
@pytest.mark.parametrize(
    ("mixed", "learned", "counts"),
    [
        ([0, 1, 2, 3, 9], "0 1 2 3", [1, 4, 4, 0]),
        ([0, 2, 5, 6, 7], "0 2 5 6", [2, 8, 5, 1]),
        ([1, 5, 9, 10], "1 5 9 10", [3, 12, 4, 0]),
    ],
)
@pytest.mark.parametrize("max_rounds", [0, 3])
def test_a_batch_is_filled_with_the_first_kept_groups(mixed, learned, counts, max_rounds):
    run = make(mixed)(max_rounds=max_rounds)
    assert run.learner.given == [[(uid, True) for uid in learned.split()]]
    assert counted(run) == counts
    found = run.recorder.metrics[1]
    assert found["vade/trained_effective_ratio"] == 1
    assert found["vade/trained_effective_ratio_correct"] == 1
    assert found["vade/effective_ratio"] == counts[2] / counts[1]
    assert found["vade/rollouts_total"] == counts[1] * G
    assert found["vade/tokens_total"] == counts[1] * G * 2
    assert found["vade/unique_selected"] == counts[1]
    assert found["vade/skipped_updates"] == 0


def test_one_round_leaves_the_dropped_groups_in_their_places():
    run = make([1, 3])()
    expected = [("0", False), ("1", True), ("2", False), ("3", True)]
    assert run.learner.given == [expected]
    assert counted(run) == [1, 4, 2, 0]
    assert run.recorder.metrics[1]["vade/trained_effective_ratio_correct"] == 0.5


def test_at_the_cap_fewer_are_trained_on():
    run = make([1, 5, 11])(max_rounds=2)
    expected = [("0", False), ("1", True), ("2", False), ("5", True)]
    assert run.learner.given == [expected]
    assert counted(run) == [2, 8, 2, 0]


def test_a_group_that_only_fills_its_place_is_not_one_that_teaches():
    """Every group's rewards differ; the selector keeps two of four."""
    run = make(range(4))
    keep = lambda state, feedback: feedback.index_M % 2 == 0
    run.order.selector = run.order.selector._replace(keep=keep)
    metrics = run(max_rounds=1).recorder.metrics[1]
    assert run.recorder.data[1].learned_M.tolist() == [0, 1, 2, 3]
    assert metrics["vade/trained_effective_ratio"] == 2 / 4
    assert metrics["vade/trained_effective_ratio_correct"] == 2 / 4
    assert metrics["vade/effective_ratio"] == 1


def test_a_forecast_is_the_mean_over_prompts_and_not_over_rounds():
    """The second round asks for the one prompt that is missing."""
    run = make([0, 1, 2, 4])
    believe = lambda state, proposal: {
        "mine/size": np.full(len(proposal.index_M), len(proposal.index_M))
    }
    run.order.selector = run.order.selector._replace(believe=believe)
    metrics = run(max_rounds=2, ask="missing").recorder.metrics[1]
    assert metrics["vade/generated_groups"] == 5
    assert metrics["mine/size"] == pytest.approx((4 * 4 + 1 * 1) / 5)


def test_a_forecast_that_one_round_does_not_have_is_that_of_the_others():
    run = make([0, 1, 2, 4])
    believe = lambda state, proposal: {
        "mine/size": np.full(len(proposal.index_M), np.nan if len(proposal.index_M) == 1 else 7.0)
    }
    run.order.selector = run.order.selector._replace(believe=believe)
    assert run(max_rounds=2, ask="missing").recorder.metrics[1]["mine/size"] == 7


def test_how_far_the_posterior_is_off_counts_prompts_with_answers():
    """Expected .5 of each prompt; right are all, none and one of four answers, and one has no answer."""
    feedback = types.SimpleNamespace(
        successes_M=np.array([4.0, 0, 1, 0]), trials_M=np.array([4.0, 4, 4, 0])
    )
    found = step_metrics._error([0.5] * 4, feedback)
    assert found == pytest.approx((0.5 + 0.5 + 0.25) / 3)


def test_the_log_has_every_round_with_the_belief_before_it():
    data = make([0, 5])(max_rounds=2).recorder.data[1]
    assert data.round_M.tolist() == [1] * 4 + [2] * 4
    assert data.belief["visited"].tolist() == [0] * 4 + [4] * 4
    assert data.keep_M.tolist() == [i in (0, 5) for i in range(8)]
    assert data.rollouts.group_N.tolist() == np.repeat(range(8), G).tolist()
    assert data.feedback.index_M.tolist() == list(range(8))


# ------------------------------------------------------------------------------ how many
def test_what_is_missing_is_asked_for():
    run = make([1, 3, 4, 7])(max_rounds=4, ask="missing")
    assert run.engine.asked == [list("0123"), list("45"), list("6"), list("7")]
    assert run.learner.given == [[(uid, True) for uid in "1347"]]


def missing(num_prompts, refill, kept, generated):
    """After one round."""
    return collect.num_missing([np.arange(generated) < kept], num_prompts, refill)


@pytest.mark.parametrize(
    ("kept", "generated", "size"),
    [
        (256, 512, 512),  # 256 / .5 x 1.25 = 640
        (400, 512, 179),  # 112 / .78125 x 1.25 = 179.2
        (500, 512, 64),  # 15
        (0, 512, 512),
        (500, 1024, 64),  # 12 / .488 x 1.25 = 30
    ],
)
def test_the_estimate_by_hand(kept, generated, size):
    refill = settings.Refill(max_rounds=3, ask="estimate")
    assert missing(512, refill, kept, generated) == size
    assert missing(8, refill, 1, 8) == 8  # a small batch has no least


# ------------------------------------------------------------------------------ nothing kept
def test_without_anything_to_learn_the_run_goes_on_and_counts():
    run = make([])(num_steps=5, max_rounds=3)
    assert run.learner.given == [] and run.progress.state.step == 0
    assert run.progress.step == run.progress.skipped_updates == 5
    found = run.recorder.metrics
    assert [found[step]["vade/skipped_updates"] for step in range(6)] == list(range(6))
    assert not any(name.startswith("actor/") for x in found.values() for name in x)
    assert found[5]["vade/rollouts_total"] == 5 * 3 * B * G
    assert run.engine.version == 5


def test_uniform_groups_alone_without_a_cap_skip_the_update():
    """24 items are six rounds: then the step ends (verl#991, verl#7401)."""
    run = make([])(num_steps=2, max_rounds=0)
    assert len(run.engine.asked) == 2 * 6 and run.learner.given == []
    assert run.recorder.metrics[2]["vade/skipped_updates"] == 2


def test_skipped_updates_are_counted_on_after_a_stop():
    run = make([12])(num_steps=2, max_rounds=1)(num_steps=4, max_rounds=1)
    assert run.progress.skipped_updates == 3 and len(run.learner.given) == 1


# ------------------------------------------------------------------------------ a budget
def test_a_budget_ends_the_run_behind_the_step_that_reaches_it():
    """Two rounds of 4 prompts, 2 answers each, a step: 16 answers, so 33 take three steps."""
    mixed = [i for i in range(48) if i % 8 in (0, 1, 4, 5)]
    run = make(mixed, num_items=48)(num_steps=9, max_rollouts=33, max_rounds=0)
    assert [run.recorder.metrics[s]["vade/rollouts_total"] for s in (1, 2, 3)] == [16, 32, 48]
    assert run.recorder.saved == [(1, False), (2, False), (3, True)]
    assert run.recorder.metrics[3]["val"] == 3  # validated at the end, whatever eval_every says
    run(num_steps=9, max_rollouts=48)  # nothing is left of it
    assert run.progress.step == 3
    assert run(num_steps=9, max_rollouts=49, max_rounds=0).progress.step == 4


def test_one_prompt_that_has_no_verdict_in_a_refill_is_dropped_and_counted():
    """Of items 0 to 3 the last is not mixed; 4, asked in its place, gets no verdict."""
    run = make([0, 1, 2, 4])

    def score(item, answers):
        lost = {"reward": np.nan} if item.uid == "4" else {}
        return [dataclasses.replace(one, **lost) for one in fakes.score.score(item, answers)]

    run.score = scoring.Scorer(score)
    run(max_rounds=2, ask="missing")
    assert run.engine.asked == [list("0123"), ["4"]]
    assert run.learner.given == [[("0", True), ("1", True), ("2", True), ("3", False)]]
    assert run.recorder.metrics[1]["reward/unknown"] == G


# ------------------------------------------------------------------------------ no prompt twice
def test_a_selector_that_stands_still_gets_other_items_in_its_order():
    """It is asked for 4, then, with those used, for 8; then for 4 and 12."""
    run = make([0, 5, 11], counts=False)(max_rounds=3)
    assert run.engine.asked == [list("0123"), list("4567"), ["8", "9", "10", "11"]]
    assert run.order.asked == [4, 4, 8, 4, 12]


def test_a_small_data_set_ends_the_step():
    """6 items: the second round has 2, a third none."""
    run = make([5], num_items=6, counts=False)(max_rounds=9)
    assert run.engine.asked == [list("0123"), list("45")]
    assert counted(run) == [2, 6, 1, 0]


def test_uniform_goes_on_through_its_shuffled_pass():
    """After every round no item is more than one visit ahead; in a step each comes once."""
    rates = {str(i): i % 2 * 0.5 for i in range(50)}
    run = make([], num_items=50)
    run.engine = fake.FakeEngine(rates)
    selector = samplers.SAMPLERS["dapo"](num_rollouts=G)
    run.order.selector, run.order.init = selector, lambda: selector.init(50)
    run.learner = lambda state, *_: (state, {"actor/loss": 0.0})
    run(num_steps=30, max_rounds=5)
    visits_I, several = np.zeros(50, int), 0
    for step in range(1, 31):
        data = run.recorder.data[step]
        several += data.round_M[-1] > 2
        for one in fakes.rounds(data):
            np.add.at(visits_I, one.index_M, 1)
            assert np.ptp(visits_I) <= 1
        assert len(set(data.feedback.index_M.tolist())) == len(data.keep_M)
    assert several > 10 and visits_I.min() > 4
    np.testing.assert_array_equal(run.progress.posterior.visits_I, visits_I)


# ------------------------------------------------------------------------------ keys, resuming
def test_the_first_round_draws_what_a_step_of_one_round_draws():
    key = jax.random.split(jax.random.fold_in(jax.random.key(3), 1), 3)[1]
    one, three = make([1])(), make([1])(max_rounds=3)
    expected = [key, *(jax.random.fold_in(key, 2**20 + number) for number in (1, 2))]
    data = lambda keys: [jax.random.key_data(k).tolist() for k in keys]
    assert data(one.engine.keys) == data(expected[:1])
    assert data(three.engine.keys) == data(expected)


def test_a_resumed_run_has_the_same_rounds():
    mixed = [0, 5, 6, 9, 13, 14, 15, 18, 21, 22]
    whole, parts = make(mixed)(4, max_rounds=3), make(mixed)(2, max_rounds=3)
    parts(4, max_rounds=3)
    assert whole.engine.asked == parts.engine.asked
    assert whole.learner.given == parts.learner.given


def test_the_shapes_of_the_learner_and_of_the_selector_are_few():
    selector = samplers.SAMPLERS["dapo"](num_rollouts=G)
    run = make([], num_items=64)
    run.engine = fake.FakeEngine({str(i): i % 3 * 0.25 for i in range(64)})
    run.order.selector, run.order.init = selector, lambda: selector.init(64)
    run.learner = Given()
    run(num_steps=4, max_rounds=4)
    functions = selector.keep, selector.update
    sizes = [f._cache_size() for f in functions]
    run(num_steps=24, max_rounds=4)
    assert [f._cache_size() for f in functions] == sizes
    assert selector.propose._cache_size() <= 4
    assert set(run.learner.shapes) == {(B, B * G)}


class Given:
    def __init__(self):
        self.shapes = []

    def __call__(self, state, prompts, rollouts, advantage_N):
        self.shapes.append((len(prompts), len(rollouts.length_N)))
        return state, {"actor/loss": 0.0}


# ------------------------------------------------------------------------------ flat answers
def test_dropped_groups_become_invalid_and_nothing_else_changes():
    rollouts = small.rollouts([2, 1, 3])
    kept = collect.drop(rollouts, np.array([True, False, True]))
    assert kept.valid_N.tolist() == [True, True, False, True, True, True]
    assert kept.token_NT is rollouts.token_NT and rollouts.valid_N.all()


def test_groups_are_taken_in_any_order_and_more_than_once():
    rollouts = small.rollouts([2, 1, 3])
    taken, order_N = collect.take(rollouts, np.array([2, 0, 2]))
    assert order_N.tolist() == [3, 4, 5, 0, 1, 3, 4, 5]
    assert taken.group_N.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert taken.group_N.dtype == np.int32
    np.testing.assert_array_equal(taken.token_NT, rollouts.token_NT[order_N])
    np.testing.assert_array_equal(taken.length_N, rollouts.length_N[order_N])
    assert taken.params_version == 0


def test_all_of_them_in_order_are_the_same():
    rollouts = small.rollouts([2, 1, 3])
    taken, _ = collect.take(rollouts, np.arange(3))
    for name in rollouts:
        np.testing.assert_array_equal(taken[name], rollouts[name], err_msg=name)
        assert taken[name].dtype == rollouts[name].dtype


def test_parts_are_joined_and_their_groups_counted_on():
    """A group without answers, the last of the first part, counts too."""
    a, b = small.rollouts([2, 1]), small.rollouts([3, 1], seed=1)
    whole = collect.join([a, b], [3, 2])
    assert whole.group_N.tolist() == [0, 0, 1, 3, 3, 3, 4]
    expected_NT = np.concatenate([a.token_NT, b.token_NT])
    np.testing.assert_array_equal(whole.token_NT, expected_NT)
    assert whole.params_version == 0
    alone = collect.join([a], [2])
    for name in a:
        np.testing.assert_array_equal(alone[name], a[name], err_msg=name)
        assert alone[name].dtype == a[name].dtype
