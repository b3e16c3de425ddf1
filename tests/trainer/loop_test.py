"""Algorithm 1 with a fake engine of known pass rates, in under a second of steps."""

import dataclasses
import threading
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer import fakes
from vade_jax import samplers
from vade_jax.data.columns import RejectedItem
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout import fake
from vade_jax.rollout.engine import EngineFailure
from vade_jax.settings import Measure, Refill
from vade_jax.trainer import choosing, loop, scoring
from vade_jax.trainer.progress import Progress
from vade_jax.types import TrainState

NUM_ITEMS, B = 200, 16
RATES = np.concatenate([np.zeros(80), np.ones(80), np.linspace(0.2, 0.8, 40)])
PASS_RATE = dict(zip(map(str, range(NUM_ITEMS)), RATES, strict=True))


def learn(state, prompts, rollouts, advantage_N):
    return state.replace(step=state.step + 1), {"actor/loss": float(state.step)}


def run(
    name,
    num_steps,
    *,
    progress=None,
    learn=learn,
    engine=None,
    recorder=None,
    selector=None,
    refill=None,
    score=fakes.score,
    num_prompts=B,
    eval_every=4,
    lag=0,
    measure=Measure(),  # noqa: B008 (frozen)
    advantage=scoring.usual_advantage,
    validate=lambda engine, key, version, known: (
        {"val/x/acc/mean@4": float(version)},
        known | {str(version)},
    ),
    **options,
):
    selector = selector or samplers.SAMPLERS[name](**options)
    recorder = recorder or fakes.Recorder()
    state = TrainState(params={}, opt_state=(), step=jnp.int32(0))
    progress = progress or Progress(state, selector.init(NUM_ITEMS), np.zeros(NUM_ITEMS, np.int32))
    progress = loop.Loop(
        selector=selector,
        pool=choosing.Pool(fakes.items(NUM_ITEMS), fakes.build_prompt),
        engine=engine or fake.FakeEngine(PASS_RATE),
        score=score,
        key=jax.random.key(0),
        num_prompts=num_prompts,
        num_steps=num_steps,
        refill=refill or Refill(),
        measure=measure,
        lag=lag,
        advantage=advantage,
        learn=learn,
        validate=[validate],
        recorder=recorder,
        eval_every=eval_every,
    ).run(progress)
    return progress, recorder


@pytest.mark.parametrize(("eval_every", "steps"), [(4, [0, 4, 6]), (0, [6])])
def test_the_policy_is_validated_when_it_is_due_and_at_the_end(eval_every, steps):
    seen = []

    def validate(engine, key, version, known):
        seen.append(version)
        return {}, known

    run("uniform", 6, validate=validate, eval_every=eval_every)
    assert seen == steps


def ratio(recorder, first):
    return np.mean(
        [
            metrics["vade/effective_ratio"]
            for step, metrics in recorder.metrics.items()
            if step >= first
        ]
    )


def test_vade_finds_the_items_that_teach():
    """40 of 200 items are mixed: uniform sees them a fifth of the time."""
    _, vade = run("vade", 60, warmup="full")
    _, uniform = run("uniform", 60)
    assert 0.12 < ratio(uniform, 20) < 0.28
    assert ratio(vade, 20) > 2 * ratio(uniform, 20)


def test_predicted_ratio_follows_the_observed_one():
    _, recorder = run("vade", 60, warmup="full")
    gap = [
        metrics["vade/predicted_effective_ratio"] - metrics["vade/effective_ratio"]
        for step, metrics in recorder.metrics.items()
        if step > 20
    ]
    assert abs(np.mean(gap)) < 0.2


def test_the_prediction_is_of_all_rounds_each_by_the_state_that_proposed():
    selector = samplers.SAMPLERS["dapo"](base="vade")
    _, recorder = run("dapo", 6, refill=Refill(max_rounds=3), selector=selector)
    for step in range(2, 7):
        rounds = list(fakes.rounds(recorder.data[step]))
        first, second = rounds[:2]
        state = recorder.progress[step - 2].posterior
        for number, one in enumerate((first, second)):
            old_M = state.alpha_I[one.index_M]
            np.testing.assert_allclose(one.belief["alpha"], 0.999**number * old_M, rtol=1e-6)
        expected = np.concatenate([x.belief["prob_mixed"] for x in rounds])
        found = recorder.metrics[step]["vade/predicted_effective_ratio"]
        np.testing.assert_allclose(found, expected.mean(), rtol=1e-5)


def trained(recorder, steps):
    found = [recorder.metrics[s]["vade/trained_effective_ratio"] for s in steps]
    return np.mean(found)


def test_dapo_fills_the_batch_at_up_to_three_times_the_rollouts():
    """A fifth of the items are mixed: three rounds of 16 bring about 9 of them."""
    refill = Refill(max_rounds=3)
    _, uniform = run("dapo", 20, refill=refill)
    assert 0.4 < trained(uniform, range(1, 21)) < 0.8
    assert uniform.metrics[20]["vade/rollouts_total"] <= 20 * 3 * B * 8
    _, vade = run("dapo", 40, refill=refill, base="vade")
    assert trained(vade, range(20, 41)) > 0.9


def test_vcrl_fills_the_step_from_its_bank():
    _, recorder = run("vcrl", 12, refill=Refill(max_rounds=2, ask="missing"))
    num_replayed = 0
    for step in range(2, 13):
        first, second = fakes.rounds(recorder.data[step])
        assert len(second.index_M) == B - first.keep_M.sum()
        before = recorder.progress[step - 2].posterior
        bank = np.flatnonzero(np.isfinite(before.priority_I))
        there = set(bank.tolist()) - set(first.index_M.tolist())
        again_M = np.isin(second.index_M, list(there))
        assert again_M.sum() >= min(len(there), len(second.index_M))
        assert second.keep_M[again_M].all()
        num_replayed += again_M.sum()
    assert num_replayed > 10


def test_validates_before_the_first_step_every_fourth_and_at_the_end():
    _, recorder = run("uniform", 6)
    validated = [s for s, m in recorder.metrics.items() if "val/x/acc/mean@4" in m]
    assert validated == [0, 4, 6]
    assert recorder.saved == [(s, s == 6) for s in range(1, 7)]
    assert recorder.metrics[6]["vade/rollouts_total"] == 6 * B * 8


REFILLS = {
    "vade": Refill(),
    "uniform": Refill(),
    "dapo": Refill(max_rounds=3),
    "greso": Refill(max_rounds=3, ask="estimate"),
    "vcrl": Refill(max_rounds=2, ask="missing"),
}


@pytest.mark.parametrize("name", REFILLS)
def test_two_runs_of_two_steps_equal_four(name):
    refill = REFILLS[name]
    whole, _ = run(name, 4, refill=refill)
    half, _ = run(name, 2, refill=refill)
    resumed, _ = run(name, 4, progress=half, refill=refill)
    assert (whole.step, whole.rollouts_total) == (resumed.step, resumed.rollouts_total)
    chex.assert_trees_all_equal(whole.posterior, resumed.posterior)
    chex.assert_trees_all_equal(whole.state, resumed.state)


def test_a_loss_that_is_not_a_number_stops_the_run_and_names_the_step():
    def diverge(state, prompts, rollouts, advantage_N):
        loss = np.nan if state.step == 2 else 0.0
        return state.replace(step=state.step + 1), {"actor/loss": loss}

    recorder = fakes.Recorder()
    with pytest.raises(scoring.NotFinite, match=r"step 3: .*actor/loss.*nan"):
        run("uniform", 5, learn=diverge, recorder=recorder)
    assert np.isnan(recorder.metrics[3]["actor/loss"])  # beside the answers that it was of
    assert len(recorder.data[3].prompts) == B
    assert max(step for step, _ in recorder.saved) == 2


def test_a_step_whose_answers_are_all_masked_is_counted_as_skipped():
    """The learner has no metrics then, as where `loss.mask_cut_off` leaves no answer."""
    masked = lambda state, *_: (state, {})
    progress, recorder = run("vade", 3, learn=masked)
    assert [recorder.metrics[t]["vade/skipped_updates"] for t in range(4)] == [0, 1, 2, 3]
    progress, _ = run("vade", 3)
    assert progress.skipped_updates == 0


def test_the_log_has_what_was_believed_before_the_answers():
    _, recorder = run("vade", 3, warmup="none")
    (first,) = fakes.rounds(recorder.data[1])
    assert np.all(first.belief["alpha"] == 0)
    assert len(set(first.index_M.tolist())) == B


def test_the_next_prompts_are_chosen_while_the_policy_learns():
    """The learner of step 1 waits until the selector has been asked for step 2."""
    asked = threading.Event()
    selector = samplers.SAMPLERS["uniform"]()

    def propose(state, key, num_prompts):
        if int(np.sum(state.visits_I)) == B:  # after step 1
            asked.set()
        return selector.propose(state, key, num_prompts)

    def learn_late(state, *args):
        assert asked.wait(10)
        return learn(state, *args)

    slow = selector._replace(propose=propose)
    run("uniform", 2, learn=learn_late, selector=slow)


class FailingEngine(fake.FakeEngine):
    """Stops working at a version of the weights, in `generate` or in `sync`."""

    def __init__(self, version, method):
        super().__init__(PASS_RATE)
        self.failure = version, method

    def generate(self, prompts, num_rollouts_M, key, version, *args, **kwargs):
        self.check("generate", version)
        return super().generate(prompts, num_rollouts_M, key, version, *args, **kwargs)

    def sync(self, params, version):
        self.check("sync", version)
        super().sync(params, version)

    def check(self, method, version):
        if self.failure == (version, method):
            raise EngineFailure("the server is gone")


@pytest.mark.parametrize("method", ["generate", "sync"])
def test_a_failing_engine_loses_no_step(method):
    """Steps 1 to 3 are recorded and the third is saved as the last one."""
    recorder = fakes.Recorder()
    with pytest.raises(EngineFailure, match="the server is gone"):
        run("uniform", 6, engine=FailingEngine(3, method), recorder=recorder)
    assert sorted(recorder.metrics) == [0, 1, 2, 3]
    assert recorder.metrics[3]["vade/rollouts_total"] == 3 * B * 8
    assert recorder.metrics[3]["timing_s/step"] > 0
    assert recorder.saved[-1] == (3, True)


@pytest.mark.parametrize("error", [OSError("gone"), RejectedItem("0", "bad_image", "gone")])
def test_a_picture_that_is_gone_loses_no_step(error):
    class Gone(FailingEngine):
        def check(self, method, version):
            if self.failure == (version, method):
                raise error

    recorder = fakes.Recorder()
    with pytest.raises(type(error), match="gone"):
        run("uniform", 6, engine=Gone(3, "generate"), recorder=recorder)
    assert recorder.saved[-1] == (3, True)


def test_what_the_engine_counts_stands_in_the_line_of_the_step_that_it_is_of():
    """Two calls a step, generate and sync; before step 1 one sync. Step 3's sync is its last."""

    class Counting(FailingEngine):
        count = 0

        def check(self, method, version):
            self.count += 1
            super().check(method, version)

        def metrics(self):
            found, self.count = {"rollout/calls": self.count}, 0
            return found

    recorder = fakes.Recorder()
    with pytest.raises(EngineFailure):
        run("uniform", 6, engine=Counting(3, "sync"), recorder=recorder)
    assert [recorder.metrics[step]["rollout/calls"] for step in range(4)] == [1, 2, 2, 2]


def test_the_time_of_saving_is_in_the_line_of_the_next_step():
    class Slow(fakes.Recorder):
        def save(self, progress, *, last):
            super().save(progress, last=last)
            time.sleep(0.05)

    recorder = Slow()
    run("uniform", 2, recorder=recorder)
    assert "timing_s/save_checkpoint" not in recorder.metrics[1]
    found = recorder.metrics[2]
    assert 0.05 <= found["timing_s/save_checkpoint"] < found["timing_s/step"]


def test_behind_a_failing_engine_no_group_is_scored():
    """All 16 groups are there, the first is being scored, when the engine fails."""
    judged, failed, before = [], threading.Event(), set(threading.enumerate())

    class Lost(fake.FakeEngine):
        def generate(self, *args, **kwargs):
            super().generate(*args, **kwargs)
            raise EngineFailure("the server is gone")

    def score(item, answers):
        judged.append(item.uid)
        assert failed.wait(10)
        return fakes.score.score(item, answers)

    with pytest.raises(EngineFailure, match="the server is gone"):
        run("uniform", 2, engine=Lost(PASS_RATE), score=scoring.Scorer(score))
    failed.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert len(judged) <= 1


@pytest.mark.parametrize("step", [4, 6])
def test_a_validation_that_failed_is_made_up(step):
    """Step 4 is due as a fourth one, step 6 as the last: the metrics are those of a quiet run."""
    failures = [step]

    def validate(engine, key, version, known):
        if version in failures:
            raise EngineFailure("the server is gone")
        found = {"val/x/acc/mean@4": float(jax.random.uniform(key)), "val/known": len(known)}
        return found, known | {str(version)}

    broken, quiet = fakes.Recorder(), fakes.Recorder()
    with pytest.raises(EngineFailure, match="the server is gone"):
        run("vade", 6, validate=validate, recorder=broken)
    (before,) = (one for one in broken.progress if one.step == step)
    assert before.validated < step and broken.saved[-1] == (step, True)
    failures.clear()
    resumed, _ = run("vade", 6, validate=validate, recorder=broken, progress=before)
    whole, _ = run("vade", 6, validate=validate, recorder=quiet)
    assert (resumed.validated, resumed.known) == (whole.validated, whole.known) == (6, set("046"))
    assert without_times(broken.metrics) == without_times(quiet.metrics)


def without_times(metrics):
    times = ("timing", "perf/")
    return {
        step: {k: v for k, v in found.items() if not k.startswith(times)}
        for step, found in metrics.items()
    }


def test_what_was_validated_is_not_validated_again():
    versions = []

    def validate(engine, key, version, known):
        versions.append(version)
        return {}, known

    half, _ = run("uniform", 4, validate=validate)
    run("uniform", 4, validate=validate, progress=half)
    longer, _ = run("uniform", 5, validate=validate, progress=half)
    assert versions == [0, 4, 5] and longer.validated == 5


def test_a_failing_reward_function_loses_no_step():
    """Each step has 16 groups, so the 41st is of step 3: the run is saved after step 2."""
    calls = []

    def score(item, answers):
        calls.append(item)
        if len(calls) == 41:
            raise RewardFailure("mine.py:f: KeyError")
        return fakes.score.score(item, answers)

    recorder = fakes.Recorder()
    with pytest.raises(RewardFailure, match=r"mine.py:f: KeyError"):
        run("uniform", 6, score=scoring.Scorer(score), recorder=recorder)
    assert sorted(recorder.metrics) == [0, 1, 2]
    assert recorder.saved[-1] == (2, True)


def test_answers_without_a_verdict_are_neither_counted_nor_trained_on():
    """Of each item's 8 answers the first has no verdict."""
    learned, counts = [], iter(range(100))

    def score(item, answers):
        first, *others = fakes.score.score(item, answers)
        return [dataclasses.replace(first, reward=np.nan, correct=np.nan), *others]

    def learn_some(state, prompts, rollouts, advantage_N):
        learned.append((rollouts.valid_N, advantage_N))
        return learn(state, prompts, rollouts, advantage_N)

    scorer = scoring.Scorer(score, num_threads=3, metrics=lambda: {"reward/f/calls": next(counts)})
    _, recorder = run("mopps", 2, score=scorer, learn=learn_some, decay=1.0)
    for valid_N, advantage_N in learned:
        np.testing.assert_array_equal(valid_N, np.arange(8 * B) % 8 > 0)
        assert np.isfinite(advantage_N).all() and not advantage_N[::8].any()
    assert recorder.metrics[2]["reward/unknown"] == B
    for step in range(3):  # asked once a step, and once for what was before
        assert recorder.metrics[step]["reward/f/calls"] == step
    assert (recorder.data[1].feedback.trials_M == 7).all()


def test_a_step_without_any_verdict_stops_the_run():
    def score(item, answers):
        return [scoring.Scored("", None, np.nan, np.nan, "no_verdict") for _ in answers]

    with pytest.raises(RewardFailure, match=r"no verdict on any of 128 answers .*no_verdict"):
        run("uniform", 2, score=scoring.Scorer(score))


def test_a_step_of_one_prompt_without_a_verdict_loses_no_step_before_it():
    def score(item, answers):
        is_first = not recorder.metrics.keys() - {0}
        return [
            dataclasses.replace(one, reward=one.reward if is_first else np.nan)
            for one in fakes.score.score(item, answers)
        ]

    recorder = fakes.Recorder()
    with pytest.raises(RewardFailure, match=r"^step 2: of all its answers none came"):
        run("uniform", 6, score=scoring.Scorer(score), recorder=recorder, num_prompts=1)
    assert recorder.saved[-1] == (1, True)


def test_answers_of_other_weights_are_an_error():
    class Stale(fake.FakeEngine):
        def generate(self, *args, **kwargs):
            rollouts = super().generate(*args, **kwargs)
            return rollouts.replace(params_version=np.int32(0))

    with pytest.raises(EngineFailure, match="weights 0 instead of 1"):
        run("uniform", 3, engine=Stale(PASS_RATE))


def test_coverage_is_of_the_last_epochs_steps():
    """10 items, 4 a step: an epoch is 3 steps."""
    visited_I = np.array([1, 2, 3, 4, 4, 0, 0, 0, 0, 0])
    metrics = Progress(None, None, visited_I, step=4, visits=16).metrics()
    assert (metrics["vade/epochs"], metrics["vade/coverage"]) == (1.6, 0.4)
    assert metrics["vade/unique_selected"] == 5


def test_epochs_count_items_and_not_the_places_that_variants_take():
    """10 problems, 4 places a step, a problem and a variant each: an epoch is 5 steps of two."""
    visited_I = np.array([1, 1, 2, 2, 3, 3, 4, 4, 0, 0])
    metrics = Progress(None, None, visited_I, step=4, visits=8).metrics()
    assert (metrics["vade/epochs"], metrics["vade/coverage"]) == (0.8, 0.8)


def test_epochs_count_the_items_of_every_round():
    progress, recorder = run("dapo", 6, refill=Refill(max_rounds=3))
    groups = [recorder.metrics[step]["vade/generated_groups"] for step in range(1, 7)]
    assert sum(groups) > 6 * B
    assert progress.visits == sum(groups)
    assert recorder.metrics[6]["vade/epochs"] == sum(groups) / NUM_ITEMS


def test_one_pass_of_diva_over_its_problems_is_an_epoch():
    """The built-in engine has no variants: each place shows the problem itself."""
    num_steps = NUM_ITEMS * 4 // B
    progress, recorder = run("diva", num_steps, num_variants=3)
    assert (progress.visited_I > 0).all()
    last = recorder.metrics[num_steps]
    assert (last["vade/epochs"], last["vade/coverage"]) == (1.0, 1.0)


def test_what_was_never_visited_is_not_covered_before_an_epoch_is_over():
    progress = Progress(None, None, np.array([0, 1, 1, 0]), step=1, visits=2)
    assert progress.metrics()["vade/coverage"] == 0.5
