"""The table of a sweep's runs: small, and as good as the runs for tables and figures."""

import pytest

from experiments.arenas import comparison, records
from tests.experiments.arenas import made
from vade_jax.store import metrics, rollout_log, run_file


def recorded(seed=0, steps=({"step": 0},), **config):
    return records.Recorded("x", {"seed": seed, **config}, list(steps), hopeless=0.5)


def again(path, *runs):
    """The runs as their table has them."""
    records.write({"clean/gspo": {"vade": runs}}, path)
    return records.read(path)["clean/gspo"]["vade"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept.parquet"


def test_a_run_directory_and_its_table_give_the_same_tables(tmp_path, path):
    """Of 4 answers a step one is hopeless: its picture does not show the answer, or its gold is wrong."""
    of_step = {"vade/effective_ratio": 0.6, "timing_s/step": 60.0, "actor/lr": 1.0}
    runs = []
    for seed, scores in ((3, [0.1, 0.6, 0.4]), (4, [0.1, 0.3, 0.5])):
        source, workdir = made.recorded(seed, scores, **of_step), tmp_path / str(seed)
        model = {"checkpoint": str(tmp_path / f"warm_start_seed{seed}")}
        run_file.write(workdir, {"settings": dict(source.config, model=model)})
        (workdir / metrics.FILE).write_text("".join(map(metrics.line, source.records)))
        strata = ["impossible" if seed == 3 else "graded", "graded", "graded", "graded"]
        rows = [{"stratum": x, "mislabelled": seed == 4 and i == 1} for i, x in enumerate(strata)]
        rollout_log.write(rollout_log.path(workdir, 1), {"metadata": rows})
        runs.append(records.of_directory(workdir))
    assert [run.hopeless for run in runs] == [0.25, 0.25]
    kept = again(path, *runs)
    for a, b in zip(kept, runs, strict=True):
        expected = [{k: v for k, v in x.items() if k != "actor/lr"} for x in b.records]
        assert [*a.records] == [pytest.approx(x, rel=2e-4) for x in expected]
        # Places mean nothing elsewhere.
        assert a.config == b.config | {"model": {"checkpoint": f"warm_start_seed{a.seed}"}}
    tables = [comparison.compare({"x": {"vade": of}}) for of in (kept, runs)]
    assert comparison.markdown(tables[0]) == comparison.markdown(tables[1])
    start = tmp_path / "warm_start_seed3.start" / "config.json"  # what the warm start has taught
    start.parent.mkdir()
    start.write_text('{"seed": 3, "lessons": {"num_steps": 5}}')
    assert records.of_directory(tmp_path / "3").config["lessons"] == {"num_steps": 5}
    (tmp_path / "3" / "run.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"run.json"):
        records.of_directory(tmp_path / "3")


def test_settings_of_each_run_come_back_whole(path):
    """What all share is kept once; an empty mapping, a list, None and names with dots are settings also."""
    runs = [
        recorded(0, selector={"name": "vade", "options": {"draw": "mean"}}, frozen=["a"]),
        recorded(1, selector={"name": "uniform", "options": {}}, frozen=["a"], new=None),
        recorded(2, engine={"options": {"a.b": 1, "~": 2}}, model={"checkpoint": "Org/Model"}),
    ]
    assert [run.config for run in again(path, *runs)] == [run.config for run in runs]


def test_counts_stay_whole_and_other_numbers_keep_five_digits(path):
    steps = [
        {"step": 1, "vade/tokens_total": 12_345_678_901, "timing_s/step": 0.123456},
        {"step": 2, "vade/tokens_total": 3, "timing_s/step": 1.0, "val/own/acc/mean@4": 0.123456},
        {"step": 5, "timing_s/step": 16777217},  # steps between were lost
    ]
    found = again(path, recorded(steps=steps), recorded(1, steps=[]))
    assert found[0].records == [
        {"step": 1, "vade/tokens_total": 12_345_678_901, "timing_s/step": 0.12346},
        {"step": 2, "vade/tokens_total": 3, "timing_s/step": 1.0, "val/own/acc/mean@4": 0.12346},
        {"step": 5, "timing_s/step": 16777000},
    ]
    assert found[1].records == [] and again(path, found[0])[0].records == found[0].records
