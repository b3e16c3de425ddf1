"""A record of a run: small, and as good as the run for tables and figures."""

import dataclasses
import json
import math

import pytest

from experiments import results
from tests.report.comparison_test import make_run
from vade_jax.report import comparison, records
from vade_jax.store import rollout_log


def test_a_record_gives_the_table_of_its_run(tmp_path):
    runs = [
        records.of_directory(make_run(tmp_path / "a", 3, [0.1, 0.6, 0.4])),
        records.of_directory(make_run(tmp_path / "b", 4, [0.1, 0.3, 0.5], norm=False)),
    ]
    for run in runs:
        records.write(run, tmp_path / "kept" / "clean" / "gspo" / f"my_arm_seed{run.seed}.json")
    found = results.read(str(tmp_path / "kept"))
    assert list(found) == ["clean/gspo"] and list(found["clean/gspo"]) == ["my_arm"]
    again = found["clean/gspo"]["my_arm"]
    assert [run.config["seed"] for run in again] == [3, 4]
    kept, whole = (comparison.compare({"x": {"vade": of}}) for of in (again, runs))
    assert comparison.markdown(kept) == comparison.markdown(whole)
    for a, b in zip(again, runs, strict=True):
        assert list(a.records) == list(b.records)  # of few digits, and all of them kept


def test_the_folder_of_a_warm_start_is_left_out(tmp_path):
    config = {"seed": 0, "warm_start": {"directory": "/somewhere", "num_steps": 5}}
    records.write(records.Recorded("x", config, [{"step": 0}], 0.5), tmp_path / "x.json")
    again = records.read(tmp_path / "x.json")
    assert again.config["warm_start"] == {"directory": "", "num_steps": 5}


def test_what_no_table_needs_is_left_out(tmp_path):
    run = records.Recorded("x", {"seed": 0}, [{"step": 0}, {"step": 1, "actor/lr": 1.0}], math.nan)
    records.write(run, tmp_path / "x.json")
    again = records.read(tmp_path / "x.json")
    assert again.records == [{"step": 0}, {"step": 1}] and math.isnan(again.hopeless)
    assert dataclasses.replace(again, name="x", hopeless=0) == dataclasses.replace(
        run, records=[{"step": 0}, {"step": 1}], hopeless=0
    )


@pytest.mark.parametrize("steps", [[], [4], [0, 1, 3], [0, 5], [2, 3, 4]])
def test_a_record_has_the_steps_of_its_run(tmp_path, steps):
    """A run that stopped has none, one whose lines were lost has gaps."""
    found = [{"step": step, "vade/coverage": step / 4} for step in steps]
    records.write(records.Recorded("x", {"seed": 0}, found, 0.5), tmp_path / "x.json")
    assert records.read(tmp_path / "x.json").records == found


def test_the_first_of_a_metric_may_be_missing(tmp_path):
    found = [{"step": 0}, *({"step": step, "vade/coverage": 0.5} for step in (1, 3))]
    records.write(records.Recorded("x", {"seed": 0}, found, 0.5), tmp_path / "x.json")
    assert records.read(tmp_path / "x.json").records == found


def test_other_files_are_one_clear_error(tmp_path):
    with pytest.raises(ValueError, match=r"no ARM_seedN.json in it or below"):
        results.read(str(tmp_path))
    for text in ("{", "[]", '{"steps": [0, 1]}'):
        path = tmp_path / "vade_seed0.json"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"vade_seed0.json is no record of a run"):
            results.read(str(tmp_path))


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ("config", None),
        ("config", {}),
        ("config", {"seed": "x"}),
        ("hopeless", "x"),
        ("metrics", {"timing_s/step": {"values": [1, "x"]}}),
    ],
)
def test_a_record_with_something_else_in_it_is_one_clear_error(tmp_path, changed, value):
    path = tmp_path / "vade_seed0.json"
    steps = [{"step": step, "timing_s/step": 1.0} for step in range(3)]
    records.write(records.Recorded("x", {"seed": 0}, steps, 0.5), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {changed: value}))
    with pytest.raises(ValueError, match=r"vade_seed0.json is no record of a run"):
        records.read(path)


def test_seeds_of_one_arm_have_the_same_settings(tmp_path):
    for seed, num_steps in ((0, 60), (1, 60), (2, 100)):
        config = {"seed": seed, "num_steps": num_steps, "warm_start": {"directory": str(seed)}}
        run = records.Recorded("x", config, [{"step": 0}], 0.5)
        records.write(run, tmp_path / str(num_steps) / "clean" / f"vade_seed{seed}.json")
    results.read(str(tmp_path / "60"))
    with pytest.raises(ValueError, match=r"with other settings \(num_steps: 60 there, 100 now\)"):
        results.read(str(tmp_path / "60"), str(tmp_path / "100"))


def test_a_baseline_that_no_run_has_is_one_clear_line(tmp_path, capsys):
    run = records.Recorded("x", {"seed": 0}, [{"step": 0}], 0.5)
    records.write(run, tmp_path / "in" / "vanilla_seed0.json")
    command = ["--records", str(tmp_path / "in"), "--workdir", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        results.main([*command, "--baseline=vanila"])
    said = capsys.readouterr().err
    assert said == "error: --baseline='vanila': did you mean 'vanilla'? known are vanilla\n"


def test_some_of_the_arms(tmp_path):
    for arm in ("vanilla", "vade", "dapo"):
        run = records.Recorded("x", {"seed": 0}, [{"step": 0}], 0.5)
        records.write(run, tmp_path / "clean" / "gspo" / f"{arm}_seed0.json")
    groups = results.only(results.read(str(tmp_path)), ["vade", "vanilla"])
    assert {name: set(arms) for name, arms in groups.items()} == {"clean/gspo": {"vanilla", "vade"}}
    with pytest.raises(ValueError, match=r"--arms='vad': did you mean 'vade'\?"):
        results.only(groups, ["vad"])


def test_a_folder_given_twice_is_one_clear_line(tmp_path, capsys):
    run = records.Recorded("x", {"seed": 7}, [{"step": 0}], 0.5)
    records.write(run, tmp_path / "in" / "vanilla_seed7.json")
    folder, out = str(tmp_path / "in"), str(tmp_path / "out")
    with pytest.raises(SystemExit):
        results.main(["--records", folder, folder, "--workdir", out])
    said = capsys.readouterr().err
    assert said.startswith("error: --records: ") and said.count("\n") == 1
    assert said.endswith("/vanilla with seed 7: give one of them\n")


def test_a_workdir_that_cannot_be_written_is_one_clear_line(tmp_path, capsys):
    run = records.Recorded("x", {"seed": 7}, [{"step": 0}], 0.5)
    records.write(run, tmp_path / "in" / "vanilla_seed7.json")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        results.main(["--records", str(tmp_path / "in"), "--workdir", str(tmp_path / "file")])
    assert capsys.readouterr().err.startswith("error: [Errno")


def test_the_share_of_rollouts_on_hopeless_prompts(tmp_path):
    graded, impossible = {"stratum": "graded"}, {"stratum": "impossible"}
    wrong, both = graded | {"mislabelled": True}, impossible | {"mislabelled": True}
    for step, rows in ((1, [graded, wrong, both]), (2, [impossible])):
        rollout_log.write(rollout_log.path(tmp_path, step), {"metadata": rows})
    assert records.hopeless_share(tmp_path) == 0.75  # `both` counts once
    assert math.isnan(records.hopeless_share(tmp_path / "none"))
    other = {"metadata": [{"family": "x"}]}  # data that know no strata
    rollout_log.write(rollout_log.path(tmp_path / "other", 1), other)
    assert math.isnan(records.hopeless_share(tmp_path / "other"))
