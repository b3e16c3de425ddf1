"""Passes over all items: fake engine, ten items, batches of four."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer import fakes
from vade_jax import samplers, settings
from vade_jax.rollout import fake
from vade_jax.rollout.engine import EngineFailure
from vade_jax.trainer import choosing, loop, passes
from vade_jax.trainer.progress import Progress
from vade_jax.types import TrainState

I, B, G, N = 10, 4, 2, 3
RATE = {str(i): rate for i, rate in enumerate(np.linspace(0, 1, I))}


class Engine(fake.FakeEngine):
    """Writes down whom it was asked, and fails when it is told to."""

    def __init__(self, fails_at=None):
        super().__init__(RATE)
        self.calls, self.fails_at = [], fails_at

    def generate(self, prompts, num_rollouts_M, key, version, *args, **kwargs):
        self.calls.append((version, [p.uid for p in prompts], list(num_rollouts_M)))
        if len(self.calls) == self.fails_at:
            raise EngineFailure("the server is gone")
        return super().generate(prompts, num_rollouts_M, key, version, *args, **kwargs)


def learn(state, prompts, rollouts, advantage_N):
    assert len(prompts) == B and len(rollouts.group_N) == B * G
    return state.replace(step=state.step + 1), {"actor/loss": 0.0}


class Run:
    """A run over the ten items; call it to go on to a step."""

    def __init__(self, selector, engine=None):
        self.engine, self.recorder = engine or Engine(), fakes.Recorder()
        self.selector = selector
        self.pool = choosing.Pool(fakes.items(I), fakes.build_prompt)
        state = TrainState(params={}, opt_state=(), step=jnp.int32(0))
        self.progress = Progress(state, selector.init(I), np.zeros(I, np.int32))

    def __call__(self, num_steps, every=2, stop=lambda: False, max_rollouts=0):
        self.progress = loop.Loop(
            selector=self.selector,
            pool=self.pool,
            engine=self.engine,
            score=fakes.score,
            key=jax.random.key(0),
            num_prompts=B,
            num_steps=num_steps,
            measure=settings.Measure(every=every, num_rollouts=N, num_prompts=B),
            learn=learn,
            validate=[],
            recorder=self.recorder,
            eval_every=100,
            max_rollouts=max_rollouts,
        ).run(self.progress, stop)
        return self.progress

    def measure(self, num_rollouts=N, num_prompts=B):
        """The pass before step 1."""
        return passes.measure(
            self.selector,
            self.pool,
            jax.random.key(0),
            1,
            self.engine,
            fakes.score,
            settings.Measure(every=1, num_rollouts=num_rollouts, num_prompts=num_prompts),
        )


def mmr1():
    return samplers.SAMPLERS["mmr1"](num_rollouts=G)


def test_a_pass_asks_for_every_item_once():
    run = Run(mmr1())
    found = run.measure()
    asked = [(uids, numbers) for _, uids, numbers in run.engine.calls]
    uids = list(RATE)
    batches = [uids[:4], uids[4:8], uids[8:]]
    assert asked == [(batch, [N] * len(batch)) for batch in batches]
    np.testing.assert_array_equal(found.index_M, np.arange(I))
    np.testing.assert_array_equal(found.group_N, np.repeat(np.arange(I), N))
    np.testing.assert_array_equal(found.trials_M, [N] * I)
    right_M = found.correct_N.reshape(I, N).sum(1)
    np.testing.assert_array_equal(found.successes_M, right_M)
    assert found.successes_M[0] == 0 and found.successes_M[-1] == N
    # An answer is one of two tokens and the end: groups of one kind say the same.
    token_NT = np.stack([found.correct_N, np.full(I * N, 2)], 1)
    bleu_M = samplers.FROM_TOKENS["self_bleu"](token_NT, [2] * I * N, found.group_N, I)
    np.testing.assert_array_equal(found.extra_M["self_bleu"], bleu_M)
    assert len(np.unique(bleu_M)) > 1


def test_two_batches_of_a_pass_draw_differently():
    run = Run(samplers.SAMPLERS["uniform"](num_rollouts=G))
    run.engine.pass_rate = dict.fromkeys(RATE, 0.5)
    found = run.measure(30, 5)
    halves = found.correct_N.reshape(2, -1)
    assert 0.3 < np.mean(halves[0] == halves[1]) < 0.7
    assert found.extra_M is None  # nobody asked for self-BLEU


def test_passes_come_before_the_first_step_and_every_second():
    selector, states = mmr1(), []

    def update(state, feedback):
        states.append((len(feedback.index_M), selector.update(state, feedback)))
        return states[-1][1]

    run = Run(selector._replace(update=update))
    run(5)
    sizes = [(version, len(uids)) for version, uids, _ in run.engine.calls]

    def whole(version):
        return [(version, 4), (version, 4), (version, 2)]

    assert sizes == [
        *(*whole(0), (0, B), (1, B)),
        *(*whole(2), (2, B), (3, B)),
        *(*whole(4), (4, B)),
    ]
    metrics = run.recorder.metrics
    measured = [metrics[s]["vade/measured_rollouts"] for s in range(1, 6)]
    assert measured == [30, 30, 60, 60, 90]
    totals = [metrics[s]["vade/rollouts_total"] for s in range(1, 6)]
    assert totals == [m + s * B * G for s, m in enumerate(measured, 1)]
    assert run.progress.tokens_total == 2 * totals[-1]
    assert ["timing_s/measure" in metrics[s] for s in range(1, 6)] == [1, 0, 1, 0, 1]
    assert [size for size, _ in states] == [I, B, B, I, B, B, I, B]
    for (_, before), (size, after) in itertools.pairwise(states):
        if size == B:  # the steps between teach it nothing
            np.testing.assert_array_equal(after.pass_rate_I, before.pass_rate_I)


def test_without_passes_nothing_is_reported():
    run = Run(samplers.SAMPLERS["vade"](num_rollouts=G))
    run(2, every=0)
    assert not any("measure" in name for name in run.recorder.metrics[2])


def test_the_weights_are_those_of_the_pass():
    found = Run(mmr1()).measure()
    p_I = found.successes_M / N
    expected_I = 0.8 * p_I * (1 - p_I) + 0.2 * (1 - found.extra_M["self_bleu"])
    progress = Run(mmr1())(1)
    np.testing.assert_allclose(progress.posterior.weight_I, expected_I, rtol=1e-5)


@pytest.mark.parametrize(("warmup", "every"), [("measured", 0), ("none", 100)])
def test_vade_knows_of_every_item_before_its_first_choice(warmup, every):
    """Lines 1-4 of Algorithm 1, by VADE's own word and by the setting that any selector has."""
    run = Run(samplers.SAMPLERS["vade"](num_rollouts=G, warmup=warmup))
    run(2, every=every)
    belief = run.recorder.data[1].belief
    np.testing.assert_array_equal(belief["alpha"] + belief["beta"], N)
    assert run.progress.rollouts_total == I * N + 2 * B * G
    assert run.recorder.metrics[2]["vade/measured_rollouts"] == I * N


def test_a_pass_tires_no_item():
    """After it, a cap of one visit in a row leaves out nothing; after a step, its prompts."""
    selector = samplers.SAMPLERS["vade"](num_rollouts=G, warmup="measured", max_consecutive=1)
    run = Run(selector)
    run(1, every=0)
    streak_I = np.zeros(I)
    streak_I[run.recorder.data[1].feedback.index_M] = 1
    np.testing.assert_array_equal(run.progress.posterior.streak_I, streak_I)


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_resumed_run_repeats_the_pass(done):
    """After step 2 a pass is due: the checkpoint is from before it."""
    whole, resumed = Run(mmr1()), Run(mmr1())
    whole(4)
    resumed(done)
    resumed(4)
    whole, resumed = whole.progress, resumed.progress
    assert (whole.step, whole.rollouts_total) == (resumed.step, resumed.rollouts_total)
    np.testing.assert_array_equal(whole.visited_I, resumed.visited_I)
    chex.assert_trees_all_equal(whole.posterior, resumed.posterior)


@pytest.mark.parametrize(
    ("max_rollouts", "steps"), [(45, 2), (46, 2), (70, 2), (76, 2), (77, 3), (0, 4)]
)
def test_a_pass_that_would_spend_the_rest_of_a_budget_ends_the_run(max_rollouts, steps):
    """A pass is 30 answers and a step 8: 46 after two steps, 76 after the pass that is due then."""
    run = Run(mmr1())
    progress = run(4, max_rollouts=max_rollouts)
    assert (progress.step, progress.rollouts_total) == (steps, 30 * -(-steps // 2) + 8 * steps)
    assert run.recorder.saved[-1] == (steps, True)
    calls = len(run.engine.calls)
    assert run(4, max_rollouts=max_rollouts).step == steps and len(run.engine.calls) == calls


@pytest.mark.parametrize("fails_at", [7, 9])  # in the second pass, and in step 3
def test_an_engine_that_fails_around_a_pass_leaves_what_was_before_it(fails_at):
    run = Run(mmr1(), Engine(fails_at))
    with pytest.raises(EngineFailure, match="the server is gone"):
        run(4)
    kept = run.recorder.progress[-1]
    assert (kept.step, kept.rollouts_total) == (2, I * N + 2 * B * G)
    resumed = Run(mmr1())
    resumed.progress = kept
    chex.assert_trees_all_equal(resumed(4).posterior, Run(mmr1())(4).posterior)


@pytest.mark.parametrize(("stops_at", "step"), [(1, 0), (7, 2)])  # in the first pass, in the second
def test_a_run_that_is_stopped_in_a_pass_ends_there_and_repeats_it(stops_at, step):
    run = Run(mmr1())
    stopped = run(4, stop=lambda: len(run.engine.calls) >= stops_at)
    assert (stopped.step, len(run.engine.calls)) == (step, stops_at)
    assert run.recorder.saved[-1:] == [(step, True)] * bool(step)  # saved again, as the last
    chex.assert_trees_all_equal(run(4).posterior, Run(mmr1())(4).posterior)
