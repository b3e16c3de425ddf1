"""Algorithm 1 with a fake engine of known pass rates, in under a second of steps."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.trainer import fakes
from vade_jax import samplers
from vade_jax.data.columns import RejectedItem
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import EngineFailure
from vade_jax.settings import Refill
from vade_jax.trainer.progress import Progress

NUM_ITEMS, B, G = fakes.NUM_ITEMS, 16, 8


# ------------------------------------------------------------------------------ what it learns
def test_vade_finds_the_items_that_teach_and_says_how_many():
    """40 of 200 items are mixed: uniform sees them a fifth of the time."""
    vade = fakes.run("vade", 60, {"warmup": "full"}).recorder.metrics
    uniform = fakes.run("uniform", 60).recorder.metrics
    ratio = lambda metrics, name: np.mean([metrics[t][f"vade/{name}"] for t in range(20, 61)])
    assert 0.12 < ratio(uniform, "effective_ratio") < 0.28
    assert ratio(vade, "effective_ratio") > 2 * ratio(uniform, "effective_ratio")
    gap = ratio(vade, "predicted_effective_ratio") - ratio(vade, "effective_ratio")
    assert abs(gap) < 0.2


REFILLS = {"vade": Refill(), "dapo": Refill(max_rounds=3), "vcrl": Refill(2, "missing")}


@pytest.mark.parametrize("name", REFILLS)
def test_two_runs_of_two_steps_equal_four(name):
    whole = fakes.run(name, 4, refill=REFILLS[name])
    parts = fakes.run(name, 2, refill=REFILLS[name])(4)
    fakes.equal(whole.progress, parts.progress)
    assert whole.engine.asked == parts.engine.asked
    assert whole.recorder.untimed() == parts.recorder.untimed()


# ------------------------------------------------------------------------------ answers that do not count
@pytest.mark.parametrize("lost", [1, G])
def test_an_answer_that_the_engine_could_not_make_hangs_no_step(lost):
    """It loses one of a group, or all of it: the group counts the others."""
    options = {"warmup": "none", "decay_selected": 1.0, "decay_rest": 1.0}
    run = fakes.run("vade", 3, options, engine=fakes.Engine(lost=lost))
    for step, (_, rollouts, advantage_N) in enumerate(run.batches, 1):
        assert run.recorder.data[step].feedback.trials_M.tolist() == [G, G - lost] + [G] * (B - 2)
        assert rollouts.valid_N.sum() == B * G - lost
        assert not advantage_N[~rollouts.valid_N].any() and np.isfinite(advantage_N).all()
        # The others of the group are compared with each other alone.
        np.testing.assert_allclose(advantage_N[rollouts.group_N == 1].sum(), 0, atol=1e-5)
        assert run.recorder.metrics[step]["response/aborted_ratio"] == lost / (B * G)
    posterior = run.progress.posterior
    assert posterior.alpha_I.sum() + posterior.beta_I.sum() == 3 * (B * G - lost)


def test_answers_without_a_verdict_are_neither_counted_nor_trained_on():
    """Of each item's 8 answers the first has no verdict."""

    def judge(item, texts, answers):
        first, *others = fakes.judge(item, texts, answers)
        return [dataclasses.replace(first, reward=np.nan, correct=np.nan), *others]

    scorer = fakes.scorer(judge, num_threads=3)
    run = fakes.run("mopps", 2, {"decay": 1.0}, score=scorer)
    for _, rollouts, advantage_N in run.batches:
        np.testing.assert_array_equal(rollouts.valid_N, np.arange(8 * B) % 8 > 0)
        assert np.isfinite(advantage_N).all() and not advantage_N[::8].any()
    assert [run.recorder.metrics[step]["reward/unknown"] for step in (1, 2)] == [B, B]
    assert (run.recorder.data[1].feedback.trials_M == 7).all()


@pytest.mark.parametrize(
    ("num_prompts", "message"),
    [(16, r"^step 2: of 128 .*no_verdict"), (1, r"^step 2: of 8 ")],
)
def test_a_step_without_any_verdict_stops_the_run(num_prompts, message):
    def judge(item, texts, answers):
        found = fakes.judge(item, texts, answers)
        if len(run.recorder.metrics) == 1:  # in step 1
            return found
        return [dataclasses.replace(one, reward=np.nan, reason="no_verdict") for one in found]

    run = fakes.Run(samplers.SAMPLERS["uniform"](), num_prompts=num_prompts)
    run.score = fakes.scorer(judge)
    with pytest.raises(RewardFailure, match=message):
        run(6)
    assert run.recorder.saved[-1] == (1, True)


# ------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    "error",
    [EngineFailure("gone"), RewardFailure("gone"), OSError("gone"), RejectedItem("0", "x", "gone")],
)
def test_steps_before_a_failure_are_saved(error):
    """Step 4 fails while it is made."""
    engine = fakes.Engine(fails_at=4)
    engine.error, recorder = error, fakes.Recorder()
    with pytest.raises(type(error), match="gone"):
        fakes.run("uniform", 6, engine=engine, recorder=recorder)
    assert sorted(recorder.metrics) == [0, 1, 2, 3]
    assert recorder.metrics[3]["vade/rollouts_total"] == 3 * B * 8
    assert recorder.saved[-1] == (3, True)


def test_answers_of_other_weights_are_an_error():
    class Stale(fakes.Engine):
        def generate(self, *args, **options):
            return super().generate(*args, **options).replace(params_version=np.int32(0))

    with pytest.raises(EngineFailure, match="weights 0 instead of 1"):
        fakes.run("uniform", 3, engine=Stale())


# ------------------------------------------------------------------------------ validation
def validation():
    """A validation, and the versions that it saw."""
    versions = []

    def validate(engine, key, version, known):
        versions.append(version)
        of_step = jax.random.fold_in(jax.random.key(3), version)
        assert key == (jax.random.split(of_step, 3)[2] if version else of_step)
        assert engine.version == version
        metrics = {"val/x/acc/mean@4": float(jax.random.uniform(key)), "val/known": len(known)}
        return metrics, known | {str(version)}

    return validate, versions


@pytest.mark.parametrize(("eval_every", "steps"), [(4, [0, 4, 6]), (0, [6])])
def test_the_policy_is_validated_when_it_is_due_and_at_the_end(eval_every, steps):
    validate, versions = validation()
    run = fakes.run("uniform", 6, validate=(validate,), eval_every=eval_every)
    assert versions == [s for s, m in run.recorder.metrics.items() if "val/known" in m] == steps
    assert run.recorder.saved == [(s, s == 6) for s in range(1, 7)]
    run(6)
    assert versions == steps  # not once more
    assert run(7).progress.validated == 7 and versions == [*steps, 7]


# ------------------------------------------------------------------------------ totals and times
@pytest.mark.parametrize(
    ("visited", "step", "visits", "epochs", "coverage"),
    [
        ([1, 2, 3, 4, 4, 0, 0, 0, 0, 0], 4, 16, 1.6, 0.4),  # 4 a step: an epoch is 3 steps
        ([1, 1, 2, 2, 3, 3, 4, 4, 0, 0], 4, 8, 0.8, 0.8),  # 2 a step: an epoch is 5 steps
        ([0, 1, 1, 0], 1, 2, 0.5, 0.5),  # what was never visited is not covered
    ],
)
def test_coverage_is_of_the_last_epochs_steps(visited, step, visits, epochs, coverage):
    metrics = Progress(None, None, np.array(visited), step=step, visits=visits).metrics()
    assert (metrics["vade/epochs"], metrics["vade/coverage"]) == (epochs, coverage)
    assert metrics["vade/unique_selected"] == np.count_nonzero(visited)


def test_epochs_count_items_of_every_round_and_not_the_places_that_variants_take():
    run = fakes.run("dapo", 6, refill=Refill(max_rounds=3))
    groups = [run.recorder.metrics[step]["vade/generated_groups"] for step in range(1, 7)]
    assert run.progress.visits == sum(groups) > 6 * B
    # The fake engine has no variants: each place shows the problem itself, 4 places a problem.
    num_steps = NUM_ITEMS * 4 // B
    run = fakes.run("diva", num_steps, {"num_variants": 3})
    last = run.recorder.metrics[num_steps]
    assert (last["vade/epochs"], last["vade/coverage"]) == (1.0, 1.0)
