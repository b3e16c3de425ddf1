"""The table of a sweep's runs: small, and as good as the runs for tables and figures."""

import dataclasses
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments import results
from experiments.arenas import comparison, records
from tests.experiments.arenas.comparison_test import make_run
from vade_jax.store import rollout_log, run_file


def recorded(seed=0, steps=({"step": 0},), hopeless=0.5, **config):
    return records.Recorded("x", {"seed": seed, **config}, list(steps), hopeless)


def again(run, path):
    """The run as its table has it."""
    records.write({"clean/gspo": {"vade": [run]}}, path)
    (found,) = records.read(path)["clean/gspo"]["vade"]
    return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept.parquet"


def test_a_table_of_runs_gives_the_tables_of_the_runs(tmp_path, path):
    runs = [
        records.of_directory(make_run(tmp_path / "a", 3, [0.1, 0.6, 0.4])),
        records.of_directory(make_run(tmp_path / "b", 4, [0.1, 0.3, 0.5], norm=False)),
    ]
    records.write({"clean/gspo": {"my_arm": runs}}, path)
    found = results.read(str(path))
    assert list(found) == ["clean/gspo"] and list(found["clean/gspo"]) == ["my_arm"]
    kept = found["clean/gspo"]["my_arm"]
    assert [run.config for run in kept] == [run.config for run in runs]
    tables = [comparison.compare({"x": {"vade": of}}) for of in (kept, runs)]
    assert comparison.markdown(tables[0]) == comparison.markdown(tables[1])
    for a, b in zip(kept, runs, strict=True):
        assert [*a.records] == [pytest.approx(x, rel=2e-4) for x in b.records]


def test_settings_of_each_run_come_back_whole(path):
    """What all share is kept once; an empty mapping, a tuple's list and a field of few are settings, too."""
    configs = [
        {"selector": {"name": "vade", "options": {"draw": "mean"}}, "frozen": ["a"]},
        {"selector": {"name": "uniform", "options": {}}, "frozen": ["a"], "new": None},
    ]
    runs = [recorded(seed, **config) for seed, config in enumerate(configs)]
    records.write({"clean/gspo": {"a": runs[:1], "b": runs[1:]}}, path)
    found = records.read(path)["clean/gspo"]
    assert [found["a"][0].config, found["b"][0].config] == [run.config for run in runs]


def test_folders_are_left_out_and_names_on_the_hub_are_kept(path):
    for given, kept in (("/somewhere/smollm2", "smollm2"), ("Org/Model", "Org/Model"), ("", "")):
        assert again(recorded(model={"checkpoint": given}), path).config["model"] == {
            "checkpoint": kept
        }


def test_a_run_that_began_from_a_warm_start_says_what_was_taught(tmp_path):
    run = make_run(tmp_path / "a", 3, [0.1, 0.6])
    model = {"checkpoint": str(tmp_path / "warm_start_seed3")}
    run_file.write(run, {"settings": run_file.settings_of(run) | {"model": model}})
    assert "lessons" not in records.of_directory(run).config
    start = tmp_path / "warm_start_seed3.start" / "config.json"
    start.parent.mkdir()
    start.write_text('{"seed": 3, "lessons": {"num_steps": 5}}')
    assert records.of_directory(run).config["lessons"] == {"num_steps": 5}


def test_what_no_table_needs_is_left_out(path):
    found = again(
        recorded(steps=[{"step": 0}, {"step": 1, "actor/lr": 1.0}], hopeless=math.nan), path
    )
    assert found.records == [{"step": 0}, {"step": 1}] and math.isnan(found.hopeless)


def test_counts_stay_whole_and_other_numbers_keep_five_digits(path):
    accuracy = "val/own/acc/mean@4"
    steps = [
        {"step": 1, "vade/tokens_total": 12_345_678_901, "timing_s/step": 0.123456},
        {"step": 2, "vade/tokens_total": 3, "timing_s/step": 1.0, accuracy: 0.123456},
    ]
    found = again(recorded(steps=steps), path)
    assert [x["vade/tokens_total"] for x in found.records] == [12_345_678_901, 3]
    assert [x["timing_s/step"] for x in found.records] == [0.12346, 1.0]
    assert found.records[1][accuracy] == 0.12346
    assert again(found, path).records == found.records


@pytest.mark.parametrize("steps", [[], [4], [0, 1, 3], [0, 5], [2, 3, 4]])
def test_a_record_has_the_steps_of_its_run(path, steps):
    """A run that stopped has none, one whose lines were lost has gaps."""
    found = [{"step": step, "vade/coverage": step / 4} for step in steps]
    assert again(recorded(steps=found), path).records == found


def test_a_metric_may_be_missing_at_some_steps_or_in_one_run(path):
    steps = [{"step": 0}, *({"step": step, "vade/coverage": 0.5} for step in (1, 3))]
    runs = [recorded(0, steps=steps), recorded(1)]
    records.write({"clean/gspo": {"vade": runs}}, path)
    assert [run.records for run in records.read(path)["clean/gspo"]["vade"]] == [
        steps,
        [{"step": 0}],
    ]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"{}"])
def test_other_files_are_one_clear_error(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"kept.parquet is no table of runs"):
        results.read(str(path))
    with pytest.raises(ValueError, match=r"gone.parquet is no table of runs .*No such file"):
        results.read(str(path.with_name("gone.parquet")))


def test_a_table_of_something_else_is_one_clear_error(path):
    pq.write_table(pa.table({"group": ["a"]}), path)
    with pytest.raises(ValueError, match=r"kept.parquet is no table of runs"):
        records.read(path)


def test_a_count_among_fractions_and_a_dot_in_an_option_are_kept(path):
    lines = [{"step": 0, "actor/grad_norm": 16777217}, {"step": 1, "actor/grad_norm": 0.5}]
    found = again(recorded(0, lines, engine={"options": {"a.b": 1, "~": 2}}), path)
    assert found.config["engine"] == {"options": {"a.b": 1, "~": 2}}
    assert [x["actor/grad_norm"] for x in found.records] == [16777000, 0.5]


def test_runs_of_two_calls_of_a_sweep():
    old, new = recorded(1, num_steps=1), recorded(1, num_steps=2)
    earlier = {"a/x": {"vade": [recorded(0), old], "dapo": [recorded(5)]}}
    assert records.joined(earlier, {"a/x": {"vade": [new]}, "b/x": {"vade": [old]}}) == {
        "a/x": {"vade": [recorded(0), new], "dapo": [recorded(5)]},
        "b/x": {"vade": [old]},
    }


def test_what_only_deleted_rollouts_told_is_kept_from_the_earlier_table():
    known = dataclasses.replace(recorded(0), hopeless=0.25)
    bare = dataclasses.replace(recorded(0), hopeless=math.nan)
    other = dataclasses.replace(bare, config=dict(bare.config, seed=1))
    earlier = {"a/x": {"vade": [known]}}
    both = records.joined(earlier, {"a/x": {"vade": [bare, other], "dapo": [bare]}})["a/x"]
    assert both["vade"][0] == known and math.isnan(both["vade"][1].hopeless)
    assert math.isnan(both["dapo"][0].hopeless)


def test_seeds_of_one_arm_have_the_same_settings(path):
    mixed = {"vade": [recorded(0, num_steps=60), recorded(1, num_steps=100)]}
    records.write({"clean/gspo": mixed}, path)
    with pytest.raises(ValueError, match="num_steps"):
        results.read(str(path))


def test_a_baseline_that_no_run_has_is_one_clear_line(tmp_path, path, capsys):
    records.write({"clean/gspo": {"uniform": [recorded()]}}, path)
    command = ["--records", str(path), "--workdir", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        results.main([*command, "--baseline=unifrom"])
    said = capsys.readouterr().err
    assert said == "error: --baseline='unifrom': did you mean 'uniform'? known are uniform\n"


def test_a_workdir_that_cannot_be_written_is_one_clear_line(tmp_path, path, capsys):
    records.write({"clean/gspo": {"uniform": [recorded(7)]}}, path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        results.main(["--records", str(path), "--workdir", str(tmp_path / "file")])
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
