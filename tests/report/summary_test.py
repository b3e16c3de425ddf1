"""The tables say what metrics.jsonl says, by hand arithmetic."""

from vade_jax.report import summary


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
