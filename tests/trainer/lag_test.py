"""Batches that are made before the policy has learned from those before them."""

import dataclasses
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import contract_test
from tests.trainer import fakes
from vade_jax import samplers
from vade_jax.rollout import fake
from vade_jax.rollout.engine import EngineFailure
from vade_jax.settings import Refill
from vade_jax.trainer import choosing, loop, waiting
from vade_jax.trainer.progress import Progress
from vade_jax.trainer.scoring import NotFinite
from vade_jax.types import TrainState

NUM_ITEMS, B, STEPS = 60, 8, 6
PASS_RATE = {str(i): rate for i, rate in enumerate(np.linspace(0, 1, NUM_ITEMS))}


class Engine(fake.FakeEngine):
    """Keeps the versions that answered; fails in a call if it is told to."""

    def __init__(self, *args, fails_at=None, **options):
        super().__init__(*args, **options)
        self.asked, self.fails_at, self.busy = [], fails_at, False

    def generate(self, prompts, num_rollouts_M, key, params_version, **options):
        self.asked.append(params_version)
        if len(self.asked) == self.fails_at:
            raise EngineFailure("gone")
        self.busy = True
        try:
            return super().generate(prompts, num_rollouts_M, key, params_version, **options)
        finally:
            self.busy = False

    def sync(self, params, version):
        assert not self.busy, "weights came while answers were made"
        super().sync(params, version)


def learn(state, prompts, rollouts, advantage_N):
    return state.replace(step=state.step + 1), {"actor/loss": float(state.step)}


def run(lag, *, name="vade", engine=None, overlaps=False, progress=None, steps=STEPS, **options):
    selector = samplers.SAMPLERS[name](**options.pop("selector", {}))
    pool = choosing.Pool(fakes.items(NUM_ITEMS), fakes.build_prompt)
    recorder = options.pop("recorder", None) or fakes.Recorder()
    state = TrainState(params={}, opt_state=(), step=jnp.int32(0))
    arrays = contract_test.ARRAYS.get(name, lambda _: {})(NUM_ITEMS)
    posterior = selector.init(NUM_ITEMS, **arrays)
    start = Progress(state, posterior, np.zeros(NUM_ITEMS, np.int32))
    progress = loop.Loop(
        selector=selector,
        pool=pool,
        engine=engine or Engine(PASS_RATE),
        score=fakes.score,
        key=jax.random.key(0),
        num_prompts=B,
        num_steps=steps,
        refill=options.pop("refill", Refill()),
        lag=lag,
        overlaps=overlaps,
        learn=options.pop("learn", learn),
        validate=[],
        recorder=recorder,
        eval_every=0,
        **options,
    ).run(progress(pool) if progress else start)
    return progress, recorder


def told(recorder):
    """What does not depend on the clock: what was rolled out in each step, and its metrics."""
    kept = ("vade/", "critic/", "training/", "reward/", "response", "informed/")
    return {
        step: (
            recorder.data[step] and np.asarray(recorder.data[step].feedback.index_M).tolist(),
            recorder.data[step] and recorder.data[step].rollouts.token_NT.tolist(),
            {name: x for name, x in metrics.items() if name.startswith(kept)},
        )
        for step, metrics in recorder.metrics.items()
    }


def equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one.posterior, other.posterior)
    np.testing.assert_array_equal(one.visited_I, other.visited_I)
    totals = lambda x: (x.step, x.rollouts_total, x.tokens_total, x.visits, x.waiting is None)
    assert totals(one) == totals(other)


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("lag", [0, 1])
def test_each_batch_is_made_by_exactly_the_version_that_it_should_be(lag, overlaps):
    engine = Engine(PASS_RATE)
    progress, recorder = run(lag, engine=engine, overlaps=overlaps, selector={"warmup": "none"})
    versions = [max(0, t - 1 - lag) for t in range(1, STEPS + 1)]
    assert engine.asked == versions and progress.waiting is None
    name = "training/off_policy/trajectory_staleness/mean"
    staleness = [recorder.metrics[t].get(name, 0) for t in range(1, STEPS + 1)]
    assert staleness == [t - 1 - v for t, v in enumerate(versions, 1)]


def test_a_thread_changes_no_number():
    in_turns, together = (run(1, overlaps=overlaps) for overlaps in (False, True))
    equal(in_turns[0], together[0])
    assert told(in_turns[1]) == told(together[1])


@pytest.mark.parametrize("name", sorted(samplers.SAMPLERS.keys() - {"diva"}))  # has variants
def test_a_policy_that_does_not_learn_gives_the_same_run_with_a_lag(name):
    """Same choices, answers and posterior: a prompt that waits may come again; decays are once a draw."""
    strip = lambda found: {step: one[:2] for step, one in told(found).items()}
    one, other = (run(lag, name=name, refill=Refill(max_rounds=2)) for lag in (0, 1))
    equal(one[0], other[0])
    assert strip(one[1]) == strip(other[1])


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("name", ["vade", "dapo", "informed"])  # its beliefs have slashes
def test_a_run_resumes_exactly_after_every_step(name, overlaps):
    """Through arrays and JSON, with rounds of refill; the prompts are built again."""
    refill = Refill(max_rounds=3 if name == "dapo" else 1)
    end, recorder = run(1, name=name, refill=refill, overlaps=overlaps)
    for step in range(1, STEPS):
        saved = recorder.progress[step - 1]
        assert saved.step == step
        arrays, plain = waiting.pack(saved.waiting)
        plain = json.loads(json.dumps(plain))

        def restored(pool, saved=saved, arrays=arrays, plain=plain):
            return dataclasses.replace(saved, waiting=waiting.unpack(arrays, plain, pool))

        engine = Engine(PASS_RATE, version=step)
        resumed, again = run(
            1, name=name, refill=refill, engine=engine, progress=restored, overlaps=overlaps
        )
        equal(resumed, end)
        expected = {t: one for t, one in told(recorder).items() if t > step}
        assert told(again) == expected


def test_a_batch_that_nothing_is_learned_from_can_be_saved():
    """No group of dapo's was mixed: it has no array of the kept ones."""
    _, recorder = run(1, name="dapo", engine=Engine(dict.fromkeys(PASS_RATE, 0.0)))
    arrays, plain = waiting.pack(recorder.progress[0].waiting)
    assert plain["learned_M"] == [] and all(x.size for x in arrays.values())


def test_the_budget_counts_answers_when_they_are_made():
    """Of 3.5 batches of 64: the fourth begins, the fifth does not; all that were made are learned from."""
    engine = Engine(PASS_RATE)
    options = {"max_rollouts": 224, "selector": {"warmup": "none"}, "steps": 100}
    progress, _ = run(1, engine=engine, **options)
    assert (len(engine.asked), progress.step, progress.rollouts_total) == (4, 4, 256)
    assert progress.waiting is None


@pytest.mark.parametrize("overlaps", [False, True])
def test_what_an_engine_has_made_before_it_fails_is_saved(overlaps):
    engine, kept = Engine(PASS_RATE, fails_at=4), fakes.Recorder()
    options = {"overlaps": overlaps, "selector": {"warmup": "none"}}
    with pytest.raises(EngineFailure, match="gone"):
        run(1, engine=engine, recorder=kept, **options)
    # Batch 4 is made beside update 3, or before it.
    step = 3 if overlaps else 2
    assert kept.saved[-1] == (step, True)
    last = kept.progress[-1]
    assert (last.waiting is None) == overlaps  # batch 3 waits, made before update 2
    engine = Engine(PASS_RATE, version=step)
    progress, recorder = run(1, engine=engine, progress=lambda pool: last, **options)
    assert (progress.step, sorted(recorder.metrics)[-1]) == (STEPS, STEPS)


def test_a_learner_that_fails_ends_the_run_once_the_batch_is_made():
    def broken(state, prompts, rollouts, advantage_N):
        return state, {"actor/loss": float("nan")}

    engine = Engine(PASS_RATE, seconds=0.05)
    with pytest.raises(NotFinite):
        run(1, engine=engine, overlaps=True, learn=broken, selector={"warmup": "none"})
    assert engine.asked == [0, 0] and not engine.busy


def test_ctrl_c_does_not_wait_for_what_is_under_way():
    ended = threading.Event()
    with pytest.raises(KeyboardInterrupt), loop.Ahead() as ahead:
        under_way = ahead.submit(ended.wait, 20)
        raise KeyboardInterrupt
    assert not under_way.done()
    ended.set()


def test_answers_are_made_while_the_policy_learns():
    """The update of every step meets the batch that is made beside it; in turns, each would wait for ever."""
    both = threading.Barrier(2, timeout=60)

    class Meeting(Engine):
        def generate(self, *args, **options):
            if len(self.asked):  # the first batch is made before anything is learned
                both.wait()
            return super().generate(*args, **options)

    def meet(state, *batch):
        if int(state.step) < STEPS - 1:  # beside the last update nothing is made
            both.wait()
        return learn(state, *batch)

    options = {"learn": meet, "selector": {"warmup": "none"}}
    progress, _ = run(1, engine=Meeting(PASS_RATE), overlaps=True, **options)
    assert progress.step == STEPS
