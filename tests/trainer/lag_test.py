"""Batches that are made before the policy has learned from those before them."""

import dataclasses
import json
import threading

import numpy as np
import pytest

from tests.samplers import contract_test
from tests.trainer import fakes
from vade_jax import samplers
from vade_jax.rollout.engine import EngineFailure
from vade_jax.settings import Refill
from vade_jax.trainer.collect import StepData

NUM_ITEMS, B, STEPS = 60, 8, 6
PASS_RATE = fakes.pass_rates(np.linspace(0, 1, NUM_ITEMS))


def engine(version=0, **options):
    return fakes.Engine(PASS_RATE, version=version, **options)


def make(lag=1, name="vade", *, progress=None, **options):
    options = {"engine": engine(), "eval_every": 0} | options
    selector = samplers.SAMPLERS[name](**{"warmup": "none"} if name == "vade" else {})
    if progress is None:
        arrays = contract_test.ARRAYS.get(name, lambda _: {})(NUM_ITEMS)
        progress = fakes.start(selector.init(NUM_ITEMS, **arrays), NUM_ITEMS)
    return fakes.Run(selector, NUM_ITEMS, B, lag=lag, progress=progress, **options)


def answers(run):
    return {
        step: (data.feedback.index_M.tolist(), data.rollouts.token_NT.tolist())
        for step, data in run.recorder.data.items()
        if data is not None
    }


@pytest.mark.parametrize(("lag", "overlaps"), [(0, False), (1, False), (1, True)])
def test_each_batch_is_made_by_exactly_the_version_that_it_should_be(lag, overlaps):
    run = make(lag, overlaps=overlaps)(STEPS)
    versions = [max(0, t - 1 - lag) for t in range(1, STEPS + 1)]
    assert run.engine.versions == versions and run.progress.waiting is None
    name = "training/off_policy/trajectory_staleness/mean"
    staleness = [run.recorder.metrics[t].get(name, 0) for t in range(1, STEPS + 1)]
    assert staleness == [t - 1 - v for t, v in enumerate(versions, 1)]


def test_a_thread_changes_no_number():
    in_turns, together = (make(overlaps=overlaps)(STEPS) for overlaps in (False, True))
    fakes.equal(in_turns.progress, together.progress)
    assert in_turns.recorder.untimed() == together.recorder.untimed()
    assert answers(in_turns) == answers(together)


@pytest.mark.parametrize("name", sorted(samplers.SAMPLERS.keys() - {"diva"}))  # has variants
def test_a_policy_that_does_not_learn_gives_the_same_run_with_a_lag(name):
    """Same choices, answers and posterior: a prompt that waits may come again; decays are once a draw."""
    one, other = (make(lag, name, refill=Refill(max_rounds=2))(4) for lag in (0, 1))
    fakes.equal(one.progress, other.progress)
    assert answers(one) == answers(other)


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("name", ["vade", "dapo", "informed"])  # its beliefs have slashes
def test_a_run_resumes_exactly_after_every_step(name, overlaps):
    """Through arrays and JSON, with rounds of refill; the prompts are built again."""
    options = {"refill": Refill(max_rounds=3 if name == "dapo" else 1), "overlaps": overlaps}
    whole = make(name=name, **options)(STEPS)
    for step in range(1, STEPS):
        saved = whole.recorder.progress[step - 1]
        tree, plain = saved.waiting.pack()
        batch = StepData.unpack(tree, json.loads(json.dumps(plain)), whole.pool)
        saved = dataclasses.replace(saved, waiting=batch)
        resumed = make(name=name, progress=saved, engine=engine(step), **options)(STEPS)
        fakes.equal(resumed.progress, whole.progress)
        assert resumed.recorder.untimed() == whole.recorder.untimed(after=step + 1)
        assert answers(resumed) == {t: x for t, x in answers(whole).items() if t > step}


def test_the_budget_counts_answers_when_they_are_made():
    """Of 3.5 batches of 64: the fourth begins, the fifth does not; all that were made are learned from."""
    run = make(max_rollouts=224)(100)
    assert (len(run.engine.asked), run.progress.step, run.progress.rollouts_total) == (4, 4, 256)
    assert run.progress.waiting is None


@pytest.mark.parametrize("overlaps", [False, True])
def test_what_an_engine_has_made_before_it_fails_is_saved(overlaps):
    """Batch 4 is made during update 3, or before it: its error comes after the update."""
    run = make(engine=engine(fails_at=4), overlaps=overlaps)
    with pytest.raises(EngineFailure, match="gone"):
        run(STEPS)
    assert run.recorder.saved[-1] == (3, True)
    saved = run.recorder.progress[-1]
    assert saved.waiting is None
    resumed = make(engine=engine(3), overlaps=overlaps, progress=saved)(STEPS)
    assert (resumed.progress.step, max(resumed.recorder.metrics)) == (STEPS, STEPS)


def test_answers_are_made_while_the_policy_learns():
    """The update of every step meets the batch that is made meanwhile; in turns, each would wait for ever."""
    both = threading.Barrier(2, timeout=60)

    class Meeting(fakes.Engine):
        def generate(self, *args, **options):
            if len(self.asked):  # the first batch is made before anything is learned
                both.wait()
            return super().generate(*args, **options)

    def meet(state, *batch):
        if int(state.step) < STEPS - 1:  # during the last update nothing is made
            both.wait()
        return fakes.learn(state, *batch)

    run = make(engine=Meeting(PASS_RATE), overlaps=True, learn=meet)(STEPS)
    assert run.progress.step == STEPS
