"""Passes over all items: fake engine, ten items, batches of four."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax import samplers
from vade_jax.rollout import fake
from vade_jax.rollout.engine import EngineFailure
from vade_jax.samplers import diversity
from vade_jax.trainer import loop, measure, scoring
from vade_jax.types import Item, Prompt, TrainState

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


class Recorder:
    def __init__(self):
        self.metrics, self.saved = {}, []

    def step(self, step, metrics, data):
        self.metrics[step] = metrics

    def save(self, progress, *, last):
        self.saved.append(progress)


def build_prompt(item):
    empty = np.zeros(0, np.int32)
    return Prompt(item.uid, "", empty, empty[:, None], ())


def judge(item, answers):
    right = [float(tokens[0] == fake.RIGHT) for tokens in answers]
    return [scoring.Judged("", None, reward=x, correct=x) for x in right]


def learn(state, prompts, rollouts, advantage_N):
    assert len(prompts) == B and len(rollouts.group_N) == B * G
    return state.replace(step=state.step + 1), {"actor/loss": 0.0}


def start(sampler, engine=None, recorder=None):
    item = lambda uid: Item(uid=uid, question="?", images=(), answer="1", kind="int")
    parts = loop.Parts(
        items=[item(uid) for uid in RATE],
        build_prompt=build_prompt,
        sampler=sampler,
        engine=engine or Engine(),
        judge=judge,
        learn=learn,
        validate=lambda *_: {},
        recorder=recorder or Recorder(),
    )
    state = TrainState(params={}, opt_state=(), step=jnp.int32(0))
    return parts, loop.Progress(state=state, selector=sampler.init(I))


def run(parts, progress, num_steps, every=2):
    return loop.run(
        parts,
        progress,
        num_steps=num_steps,
        num_prompts=B,
        key=jax.random.key(0),
        eval_every=100,
        measure=loop.Measure(every=every, num_rollouts=N),
    )


def mmr1():
    return samplers.SAMPLERS["mmr1"](num_rollouts=G)


def test_a_pass_asks_for_every_item_once():
    parts, progress = start(mmr1())
    found = measure.whole(parts, progress, jax.random.key(5), N, B)
    asked = [(uids, numbers) for _, uids, numbers in parts.engine.calls]
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
    bleu_M = diversity.self_bleu(token_NT, [2] * I * N, found.group_N, I)
    np.testing.assert_array_equal(found.extra_M["self_bleu"], bleu_M)
    assert len(np.unique(bleu_M)) > 1


def test_two_batches_of_a_pass_draw_differently():
    parts, progress = start(samplers.SAMPLERS["uniform"](num_rollouts=G))
    parts.engine.pass_rate = dict.fromkeys(RATE, 0.5)
    found = measure.whole(parts, progress, jax.random.key(5), 30, 5)
    halves = found.correct_N.reshape(2, -1)
    assert 0.3 < np.mean(halves[0] == halves[1]) < 0.7
    assert found.extra_M is None  # nobody asked


def test_passes_come_before_the_first_step_and_every_second():
    recorder = Recorder()
    parts, progress = start(mmr1(), recorder=recorder)
    progress = run(parts, progress, 5)
    sizes = [(version, len(uids)) for version, uids, _ in parts.engine.calls]
    whole = lambda version: [(version, 4), (version, 4), (version, 2)]
    step = lambda version: [(version, B)]
    assert sizes == [
        *(whole(0) + step(0) + step(1)),
        *(whole(2) + step(2) + step(3)),
        *(whole(4) + step(4)),
    ]
    metrics = recorder.metrics
    measured = [metrics[s]["vade/measured_rollouts"] for s in range(1, 6)]
    assert measured == [30, 30, 60, 60, 90]
    totals = [metrics[s]["vade/rollouts_total"] for s in range(1, 6)]
    assert totals == [m + s * B * G for s, m in enumerate(measured, 1)]
    assert progress.tokens_total == 2 * totals[-1]
    assert ["timing_s/measure" in metrics[s] for s in range(1, 6)] == [1, 0, 1, 0, 1]
    assert progress.selector.step == 3  # the steps between teach it nothing


def test_without_passes_nothing_is_reported():
    recorder = Recorder()
    parts, progress = start(samplers.SAMPLERS["vade"](num_rollouts=G), None, recorder)
    run(parts, progress, 2, every=0)
    assert not any("measure" in name for name in recorder.metrics[2])


def test_the_weights_are_those_of_the_pass():
    parts, progress = start(mmr1())
    key = jax.random.fold_in(jax.random.key(0), 1)
    found = measure.whole(parts, progress, key, N, B)
    p_I = found.successes_M / N
    expected_I = 0.8 * p_I * (1 - p_I) + 0.2 * (1 - found.extra_M["self_bleu"])
    progress = run(*start(mmr1()), 1)
    np.testing.assert_allclose(progress.selector.weight_I, expected_I, rtol=1e-5)


def test_any_selector_learns_from_a_pass():
    """VADE without its own warm-up knows of every item before its first choice."""
    sampler = samplers.SAMPLERS["vade"](num_rollouts=G, warmup="none")
    parts, progress = start(sampler)
    progress = measure.run(parts, progress, jax.random.key(0), N, B)
    known_I = progress.selector.alpha_I + progress.selector.beta_I
    np.testing.assert_array_equal(known_I, N)
    assert (progress.step, progress.rollouts_total) == (0, I * N)


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_resumed_run_repeats_the_pass(done):
    """After step 2 a pass is due: the checkpoint is from before it."""
    whole = run(*start(mmr1()), 4)
    half = run(*start(mmr1()), done)
    parts, _ = start(mmr1())
    resumed = run(parts, half, 4)
    assert (whole.step, whole.rollouts_total) == (resumed.step, resumed.rollouts_total)
    assert whole.seen == resumed.seen
    chex.assert_trees_all_equal(whole.selector, resumed.selector)


@pytest.mark.parametrize("fails_at", [7, 9])  # in the second pass, and in step 3
def test_an_engine_that_fails_around_a_pass_leaves_what_was_before_it(fails_at):
    recorder = Recorder()
    parts, progress = start(mmr1(), Engine(fails_at), recorder)
    with pytest.raises(EngineFailure, match="the server is gone"):
        run(parts, progress, 4)
    kept = recorder.saved[-1]
    assert (kept.step, kept.rollouts_total) == (2, I * N + 2 * B * G)
    resumed = run(start(mmr1())[0], kept, 4)
    chex.assert_trees_all_equal(resumed.selector, run(*start(mmr1()), 4).selector)
