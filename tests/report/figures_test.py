"""Figures exist, from metrics.jsonl alone, whatever a run has measured."""

import math

import pytest

from tests.report.report_run import NUM_STEPS, write_metrics
from vade_jax.report import curves, figures, plotting
from vade_jax.store import metrics


def test_draw_makes_the_figures_of_a_run(tmp_path):
    write_metrics(tmp_path)
    paths = figures.draw(tmp_path)
    names = ["progress.png", "calibration.png", "details.png"]
    assert paths == [tmp_path / "figures" / name for name in names]
    for path in paths:
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG") and 2_000 < len(data) <= plotting.MAX_BYTES


def test_each_arm_with_a_forecast_has_a_panel_of_it(tmp_path, monkeypatch):
    write_metrics(tmp_path)
    records = metrics.read(tmp_path)
    silent = [{k: v for k, v in x.items() if k != curves.PREDICTED} for x in records]
    drawn = {}
    monkeypatch.setattr(
        figures,
        "_draw_forecast",
        lambda axes, arm, predicted, _: drawn.update({arm: len(predicted)}),
    )
    arms = {"uniform": [silent], "vade@5e-5": [records, records], "informed": [records], "none": []}
    assert figures.draw_calibration(arms, tmp_path / "of_arms.png")
    assert drawn == {"vade@5e-5": 2 * NUM_STEPS, "informed": NUM_STEPS}
    assert not figures.draw_calibration({"uniform": [silent]}, tmp_path / "of_none.png")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"vade/effective_ratio": math.nan, "other": 1}],
        [{"actor/grad_norm": 9.0**step} for step in range(7)],  # spikes
    ],
)
def test_draw_takes_a_run_with_next_to_nothing(tmp_path, lines):
    writer = metrics.Writer(tmp_path)
    writer.path.touch()
    for step, line in enumerate(lines):
        writer.write(step, line)
    assert [path.name for path in figures.draw(tmp_path)] == ["progress.png"]
