"""The tables of docs/: cells by hand from a small table of runs."""

import pytest

from experiments.arenas import pages, records

# Validations of two seeds; 4 answers to each of 100 questions
SCORES = {"uniform": (0.5, 0.7), "vade": (0.6, 0.9), "kalman": (0.8,)}


@pytest.fixture(autouse=True)
def tables(tmp_path, monkeypatch):
    """Two tables of runs with one validation each; the second one's accuracies are 0.1 lower."""
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    pages._read.cache_clear()
    pages._compared.cache_clear()
    for name, less in (("one", 0.0), ("other", 0.1)):
        arms = {
            arm: [run(seed, score - less) for seed, score in enumerate(scores)]
            for arm, scores in SCORES.items()
        }
        records.write({"clean/gspo": arms}, tmp_path / f"{name}.parquet")
    yield
    pages._read.cache_clear()
    pages._compared.cache_clear()


def run(seed, score):
    config = {"seed": seed, "data": {"num_validation": 100}, "eval": {"num_samples": 4}}
    found = [{"step": 1, "val/validation/acc/mean@4": score, "vade/effective_ratio": 0.25}]
    return records.Recorded(f"run {seed}", config, found, hopeless=0.125)


def rows(text):
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[:1] + lines[2:]]


def test_differences_are_paired_and_few_seeds_are_said(capsys):
    pages.table("uniform vade kalman", {"a": "one", "ratio": "one::effective_ratio"})
    head, base, vade, kalman = rows(capsys.readouterr().out)
    assert head == ["a", "ratio"]
    # t of one degree of freedom at 97.5 % is 12.706; the halves are sem * t.
    assert base == ["uniform", "0.600 ± 1.271 (2)", "0.25 (2)"]
    assert vade == ["vade", "+0.150 ± 0.635 (2)", "0.25 (2)"]
    assert kalman == ["kalman", "+0.300 (1)", "0.25 (1)"]


def test_other_quantities_are_compared_seed_by_seed_too(capsys):
    pages.above("one", "uniform vade kalman", {"accuracy": "late"})
    head, row = rows(capsys.readouterr().out)
    assert head == ["uniform", "vade", "kalman"]
    assert row == ["accuracy", "0.600 ± 1.271 (2)", "+0.150 ± 0.635 (2)", "+0.300 (1)"]


def test_a_mean_over_columns_is_of_each_seed_and_sweeps_can_be_rows(capsys):
    columns = {"a": "one", "b": "other"}
    pages.table("uniform vade=ours", columns, mean={"both": ("a", "b")})
    found = rows(capsys.readouterr().out)
    assert found[2] == ["ours", *["+0.150 ± 0.635 (2)"] * 3]
    pages.turned("uniform vade=ours", columns)
    found = rows(capsys.readouterr().out)
    assert found[0] == ["uniform", "ours"] and found[2][0] == "b"
    assert found[2][1].startswith("0.500")


def test_two_gains_are_compared_seed_by_seed(capsys):
    """By hand: vade gains 0.1 and 0.2 in both tables, kalman 0.3 with seed 0 alone."""
    pages.contrasts(
        {"a": "one", "b": "other"},
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
    own, other = ("{}", "clean/gspo"), ("other", "clean/gspo")
    of_lag = {"in turns": own, "L = 1": own, "L = 4": own, "uncorrected": other}
    monkeypatch.setattr(pages, "LAGS", of_lag)
    monkeypatch.setattr(pages, "LAG_ARENAS", ("one", "other"))


def test_lag_is_compared_with_the_same_seed_in_turns(lags, monkeypatch, capsys):
    monkeypatch.setattr(pages, "SHOWN", ("uniform", "vade"))
    pages.moved_by_lag()
    head, _, of_one, _, of_other, *means = rows(capsys.readouterr().out)
    assert head == ["in turns", "L = 1", "L = 4", "uncorrected", "what the correction brings"]
    none = "+0.000 (2)"
    assert of_one == ["one, vade", "0.750 ± 1.906 (2)", none, none, "-0.100 (2)", "+0.100 (2)"]
    assert of_other == ["other, vade", "0.650 ± 1.906 (2)", none, none, none, none]
    assert means == [
        ["one, mean", "", none, none, "-0.100 (2)", "+0.100 (2)"],
        ["other, mean", "", none, none, none, none],
        ["mean", "", none, none, "-0.050 (2)", "+0.050 (2)"],
    ]


def test_a_gain_by_lag_is_over_uniform_with_the_same_lag_and_then_a_change(
    lags, monkeypatch, capsys
):
    monkeypatch.setattr(pages, "SHOWN", ("uniform", "vade"))
    pages.by_lag("difference")
    head, in_turns, same, _, uncorrected = rows(capsys.readouterr().out)
    assert head == ["uniform", "vade"]
    assert in_turns == ["in turns", "0.550 ± 1.271 (2)", "+0.150 ± 0.635 (2)"]
    assert same == ["L = 1", "+0.000 (2)", "+0.000 (2)"]
    # uniform falls by 0.1 in one of two arenas, vade as much
    assert uncorrected == ["uncorrected", "-0.050 ± 0.000 (2)", "+0.000 (2)"]
    pages.by_lag("effective_ratio")
    found = rows(capsys.readouterr().out)
    assert found[1:3] == [["in turns", "0.25 (2)", "0.25 (2)"], ["L = 1", "+0.00 (2)", "+0.00 (2)"]]


def test_lags_are_compared_on_the_seeds_that_all_have(lags, monkeypatch, capsys):
    """One arm has seed 0 alone, so uniform shows that seed alone, too: 0.5 and 0.4."""
    monkeypatch.setattr(pages, "SHOWN", ("uniform", "kalman"))
    pages.by_lag("difference")
    assert rows(capsys.readouterr().out)[1] == ["in turns", "0.450 (1)", "+0.300 (1)"]


def test_what_arms_cost_in_columns_by_name(tmp_path, capsys):
    paid = lambda total: [
        {"step": 1, "vade/rollouts_total": total, "vade/tokens_total": 10 * total}
    ]
    arms = {
        arm: [records.Recorded(arm, {"seed": 0}, paid(total), hopeless=0.0)]
        for arm, total in (("uniform", 64), ("vade", 2048))
    }
    records.write({"clean/gspo": arms}, tmp_path / "paid.parquet")
    pages.spent("paid", "uniform vade", ["answer tokens", "answers"])
    assert rows(capsys.readouterr().out) == [
        ["answer tokens", "answers"],
        ["uniform", "640", "64"],
        ["vade", "20,480", "2,048"],
    ]


def test_accuracy_by_family_before_and_after(tmp_path, capsys):
    """The last three of four validations are (.3 + .6 + .9) / 3; "forgotten" is no family."""
    of = lambda scores: [
        {
            "step": step,
            "val/validation/acc/mean@4": x / 2,
            "val-aux/validation/plus/acc/mean@4": x,
            "val-aux/validation/forgotten": 0.5,
        }
        for step, x in enumerate(scores)
    ]
    scores = {"uniform": [0.2, 0.3, 0.6, 0.9], "vade": [0.2, 0.5, 0.5, 0.5]}
    arms = {
        arm: [records.Recorded(arm, {"seed": 0}, of(x), hopeless=0.0)] for arm, x in scores.items()
    }
    records.write({"clean/gspo": arms}, tmp_path / "families.parquet")
    pages.by_family("families", "uniform vade")
    assert rows(capsys.readouterr().out) == [
        ["before RL", "uniform", "vade"],
        ["plus", "0.200 (1)", "0.600 (1)", "0.500 (1)"],
        ["all", "0.100 (1)", "0.300 (1)", "0.250 (1)"],
    ]


def test_a_wrong_quantity_is_named():
    with pytest.raises(ValueError, match="no quantity 'effective', use one of late"):
        pages.table("uniform", {"a": "one::effective"})


def test_tables_are_joined_and_their_arms_get_endings(capsys):
    pages.table("uniform_8 vade_4", {"a": "one*_4+other*_8"}, baseline="uniform_8")
    assert rows(capsys.readouterr().out)[2] == ["vade_4", "+0.250 ± 0.635 (2)"]
