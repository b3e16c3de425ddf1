"""Figures exist, from metrics.jsonl alone, whatever a run has measured."""

import numpy as np
import pytest

from vade_jax.report import figures
from vade_jax.store import metrics


def make_run(workdir, *, num_steps=6, seed=0, predicted=True, norm=1.0):
    rng = np.random.default_rng(seed)
    writer = metrics.Writer(workdir)
    writer.write(0, {"val/tiny/acc/mean@4": 0.2})
    for step in range(1, num_steps + 1):
        line = {
            "vade/effective_ratio": 0.5,
            "vade/rollouts_total": 10 * step,
            "actor/grad_norm": norm**step,
            "critic/score/mean": rng.random(),
        }
        if predicted:
            line["vade/predicted_effective_ratio"] = rng.random()
        if step % 3 == 0:
            line["val/tiny/acc/mean@4"] = 0.2 + step / 20
        writer.write(step, line)
    return workdir


def test_steps_that_learned_nothing_and_spikes_are_drawn(tmp_path):
    make_run(tmp_path, predicted=False, norm=9.0)
    metrics.Writer(tmp_path).write(7, {"vade/effective_ratio": 0.0})  # no actor/*
    assert is_picture(figures.draw(tmp_path)[0])
    assert not figures.has_predictions(tmp_path)


def is_picture(path):
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 10_000


def test_draw_makes_the_figures_of_a_run(tmp_path):
    paths = figures.draw(make_run(tmp_path))
    assert [path.name for path in paths] == [
        "progress.png",
        "calibration.png",
        "details.png",
    ]
    assert all(path.parent == tmp_path / "figures" for path in paths)
    assert all(map(is_picture, paths))


@pytest.mark.parametrize(
    "lines", [[], [{"vade/effective_ratio": None}], [{"other": 1}]]
)
def test_draw_takes_a_run_with_next_to_nothing(tmp_path, lines):
    writer = metrics.Writer(tmp_path)
    writer.path.touch()
    for step, line in enumerate(lines):
        writer.write(step, {k: np.nan if v is None else v for k, v in line.items()})
    assert [path.name for path in figures.draw(tmp_path)] == ["progress.png"]


def test_user_mistakes(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing is not a run directory"):
        figures.draw(tmp_path / "missing")
    run = make_run(tmp_path / "run", predicted=False)
    with pytest.raises(ValueError, match="no vade/predicted_effective_ratio in"):
        figures.calibration([run], tmp_path / "a.png")
