"""The tables say what metrics.jsonl says, by hand arithmetic."""

import numpy as np
import pytest

from vade_jax.store import metrics, summary


def make_records(scores, ratio=0.5):
    """Step k: 64 rollouts, 2 s, validation at every step from 0."""
    records = [{"step": 0, "val/tiny/acc/mean@4": scores[0]}]
    for step, score in enumerate(scores[1:], start=1):
        line = {"step": step, "val/tiny/acc/mean@4": score}
        line |= {"vade/rollouts_total": 64 * step, "vade/tokens_total": 1000 * step}
        line |= {"vade/effective_ratio": ratio, "vade/predicted_effective_ratio": 0.25}
        line |= {"timing_s/step": 40.0, "perf/throughput": 500.0}
        records.append(line)
    return records


def make_run(workdir, scores, ratio=0.5):
    writer = metrics.Writer(workdir)
    for record in make_records(scores, ratio):
        writer.write(record["step"], {k: v for k, v in record.items() if k != "step"})
    return workdir


def test_table_says_what_was_learned_and_spent(tmp_path):
    (tmp_path / "figures").mkdir()
    text = summary.table(make_records([0.25, 0.75, 0.5]), workdir=tmp_path)
    assert text.startswith("  tiny accuracy (mean@4)  ")
    assert "  0.250 first, 0.750 best (step 1), 0.500 last\n" in text
    assert "0.500 in the first quarter, 0.500 in the last" in text
    assert "off by 0.250 a step; observed - predicted +0.250" in text
    assert "2 steps, 128 rollouts, 2,000 tokens" in text
    assert "1 min 20 s, 40.00 s a step" in text
    assert "500 tokens/s" in text
    assert str(tmp_path / "figures") in text
    assert "rollouts/" not in text  # only what is there


def test_table_leaves_out_what_was_not_measured():
    assert summary.table([]) == "no step was made: nothing to report"
    assert summary.table([{"step": 3}]) == "  spent  3 steps"


def test_rollouts_to_reach():
    records = make_records([0.2, 0.4, None, 0.6])
    assert summary.rollouts_to_reach(records, 0.2) == 0  # before the first step
    assert summary.rollouts_to_reach(records, 0.4) == 64
    assert summary.rollouts_to_reach(records, 0.5) == 192
    assert summary.rollouts_to_reach(records, 0.7) is None
    assert summary.rollouts_to_reach(records, np.nan) is None


def test_compare_is_honest_about_seeds_and_what_was_not_reached(tmp_path):
    runs = {
        "vade": [
            make_run(tmp_path / "a", [0.1, 0.5, 0.6], ratio=0.75),
            make_run(tmp_path / "b", [0.1, 0.2, 0.4], ratio=0.75),
        ],
        "uniform": [
            make_run(tmp_path / "c", [0.1, 0.4, 0.3]),
            make_run(tmp_path / "d", [0.1, 0.5, 0.6]),
        ],
    }
    head, _, vade, uniform = summary.compare(runs).splitlines()
    assert "match uniform's best |" in head
    cells = [cell.strip() for cell in vade.strip("|").split("|")]
    assert cells[:4] == ["vade", "2", "128", "0.750"]
    assert cells[4] == "0.500 ± 0.141"  # of 0.6 and 0.4: 0.1 sqrt 2
    assert cells[6] == "64, not reached"
    # seed by seed: "c" had its best, 0.4, at its second validation, "d" 0.6 at its third
    assert uniform.endswith("| 0.450 ± 0.212 | 0.500 ± 0.141 | 64, 128 |")


def test_seeds_are_paired(tmp_path):
    one = [make_run(tmp_path / "e", [0.1, 0.2])]
    with pytest.raises(ValueError, match=r"x has 2 seeds, others differ: {'y': 1}"):
        summary.compare({"x": one * 2, "y": one})


def test_equal_seeds_reach_their_own_mean(tmp_path):
    runs = {"x": [make_run(tmp_path / str(i), [0.05, 0.1]) for i in range(3)]}
    assert summary.compare(runs).endswith("| 64, 64, 64 |")


def test_baseline(tmp_path):
    run = make_run(tmp_path / "a", [0.1, 0.2])
    assert "match x's best" in summary.compare({"x": [run], "y": [run]})
    assert "match y's best" in summary.compare({"x": [run], "y": [run]}, baseline="y")
    with pytest.raises(ValueError, match=r"baseline 'z' is none of the runs \['x'\]"):
        summary.compare({"x": [run]}, baseline="z")
    with pytest.raises(FileNotFoundError, match="missing is not a run directory"):
        summary.compare({"x": [tmp_path / "missing"]})
