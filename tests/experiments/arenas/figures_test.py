"""Figures exist, from metrics.jsonl alone, whatever a run has measured."""

from experiments.arenas import figures
from tests.report.report_run import NUM_STEPS, write_metrics
from vade_jax.report import curves
from vade_jax.store import metrics


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
