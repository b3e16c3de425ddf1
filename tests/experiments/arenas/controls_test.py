"""The controls of an arena, on runs whose numbers are known."""

import dataclasses
import json
import math

import pytest

from experiments.arenas import comparison, controls, records
from vade_jax.store import metrics

STEPS = range(0, 100, 10)


def write(directory, seed, rise, *, effective=0.3, num_validation=10_000):
    """Leaves a run whose validation rises from .3 along a straight line, by `rise` in all."""
    directory.mkdir(parents=True)
    data, evaluation = {"num_validation": num_validation}, {"num_samples": 4}
    config = {"seed": seed, "data": data, "eval": evaluation}
    (directory / "run.json").write_text(json.dumps({"settings": config}))
    lines = [
        {
            "step": step,
            "val/validation/acc/mean@4": 0.3 + rise * step / STEPS[-1] + 0.001 * seed,
            "vade/trained_effective_ratio_correct": effective,
            "vade/effective_ratio": effective,
            "vade/rollouts_total": 8 * step,
        }
        for step in STEPS
    ]
    (directory / "metrics.jsonl").write_text("".join(map(metrics.line, lines)))
    return records.of_directory(directory)


def check(tmp_path, *, dose=0.06, oracle=0.06, num_seeds=8, rise=0.1, **more):
    """Returns the controls by name; `dose` and `oracle` are what they gain at the end."""
    rises = {"uniform": lambda _: rise, "dose": lambda s: rise + dose + 0.01 * (s % 2)}
    rises["oracle"] = lambda s: rise + oracle + 0.01 * (s % 2)
    arms = {
        arm: [write(tmp_path / f"{arm}{s}", s, of(s), **more) for s in range(num_seeds)]
        for arm, of in rises.items()
    }
    compared = comparison.compare({"clean/gspo": arms})
    found = controls.check(compared.groups["clean/gspo"], "uniform", arms["uniform"])
    return {control.name: control for control in found}


def test_a_line_climbs_by_a_third_of_its_rise(tmp_path):
    found = check(tmp_path)
    assert all(control.passed for control in found.values())
    assert found["headroom"].found == "0.30, +0.033 ± 0.000 (8 seeds)"  # of .1; equal in all seeds
    # p = .3 + .1 * 8 / 9 and a little, of 3 x 40,000 answers
    assert found["error"].found == "0.0014"


def test_the_last_third_begins_with_its_first_step_and_needs_two():
    scores = {0: 0.1, 20: 0.2, 40: 0.5, 60: 0.6}  # 60 * (1 - 1/3) is a little above 40
    lines = [{"step": step, "val/validation/acc/mean@4": x} for step, x in scores.items()]
    assert controls.climb(lines) == pytest.approx(0.1)
    assert math.isnan(controls.climb(lines[:2]))


@pytest.mark.parametrize("score", [{}, {"val/validation/acc/mean@4": math.nan}])
def test_without_a_validation_nothing_climbs(score):
    assert math.isnan(controls.climb([{"step": 0, **score}, {"step": 1, **score}]))
    assert math.isnan(controls.climb([]))


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"dose": 0.02}, {"dose"}),
        ({"oracle": -0.06}, {"oracle"}),
        ({"num_seeds": 7}, {"dose", "oracle", "headroom"}),
        ({"effective": 0.5}, {"headroom"}),
        ({"rise": -0.01}, {"headroom"}),
        ({"num_validation": 500}, {"error"}),
    ],
)
def test_each_control_can_fail(tmp_path, changes, failed):
    found = check(tmp_path, **changes)
    assert {name for name, control in found.items() if not control.passed} == failed


def test_a_control_that_did_not_run_is_not_passed(tmp_path):
    runs = [write(tmp_path / str(seed), seed, 0.1) for seed in range(8)]
    arms = comparison.compare({"g": {"uniform": runs}}).groups["g"]
    dose, oracle, headroom, _ = controls.check(arms, "uniform", runs)
    assert dose.found == oracle.found == "did not run"
    assert not dose.passed and not oracle.passed and headroom.passed


def test_an_error_that_nobody_knows_does_not_pass(tmp_path):
    """0 questions stand for all of a file."""
    error = check(tmp_path, num_validation=0)["error"]
    assert error.found.startswith("unknown") and not error.passed


@pytest.mark.parametrize(("num_validations", "error"), [(1, 0.005), (2, 0.0035), (10, 0.0029)])
def test_the_error_is_of_as_many_validations_as_there_are(tmp_path, num_validations, error):
    """Of p = .5, 2,500 questions and 4 answers to each: the root of .25 / 10,000 over their number."""
    of_one = write(tmp_path / "run", 0, 0.0, num_validation=2500)
    lines = [x | {"val/validation/acc/mean@4": 0.5} for x in of_one.records]
    lines = lines[: 1 + num_validations]  # the one before the first step does not count
    run = dataclasses.replace(of_one, records=lines)
    arms = comparison.compare({"g": {arm: [run] for arm in ("uniform", "dose", "oracle")}}).groups[
        "g"
    ]
    *_, found = controls.check(arms, "uniform", [run])
    assert (found.name, float(found.found)) == ("error", pytest.approx(error, abs=1e-4))


def test_the_error_is_the_largest_of_the_seeds_each_with_its_own_numbers(tmp_path):
    """Runs come in any order; the one at .5 has a tenth of the questions of the one at .9."""
    runs = []
    for seed, score, size in ((1, 0.5, 1000), (0, 0.9, 10_000)):
        one = write(tmp_path / str(seed), seed, 0.0, num_validation=size)
        lines = [x | {"val/validation/acc/mean@4": score} for x in one.records]
        runs.append(dataclasses.replace(one, records=lines))
    arms = comparison.compare({"g": dict.fromkeys(("uniform", "dose", "oracle"), runs)}).groups["g"]
    *_, found = controls.check(arms, "uniform", runs)
    assert found.found == f"{math.sqrt(0.25 / 12_000):.4f}"


def test_the_table_says_what_was_asked_and_found(tmp_path):
    table = controls.markdown({"clean/gspo": list(check(tmp_path, dose=0.02).values())})
    dose, oracle, headroom, error = table.splitlines()[4:8]
    assert "its validation rises in the last third of the steps, the interval without 0" in headroom
    assert "of uniform's last 3 validations < 0.005 in every seed" in error
    assert dose.startswith("| dose | dose - uniform >= 0.03") and dose.endswith("| no |")
    assert oracle.endswith("(8 pairs) | yes |")
