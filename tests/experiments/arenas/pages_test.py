"""The tables of docs/: cells by hand from a small table of runs."""

import pytest

from experiments.arenas import pages, records

# Validations of two seeds; 4 answers to each of 100 questions
ONE, OTHER = pages.Column("one"), pages.Column("other")
SCORES = {"uniform": (0.5, 0.7), "vade": (0.6, 0.9), "kalman": (0.8,)}


@pytest.fixture(autouse=True)
def tables(tmp_path, monkeypatch):
    """Two tables of runs with one validation each; the second one's accuracies are 0.1 lower."""
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    for cached in (pages._records, pages._read, pages._compared):
        cached.cache_clear()
    for name, less in (("one", 0.0), ("other", 0.1)):
        arms = {
            arm: [run(seed, score - less) for seed, score in enumerate(scores)]
            for arm, scores in SCORES.items()
        }
        records.write({"clean/gspo": arms}, tmp_path / f"{name}.parquet")
    yield
    for cached in (pages._records, pages._read, pages._compared):
        cached.cache_clear()


def run(seed, score):
    config = {"seed": seed, "data": {"num_validation": 100}, "eval": {"num_samples": 4}}
    found = [{"step": 1, "val/validation/acc/mean@4": score, "vade/effective_ratio": 0.25}]
    return records.Recorded(f"run {seed}", config, found, hopeless=0.125)


def rows(text):
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[:1] + lines[2:]]


def test_differences_are_paired_and_few_seeds_are_said(capsys):
    pages.table("uniform vade kalman", {"a": ONE, "ratio": ONE._replace(show="effective_ratio")})
    head, base, vade, kalman = rows(capsys.readouterr().out)
    assert head == ["a", "ratio"]
    # t of one degree of freedom at 97.5 % is 12.706; the halves are sem * t.
    assert base == ["uniform", "0.600 ± 1.271 (2)", "0.25 (2)"]
    assert vade == ["vade", "+0.150 ± 0.635 (2)", "0.25 (2)"]
    assert kalman == ["kalman", "+0.300 (1)", "0.25 (1)"]


def test_a_mean_over_columns_is_of_each_seed_and_sweeps_can_be_rows(capsys):
    columns = {"a": ONE, "b": OTHER}
    pages.table("uniform vade", columns, mean={"both": ("a", "b")})
    found = rows(capsys.readouterr().out)
    assert found[2] == ["vade", *["+0.150 ± 0.635 (2)"] * 3]
    pages.table("uniform vade", columns, turned=True)
    found = rows(capsys.readouterr().out)
    assert found[0] == ["uniform", "vade"] and found[2][0] == "b"
    assert found[2][1].startswith("0.500")


def test_two_gains_are_compared_seed_by_seed(capsys):
    """By hand: vade gains 0.1 and 0.2 in both tables, kalman 0.3 with seed 0 alone."""
    pages.contrasts(
        {"a": ONE, "b": OTHER},
        {
            "kalman, vade": (("kalman", ["a"]), ("vade", ["a", "b"])),
            "nothing, vade": (("uniform", ["a"]), ("vade", ["b"])),
        },
    )
    _, kalman, nothing = rows(capsys.readouterr().out)
    assert kalman == ["kalman, vade", "+0.200 (1)"]
    assert nothing == ["nothing, vade", "-0.150 ± 0.635 (2)"]


@pytest.fixture
def lags(monkeypatch):
    """Two arenas, named as their tables; uncorrected, the first has the runs of the second, 0.1 lower."""
    of_lag = {"in turns": pages.Column, "L = 1": pages.Column, "L = 4": pages.Column}
    of_lag["uncorrected"] = lambda arena: OTHER
    monkeypatch.setattr(pages, "LAGS", of_lag)
    monkeypatch.setattr(pages, "LAG_ARENAS", ("one", "other"))


def test_lag_is_compared_with_the_same_seed_in_turns(lags, monkeypatch, capsys):
    monkeypatch.setattr(pages, "SHOWN", ("uniform", "vade"))
    pages.moved_by_lag()
    head, *lines = rows(capsys.readouterr().out)
    assert head == ["L = 1", "L = 4", "uncorrected", "what the correction brings"]
    none, half = "+0.000 (2)", ["-0.050 (2)", "+0.050 (2)"]
    assert lines == [
        ["one", none, none, "-0.100 (2)", "+0.100 (2)"],
        ["other", none, none, none, none],
        *([name, none, none, *half] for name in ("uniform", "vade", "all")),
    ]


def test_what_arms_cost_is_a_column(tmp_path, capsys):
    paid = lambda total: [{"step": 1, "vade/tokens_total": 10 * total}]
    arms = {
        arm: [records.Recorded(arm, {"seed": 0}, paid(total), hopeless=0.0)]
        for arm, total in (("uniform", 64), ("vade", 2048))
    }
    records.write({"clean/gspo": arms}, tmp_path / "paid.parquet")
    pages.table("uniform vade", {"tokens": pages.Column("paid", show="answer tokens")})
    assert rows(capsys.readouterr().out)[1:] == [["uniform", "640 (1)"], ["vade", "20,480 (1)"]]


def test_controls_that_fail_are_said_arena_by_arena(capsys):
    pages.checked({"a": ONE})
    head, line = rows(capsys.readouterr().out)
    assert head == ["dose", "oracle", "headroom", "error"]
    assert line[:2] == ["a", "did not run: fails"] and len(line) == 5


def test_tables_are_joined_and_their_arms_get_endings(capsys):
    pages.table(
        "uniform_8 vade_4", {"a": pages.Column({"one": "_4", "other": "_8"})}, baseline="uniform_8"
    )
    assert rows(capsys.readouterr().out)[2] == ["vade_4", "+0.250 ± 0.635 (2)"]
