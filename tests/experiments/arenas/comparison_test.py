"""The table of a sweep by hand arithmetic, from run directories as runs leave them."""

import json
import math

import pytest

from experiments.arenas import comparison, figures, maps, records
from vade_jax.store import metrics, rollout_log


def make_run(workdir, seed, scores, *, ratio=0.5, norm=True, hopeless=1, prompts=16, rate=1e-4):
    """Step k: 64 rollouts, 60 s, validation at every step from 0; `hopeless` of 4 answers a step."""
    workdir.mkdir(parents=True)
    config = {"seed": seed, "num_prompts": prompts, "num_rollouts": 8, "data": {"num_train": 512}}
    config["optimizer"] = {"learning_rate": rate}
    (workdir / "config.json").write_text(json.dumps(config))
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
    (workdir / "metrics.jsonl").write_bytes(b"".join(lines))
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


def test_the_outcome_of_a_run(tmp_path):
    run = recorded(tmp_path / "x", 3, [0.1, 0.6, 0.4, 0.2, 0.3]).outcome
    assert (run.last, run.best, run.rollouts) == (0.3, 0.6, 256)
    assert run.late == pytest.approx(0.3)  # of 0.4, 0.2, 0.3
    assert (run.effective_ratio, run.varied, run.hopeless) == (0.5, 0.6, 0.25)
    assert run.forgotten == pytest.approx(0.03)  # of .02, .03, .04
    assert math.isnan(run.overshoot)  # a selector without a forecast
    assert run.rollouts_to_reach(0.05) == 64  # not before the first step
    assert run.rollouts_to_reach(0.2) == 64
    assert math.isnan(run.rollouts_to_reach(0.7))
    assert math.isnan(run.rollouts_to_reach(math.nan))


def test_a_forecast_is_too_high_by_the_mean_of_the_steps_that_have_one():
    steps = [{"step": 0, "vade/effective_ratio_correct": 0.9}]
    for step, (predicted, observed) in enumerate([(0.7, 0.2), (0.5, 0.6)], 1):
        of_step = {"vade/predicted_effective_ratio": predicted}
        steps.append({"step": step, "vade/effective_ratio_correct": observed} | of_step)
    run = records.Recorded("x", {"seed": 0}, steps, math.nan)
    assert run.outcome.overshoot == pytest.approx((0.5 - 0.1) / 2)


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


def test_tables_and_figures_of_a_sweep(groups, tmp_path):
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
    directories = make_runs(tmp_path / "once_more")
    directories["wrong10/gspo"] = {"vade": directories["clean/gspo"]["vade"]}
    comparison.write_selection(directories, folder)
    text = (folder / "selection.md").read_text()
    assert text.startswith("## clean/gspo\n\n| family, level | uniform | vade |")
    assert "## wrong10/gspo\n\n| family, level | vade |" in text
    assert "the last 25% of the steps" in text

    figures.draw_sweep(groups, compared, folder)
    pictures = {path.stem: path.read_bytes() for path in folder.glob("*.png")}
    names = {"effective_ratio", "learning", "rollouts", "arms"}
    assert pictures.keys() == names  # no run predicts
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())

    one = groups["clean/gspo"]["uniform"]
    grid = {"clean/gspo": {"decay_0_999": one, "decay_200_1000": one}}  # half of it is there
    figures.draw_sweep(grid, comparison.compare(grid), tmp_path / "grid")
    assert (tmp_path / "grid" / "decays.png").exists()


def test_a_map_of_settings_has_those_that_differ_in_one(groups, tmp_path, monkeypatch):
    arm = lambda name, **kwargs: [recorded(tmp_path / name, 0, [0.1, 0.2], **kwargs)]
    smaller = {"uniform": arm("one", prompts=8), "vade": arm("two", prompts=8)}
    drawn = []
    monkeypatch.setattr(maps, "_draw_setting", lambda panel, arms, *_: drawn.append(arms) or {})
    groups |= {"prompts=8/clean/gspo": smaller}
    compared = comparison.compare(groups)
    maps.draw_settings(groups, compared, {}, tmp_path / "map.png")
    wanted = [compared.groups[name] for name in ("prompts=8/clean/gspo", "clean/gspo")]
    assert drawn == [wanted] and (tmp_path / "map.png").exists()


def test_rates_are_drawn_where_an_arm_has_two(groups, tmp_path):
    maps.draw_rates(groups, comparison.compare(groups), tmp_path / "rates.png")
    assert not (tmp_path / "rates.png").exists()
    groups["clean/gspo"]["vade@2e-4"] = [recorded(tmp_path / "fast", 0, [0.1, 0.2], rate=2e-4)]
    maps.draw_rates(groups, comparison.compare(groups), tmp_path / "rates.png")
    assert (tmp_path / "rates.png").exists()


def test_the_ticks_of_rates_keep_their_digits():
    texts = {2e-4: "2e-4", 1.4e-4: "1.4e-4", 1e-10: "1e-10", 3e-4 / 2: "1.5e-4"}
    assert {rate: maps._power_of_ten(rate) for rate in texts} == texts


def test_user_mistakes(groups, tmp_path):
    arms = groups["clean/gspo"]
    arms["vade"] = [*arms["vade"], recorded(tmp_path / "again", 7, [0.1, 0.2])]
    with pytest.raises(ValueError, match=r"vade: .*again and .*c both have seed 7"):
        comparison.compare(groups)
    (tmp_path / "again" / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"again has no config\.json, so no seed"):
        records.of_directory(tmp_path / "again")
    with pytest.raises(FileNotFoundError, match="no rollouts in"):
        comparison.selection_table({"one": [tmp_path]})


# ------------------------------------------------------------------------------ what was chosen
def write_rollouts(workdir, step, families, correct):
    """Two answers a group."""
    group = [m for m in range(len(families)) for _ in range(2)]
    rows = {"group": group, "correct": correct}
    rows["metadata"] = [{"family": families[m], "level": 0} for m in group]
    rollout_log.write(rollout_log.path(workdir, step), rows)


def test_runs_whose_rollouts_were_deleted_are_named_in_their_place(tmp_path):
    write_rollouts(tmp_path / "a", 1, ["x"], [1, 0])
    gone = tmp_path / "gone"
    directories = {"part": {"one": [tmp_path / "a", gone], "two": [gone]}, "none": {"two": [gone]}}
    comparison.write_selection(directories, tmp_path)
    note = f"Not counted, as their rollouts are not there: {gone}"
    lines = (tmp_path / "selection.md").read_text().splitlines()
    assert lines[2:5] == ["| family, level | one |", "| --- | --- |", "| x 0 | 100% (1.00) |"]
    assert lines[6] == f"{note}, {gone}"
    assert lines[8:11] == ["## none", "", note]


def test_answers_without_a_verdict_are_in_no_group(tmp_path):
    """Two right answers and one that nobody judged teach nothing; of the third group nothing is known."""
    write_rollouts(tmp_path / "a", 1, ["x", "x", "y"], [1, None, 1, 0, None, None])
    lines = comparison.selection_table({"one": [tmp_path / "a"]}).splitlines()
    assert lines[2:] == ["| x 0 | 100% (0.50) |"]


def test_tables_are_replaced_whole(groups, tmp_path, monkeypatch):
    """A disk that is full leaves the tables of before."""
    for name in ("table.md", "table.json", "selection.md"):
        (tmp_path / name).write_text("before")

    def refuse(path, *_):
        raise OSError(f"no room for {path}")

    monkeypatch.setattr(comparison.atomic, "write_text", refuse)
    with pytest.raises(OSError, match="no room"):
        comparison.write(groups, tmp_path)
    with pytest.raises(OSError, match="no room"):
        comparison.write_selection({}, tmp_path)
    assert {path.read_text() for path in tmp_path.glob("*.*")} == {"before"}


def test_shares_and_mixed_groups_of_the_last_steps(tmp_path):
    write_rollouts(tmp_path / "a", 1, ["old", "old"], [1, 1, 1, 1])
    write_rollouts(tmp_path / "a", 2, ["x", "y"], [1, 0, 1, 1])
    write_rollouts(tmp_path / "b", 1, ["x", "x"], [0, 0, 1, 0])
    arms = {"one": [tmp_path / "a"], "two": [tmp_path / "b"]}
    lines = comparison.selection_table(arms).splitlines()
    assert lines[0] == "| family, level | one | two |"
    assert lines[2:] == [
        "| x 0 | 50% (1.00) | 100% (0.50) |",
        "| y 0 | 50% (0.00) | - |",
    ]


def test_batches_are_drawn_with_the_best_rate_of_each(groups, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(maps, "_rates_axis", lambda panel, lines: drawn.extend(lines))
    one = lambda name, late, **kwargs: [recorded(tmp_path / name, 0, [0.1, late], **kwargs)]
    groups = {
        "8/gspo": {
            "uniform@1e-4": one("a", 0.3, prompts=8, rate=1e-4),
            "uniform@2e-4": one("b", 0.2, prompts=8, rate=2e-4),
        }
    }
    path = tmp_path / "batches.png"
    maps.draw_batches(groups, comparison.compare(groups, baseline="uniform@1e-4"), path)
    assert not path.exists()
    groups["16/gspo"] = {
        "uniform@1e-4": one("c", 0.2, prompts=16, rate=1e-4),
        "uniform@2e-4": one("d", 0.4, prompts=16, rate=2e-4),
        "vade@2e-4": one("e", 0.9, prompts=16, rate=2e-4),
    }
    again = {f"uniform@{i}e-4": one(f"f{i}", 0.9, prompts=8, rate=i * 1e-4) for i in (1, 3)}
    longer = lambda name, **kwargs: [recorded(tmp_path / name, 0, [0.1, 0.2, 0.9], **kwargs)]
    others = {f"uniform@{i}e-4": longer(f"h{i}", prompts=32, rate=i * 1e-4) for i in (1, 2)}
    groups |= {"8/grpo": again, "32/gspo": others}  # the same batch again; other rollouts
    maps.draw_batches(groups, comparison.compare(groups, baseline="uniform@1e-4"), path)
    assert path.exists()
    assert [list(by_rate) for by_rate in drawn] == [[1e-4, 2e-4]] * 2
    assert drawn[1][2e-4].means["late"].mean == 0.4
