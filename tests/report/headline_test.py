"""A run in numbers, by hand arithmetic."""

import dataclasses

import pytest

from vade_jax.report import curves, headline


def make_records(scores, ratio=0.5):
    """Step k: 64 rollouts, 40 s, validation at every step from 0."""
    records = [{"step": 0, "val/tiny/acc/mean@4": scores[0]}]
    for step, score in enumerate(scores[1:], start=1):
        line = {"step": step, "val/tiny/acc/mean@4": score}
        line |= {"vade/rollouts_total": 64 * step, "vade/tokens_total": 1000 * step}
        line |= {"vade/effective_ratio": ratio, "vade/predicted_effective_ratio": 0.25}
        line |= {"timing_s/step": 40.0, "perf/throughput": 500.0}
        records.append(line)
    return records


def test_the_summary_says_what_was_learned_and_spent(tmp_path):
    (tmp_path / "rollouts").mkdir()
    text = headline.summary(make_records([0.25, 0.75, 0.5]), workdir=tmp_path)
    assert text.startswith("  tiny accuracy (mean@4)  ")
    assert "  0.250 first, 0.750 best (step 1), 0.500 last\n" in text
    assert "0.500 in the first quarter, 0.500 in the last" in text
    assert "off by 0.250 a step; observed - predicted +0.250" in text
    assert "2 steps, 128 rollouts, 2,000 tokens" in text
    assert "  40.00 s a step (median)\n" in text and " min " not in text  # one clock: train's
    assert "500 tokens/s" in text
    assert str(tmp_path / "rollouts") in text
    assert "rollouts/" not in text  # only what is there


def test_the_summary_leaves_out_what_was_not_measured():
    assert headline.summary([]) == "no step was taken: nothing to report"
    assert headline.summary([{"step": 3}]) == "  spent  3 steps"


def test_facts_of_the_page(known):
    facts = {fact.name: fact for fact in headline.facts(known)}
    score = ("0.750", "0.250 at first, 0.750 at best (step 6)")
    assert facts["Validation accuracy"][1:] == score
    assert facts["Effective ratio"].value == "0.44"  # mean of 1/8 .. 6/8
    assert facts["Forecast off by"][1:] == (
        "0.188",  # (3 + 2 + 1 + 0 + 1 + 2) / 8 / 6
        "a step; observed − predicted −0.062",  # (1 + .. + 6) / 8 / 6 - 0.5
    )
    assert facts["Spent on prompts never right"].value == "33 %"


def test_a_kind_that_is_being_unlearned_is_told_with_the_drift_and_what_helps():
    color, letter = "val-aux/validation/color/forgotten", "val-aux/validation/letter/forgotten"
    records = [
        {"step": 20, color: 0.0, letter: 0.4, "actor/kl_loss": 0.1},
        {"step": 40, color: 0.2, letter: 0.1, "actor/kl_loss": 0.6},
        {"step": 60, color: 0.33, letter: 0.05, "actor/kl_loss": 1.25},
    ]
    (line,) = headline.unlearning(records)  # letters came back
    start = "color is being unlearned since step 40: at step 60, 33 % of the known questions are forgotten"
    assert line.startswith(f"{start}; KL to the reference 1.2. ")
    assert "loss.kl_coef" in line
    (line,) = headline.unlearning([{"step": 20, curves.FORGOTTEN: 0.5}])  # no kinds, no KL
    assert line.startswith("what it knew is being unlearned: at step 20, 50 %")
    assert headline.unlearning([{"step": 20}]) == []


def test_phases_make_up_the_step(known):
    inside, parallel = headline.phases(known)
    totals = {phase.name: phase.total for phase in inside}
    assert totals == {"gen": 6.0, "update_actor": 15.0, "rest": 3.0}
    assert sum(phase.share for phase in inside) == pytest.approx(1)
    assert inside[-1].median == 0.5  # 3 s over 6 steps
    assert [phase.name for phase in parallel] == ["judge"]


def test_batches_made_ahead_run_parallel_to_the_step(known):
    """Of 4 s a step 2.5 are learning and 1 is waiting; the answers of the next step take as long."""
    ahead = [record | {"timing_s/wait_rollouts": 1.0} for record in known.records if record["step"]]
    inside, parallel = headline.phases(dataclasses.replace(known, records=ahead))
    totals = {phase.name: phase.total for phase in inside}
    assert totals == {"update_actor": 15.0, "wait_rollouts": 6.0, "rest": 3.0}
    assert [phase.name for phase in parallel] == ["gen", "judge"]
