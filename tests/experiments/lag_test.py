"""A run whose batches are made a step ahead: the whole program, with the built-in engine."""

import jax
import numpy as np
import pytest

from tests.experiments.train_test import latest, smoke
from vade_jax import run, settings
from vade_jax.store import checkpoints, metrics

STALENESS = "training/off_policy/trajectory_staleness/mean"


@pytest.fixture(scope="module")
def runs(one_device, small_checkpoint, tmp_path_factory):
    """Directories of a run of 3 steps, and of one that was stopped after 2 of them and resumed."""
    base = tmp_path_factory.mktemp("runs")
    c = smoke(3, small_checkpoint)
    c.engine.max_lag, c.eval.every = 1, 3
    c.loss.old_logp, c.loss.importance = "trainer", "icepop"
    job = settings.Run.from_dict(c.to_dict())
    log = base / "resumed" / metrics.FILE
    has_two = lambda: log.exists() and len(log.read_text().splitlines()) == 3  # 0, 1 and 2
    assert not run.train(job, str(base / "resumed"), stop=has_two)
    yield base, job


def test_a_run_with_a_lag_resumes_with_the_batch_that_waits(runs, capsys):
    base, job = runs
    saved = checkpoints.manager_of(base / "resumed" / "checkpoints")
    content, _ = checkpoints.restore(saved, 2, {})
    assert content["waiting"]["round_M"] == [1] * job.num_prompts
    assert run.train(job, str(base / "resumed")) and run.train(job, str(base / "whole"))
    said = capsys.readouterr().out
    assert "resuming after step 2, 1 made ahead" in said
    whole, resumed = latest(base / "whole"), latest(base / "resumed")
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)
    told = [metrics.read(base / name) for name in ("whole", "resumed")]
    assert [record.get(STALENESS) for record in told[0]] == [None, 0, 1, 1]
    for one, other in zip(*told, strict=True):
        timed = ("timing_s/", "perf/")
        names = {name for name in (one | other) if not name.startswith(timed)}
        assert {n: one.get(n) for n in names} == {n: other.get(n) for n in names}


def test_weights_correct_for_older_answers_and_only_for_those(runs):
    """The first batch is of the weights that learn: engine and trainer are one program."""
    base, _ = runs
    first, later = (metrics.read(base / "whole")[step] for step in (1, 3))
    largest = "rollout_corr/rollout_is_max"
    assert abs(first[largest] - 1) < 1e-5 and abs(later[largest] - 1) > 1e-4
