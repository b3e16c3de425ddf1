"""The table of a sweep by hand arithmetic, from run directories as runs leave them."""

import json
import math

import pytest

from experiments.arenas import comparison, figures, records
from vade_jax.store import metrics, rollout_log


def make_run(workdir, seed, scores, *, ratio=0.5, norm=True, hopeless=1, prompts=16, rate=1e-4):
    """Step k: 64 rollouts, 60 s, validation at every step from 0; `hopeless` of 4 answers a step."""
    workdir.mkdir(parents=True)
    config = {"seed": seed, "num_prompts": prompts, "num_rollouts": 8, "data": {"num_train": 512}}
    config["optimizer"] = {"learning_rate": rate}
    (workdir / "run.json").write_text(json.dumps({"settings": config}))
    lines = []
    for step, score in enumerate(scores):
        line = {"step": step, "val/tiny/acc/mean@4": score}
        if step:
            line["val-aux/validation/forgotten"] = step / 100
            line |= {"vade/rollouts_total": 64 * step, "vade/effective_ratio": ratio + 0.1}
            line |= {"vade/trained_effective_ratio_correct": ratio}
            line |= {"timing_s/step": 60.0} | ({"actor/grad_norm": 1.0} if norm else {})
            strata = ["impossible"] * hopeless + ["graded"] * (4 - hopeless)
            table = {"metadata": [{"stratum": stratum} for stratum in strata]}
            table |= {"group": [0, 0, 1, 1], "correct": [1, 0, 1, 1]}
            rollout_log.write(rollout_log.path(workdir, step), table)
        lines.append(metrics.line(line))
    (workdir / "metrics.jsonl").write_text("".join(lines))
    return workdir


def recorded(*args, **kwargs):
    return records.of_directory(make_run(*args, **kwargs))


@pytest.fixture
def groups(tmp_path):
    return {
        name: {arm: list(map(records.of_directory, paths)) for arm, paths in arms.items()}
        for name, arms in make_runs(tmp_path).items()
    }


def make_runs(tmp_path):
    base, vade = tmp_path / "uniform", tmp_path / "vade"
    return {
        "clean/gspo": {
            "uniform": [
                make_run(base / "0", 0, [0.1, 0.2, 0.4, 0.3, 0.3]),
                make_run(base / "1", 1, [0.1, 0.3, 0.5, 0.6, 0.4]),
            ],
            "vade": [  # the order of directories says nothing about seeds
                make_run(vade / "b", 1, [0.1, 0.4, 0.5, 0.5, 0.5], hopeless=0),
                make_run(vade / "a", 0, [0.1, 0.4, 0.5, 0.4, 0.6], norm=False),
                make_run(vade / "c", 7, [0.1, 0.2, 0.2, 0.2, 0.2], ratio=0.8),
            ],
        }
    }


def test_the_numbers_of_a_run(tmp_path):
    run = recorded(tmp_path / "x", 3, [0.1, 0.6, 0.4, 0.2, 0.3])
    assert comparison.of_run(run) == {
        "late": pytest.approx(0.3),  # of 0.4, 0.2, 0.3
        "last": 0.3,
        "effective_ratio": 0.5,
        "varied": 0.6,
        "overshoot": pytest.approx(math.nan, nan_ok=True),  # a selector without a forecast
        "forgotten": pytest.approx(0.03),  # of .02, .03, .04
        "hopeless": 0.25,
    }
    assert (comparison.best(run), run.outcome.rollouts) == (0.6, 256)
    reach = lambda target: comparison.rollouts_to_reach(run, target)
    assert reach(0.05) == 64  # not before the first step
    assert reach(0.2) == 64
    assert math.isnan(reach(0.7)) and math.isnan(reach(math.nan))


def test_a_forecast_is_too_high_by_the_mean_of_the_steps_that_have_one():
    steps = [{"step": 0, "vade/effective_ratio_correct": 0.9}]
    for step, (predicted, observed) in enumerate([(0.7, 0.2), (0.5, 0.6)], 1):
        of_step = {"vade/predicted_effective_ratio": predicted}
        steps.append({"step": step, "vade/effective_ratio_correct": observed} | of_step)
    run = records.Recorded("x", {"seed": 0}, steps, math.nan)
    assert comparison.of_run(run)["overshoot"] == pytest.approx((0.5 - 0.1) / 2)


def test_arms_are_paired_by_seed(groups):
    rows = comparison.compare(groups).groups["clean/gspo"]
    assert rows["vade"].seeds == (0, 1, 7)
    assert rows["vade"].values["last"] == (0.6, 0.5, 0.2)
    # seed 0: mean of .5 .4 .6 less that of .4 .3 .3; seed 1: .5 less the mean of .5 .6 .4
    assert rows["vade"].differences == pytest.approx((1 / 6, 0.0))
    assert rows["vade"].difference.mean == pytest.approx(1 / 12)
    # their deviation is 1/6 / sqrt 2, the error 1/12, and t of one degree of freedom 12.706
    assert rows["vade"].difference.half == pytest.approx(12.706 / 12, rel=1e-4)
    # seed 0 reaches uniform's 0.4 at its first step, seed 1 never its 0.6; 7 has no partner
    assert rows["vade"].reach["reach"] == pytest.approx((64, math.nan), nan_ok=True)
    assert rows["uniform"].reach["reach"] == (128, 192)
    assert rows["vade"].values["hopeless"] == (0.25, 0.0, 0.25)
    assert rows["vade"].means["effective_ratio"].mean == pytest.approx(0.6)


def test_shares_of_the_baselines_best_are_reached_one_by_one(tmp_path):
    """0.45, 0.475 and 0.5."""
    runs = {
        "uniform": [recorded(tmp_path / "uniform", 0, [0.1, 0.2, 0.2, 0.5])],
        "vade": [recorded(tmp_path / "vade", 0, [0.1, 0.46, 0.48, 0.5])],
    }
    reach = comparison.compare({"clean/gspo": runs}).groups["clean/gspo"]["vade"].reach
    assert reach == {"reach_90": (64,), "reach_95": (128,), "reach": (192,)}


def test_a_runs_best_in_percent_of_dapos(tmp_path):
    """Of the same seed: 0.5 of 0.8 and 0.6 of 0.4; seed 7 has no partner."""
    vade, dapo = tmp_path / "vade", tmp_path / "dapo"
    runs = {
        "vade": [
            recorded(vade / "0", 0, [0.1, 0.5, 0.3]),
            recorded(vade / "1", 1, [0.1, 0.2, 0.6]),
            recorded(vade / "7", 7, [0.1, 0.9]),
        ],
        "dapo": [recorded(dapo / "1", 1, [0.1, 0.4]), recorded(dapo / "0", 0, [0.9, 0.8])],
    }
    compared = comparison.compare({"clean/gspo": runs})
    found = compared.groups["clean/gspo"]
    assert found["vade"].of_peak.mean == pytest.approx((62.5 + 150) / 2)
    assert (found["vade"].of_peak.count, found["dapo"].of_peak.mean) == (2, 100)
    assert "| best, % of dapo's |" in comparison.markdown(compared)
    alone = comparison.compare({"clean/gspo": {"vade": runs["vade"]}})
    assert "dapo" not in comparison.markdown(alone)


def test_tables_and_curves_of_a_sweep(groups, tmp_path):
    groups["wrong10/gspo"] = {"vade": groups["clean/gspo"]["vade"]}  # and no baseline
    folder = tmp_path / "new"
    compared = comparison.write(groups, folder)
    text = comparison.markdown(compared)
    title, _, head, _, uniform, vade = text.splitlines()[:6]
    assert title == "## clean/gspo" and "## wrong10/gspo" in text
    assert "| mean of the last 3 validations | difference to uniform | last" in head
    cells = dict(zip(head.split("|"), vade.split("|"), strict=True))
    assert cells[" arm "] == " vade " and cells[" seeds "] == " 3 "
    assert cells[" difference to uniform "] == " +0.083 ± 1.059 (2 of 3) "
    # The one that gets there after 64, and all 256 of the one that never does.
    reached = [cells[" rollouts to 90 % of uniform's best "], cells[" to all of it "]]
    assert reached == [" ≥ 160 (1 of 2) "] * 2
    assert "| 160 (2 of 2) |" in uniform and "|  |" in uniform
    assert (folder / "table.md").read_text() == text + "\n"
    read = json.loads((folder / "table.json").read_text())
    assert read["groups"]["clean/gspo"]["vade"]["reach"]["reach"] == [64, None]
    figures.draw_curves(groups, folder / "learning.png")
    assert (folder / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_user_mistakes(groups, tmp_path):
    arms = groups["clean/gspo"]
    arms["vade"] = [*arms["vade"], recorded(tmp_path / "again", 7, [0.1, 0.2])]
    with pytest.raises(ValueError, match=r"both have seed 7"):
        comparison.compare(groups)
    (tmp_path / "again" / "run.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"again has no run.json"):
        records.of_directory(tmp_path / "again")


def test_tables_are_replaced_whole(groups, tmp_path, monkeypatch):
    """A disk that is full leaves the tables of before."""
    for name in ("table.md", "table.json"):
        (tmp_path / name).write_text("before")

    def refuse(path, *_):
        raise OSError(f"no room for {path}")

    monkeypatch.setattr(comparison.atomic, "write_text", refuse)
    with pytest.raises(OSError, match="no room"):
        comparison.write(groups, tmp_path)
    assert {path.read_text() for path in tmp_path.glob("*.*")} == {"before"}
