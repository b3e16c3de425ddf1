"""Passes over all items: fake engine, ten items, batches of four."""

import itertools

import numpy as np
import pytest

from tests.trainer import fakes
from vade_jax import samplers, settings

I, B, G, N = 10, 4, 2, 3
RATE = fakes.pass_rates(np.linspace(0, 1, I))


def make(name="mmr1", *, every=2, fails_at=0, options=None, **more):
    selector = samplers.SAMPLERS[name](num_rollouts=G, **options or {})
    engine = fakes.Engine(RATE, fails_at=fails_at)
    return fakes.Run(selector, I, B, engine, every=every, num_measured=N, eval_every=100, **more)


def measure(run, num_rollouts=N, num_prompts=B):
    """The pass before step 1."""
    return run.collect.measure(1, settings.Measure(1, num_rollouts, num_prompts))


def test_a_pass_asks_for_every_item_once():
    run = make()
    found, uids = measure(run), list(RATE)
    assert run.engine.asked == [uids[:4], uids[4:8], uids[8:]]
    assert run.engine.numbers == [[N] * 4, [N] * 4, [N] * 2]
    np.testing.assert_array_equal(found.index_M, np.arange(I))
    np.testing.assert_array_equal(found.group_N, np.repeat(np.arange(I), N))
    np.testing.assert_array_equal(found.trials_M, [N] * I)
    np.testing.assert_array_equal(found.successes_M, found.correct_N.reshape(I, N).sum(1))
    assert found.successes_M[0] == 0 and found.successes_M[-1] == N
    # An answer is one of two tokens and the end: groups of one kind say the same.
    token_NT = np.stack([found.correct_N, np.full(I * N, 2)], 1)
    bleu_M = samplers.FROM_TOKENS["self_bleu"](token_NT, [2] * I * N, found.group_N, I)
    np.testing.assert_array_equal(found.extra_M["self_bleu"], bleu_M)
    assert len(np.unique(bleu_M)) > 1
    p_I = found.successes_M / N
    expected_I = 0.8 * p_I * (1 - p_I) + 0.2 * (1 - bleu_M)
    np.testing.assert_allclose(make()(1).progress.posterior.weight_I, expected_I, rtol=1e-5)


def test_two_batches_of_a_pass_draw_differently():
    run = make("uniform")
    run.engine.pass_rate = dict.fromkeys(RATE, 0.5)
    found = measure(run, 30, 5)
    halves = found.correct_N.reshape(2, -1)
    assert 0.3 < np.mean(halves[0] == halves[1]) < 0.7
    assert found.extra_M is None  # nobody asked for self-BLEU


def test_passes_come_before_the_first_step_and_every_second():
    run, states = make(), []
    update = run.selector.update

    def observe(state, feedback):
        states.append((len(feedback.index_M), update(state, feedback)))
        return states[-1][1]

    run.selector = run.selector._replace(update=observe)
    run(5)
    one_pass = lambda version: [(version, 4), (version, 4), (version, 2)]
    assert [*zip(run.engine.versions, map(len, run.engine.asked), strict=True)] == [
        *(*one_pass(0), (0, B), (1, B)),
        *(*one_pass(2), (2, B), (3, B)),
        *(*one_pass(4), (4, B)),
    ]
    metrics = run.recorder.metrics
    measured = [metrics[s]["vade/measured_rollouts"] for s in range(1, 6)]
    assert measured == [30, 30, 60, 60, 90]
    totals = [metrics[s]["vade/rollouts_total"] for s in range(1, 6)]
    assert totals == [m + s * B * G for s, m in enumerate(measured, 1)]
    assert run.progress.tokens_total == 2 * totals[-1]
    assert ["timing_s/measure" in metrics[s] for s in range(1, 6)] == [1, 0, 1, 0, 1]
    assert len(run.batches) == 5  # nothing is learned from a pass
    for (_, before), (size, after) in itertools.pairwise(states):
        if size == B:  # the steps between teach mmr1 nothing
            np.testing.assert_array_equal(after.pass_rate_I, before.pass_rate_I)


@pytest.mark.parametrize(("warmup", "every"), [("measured", 0), ("none", 100)])
def test_vade_knows_of_every_item_before_its_first_choice(warmup, every):
    """Lines 1-4 of Algorithm 1, by VADE's own word and by the setting that any selector has."""
    run = make("vade", every=every, options={"warmup": warmup})(2)
    belief = run.recorder.data[1].belief
    np.testing.assert_array_equal(belief["alpha"] + belief["beta"], N)
    assert run.progress.rollouts_total == I * N + 2 * B * G
    assert run.recorder.metrics[2]["vade/measured_rollouts"] == I * N


@pytest.mark.parametrize("done", [1, 2])
def test_a_resumed_run_repeats_the_pass(done):
    """After step 2 a pass is due: the checkpoint is from before it."""
    fakes.equal(make()(4).progress, make()(done)(4).progress)


@pytest.mark.parametrize(
    ("max_rollouts", "steps"), [(45, 2), (46, 2), (70, 2), (76, 2), (77, 3), (0, 4)]
)
def test_a_pass_that_would_spend_the_rest_of_a_budget_ends_the_run(max_rollouts, steps):
    """A pass is 30 answers and a step 8: 46 after two steps, 76 after the pass that is due then."""
    run = make(max_rollouts=max_rollouts)(4)
    expected = (steps, 30 * -(-steps // 2) + 8 * steps)
    assert (run.progress.step, run.progress.rollouts_total) == expected
    assert run.recorder.saved[-1] == (steps, True)
    calls = len(run.engine.asked)
    assert run(4).progress.step == steps and len(run.engine.asked) == calls
