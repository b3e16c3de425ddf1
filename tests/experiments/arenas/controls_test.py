"""The controls of an arena, on runs whose numbers are known."""

import math

import pytest

from experiments.arenas import comparison, controls
from tests.experiments.arenas.made import recorded

STEPS = range(0, 100, 10)


def run(seed, rise, *, effective=0.3, num_validation=10_000, start=0.3, steps=STEPS):
    """A run whose validation rises from `start` along a straight line, by `rise` in all."""
    ratio = {"vade/trained_effective_ratio_correct": effective, "vade/effective_ratio": effective}
    config = {"data": {"num_validation": num_validation}, "eval": {"num_samples": 4}}
    scores = [start + rise * step / STEPS[-1] + 0.001 * seed for step in steps]
    return recorded(seed, scores, steps, config=config, **ratio)


def checked(arms):
    """Returns the controls by name."""
    compared = comparison.compare({"g": arms})
    found = controls.check(compared.groups["g"], "uniform", arms["uniform"])
    return {control.name: control for control in found}


def check(*, dose=0.06, oracle=0.06, num_seeds=8, rise=0.1, **more):
    """Returns the controls; `dose` and `oracle` are what they gain at the end."""
    rises = {"uniform": lambda _: rise, "dose": lambda s: rise + dose + 0.01 * (s % 2)}
    rises["oracle"] = lambda s: rise + oracle + 0.01 * (s % 2)
    return checked(
        {arm: [run(s, of(s), **more) for s in range(num_seeds)] for arm, of in rises.items()}
    )


def test_a_line_climbs_by_a_third_of_its_rise():
    found = check()
    assert {name for name, control in found.items() if not control.passed} == {"stability"}
    assert found["headroom"].found == "0.30, +0.033 ± 0.000 (8 seeds)"  # of .1; equal in all seeds
    # p = .3 + .1 * 8 / 9 and a little, of 3 x 40,000 answers
    assert found["error"].found == "0.0014"
    assert "| oracle | oracle - uniform >= 0.03" in controls.markdown({"g": [*found.values()]})


def test_the_last_third_begins_with_its_first_step_and_needs_two():
    scores = {0: 0.1, 20: 0.3, 40: 0.5, 60: 0.6}  # 60 * (1 - 1/3) is a little above 40
    lines = [{"step": step, "val/validation/acc/mean@4": x} for step, x in scores.items()]
    assert controls.climb(lines) == pytest.approx(0.1)
    assert math.isnan(controls.climb(lines[:2])) and math.isnan(controls.climb([]))


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"dose": 0.02}, {"dose"}),
        ({"oracle": -0.06}, {"oracle"}),
        ({"num_seeds": 7}, {"dose", "oracle", "headroom"}),
        ({"effective": 0.5}, {"headroom"}),
        ({"rise": -0.01}, {"headroom"}),
        ({"num_validation": 500}, {"error"}),
        ({"num_validation": 0}, {"error"}),  # all of a file: nobody knows how many
    ],
)
def test_each_control_can_fail(changes, failed):
    found = check(**changes)
    failing = {name for name, control in found.items() if not control.passed}
    assert failing - {"stability"} == failed


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"apart": 0.03}, False),
        ({"num_seeds": 23}, False),
        ({"unlearned": (0, 1)}, True),  # 2 of 48, with those that ran again
        ({"unlearned": (0, 1, 2)}, False),
    ],
)
def test_stability_asks_for_pairs_that_end_alike_and_know_what_they_knew(changes, passed):
    values = {"apart": 0.02, "num_seeds": 24, "unlearned": ()} | changes

    def ends(seed, score):
        forgotten = 0.2 if seed in values["unlearned"] else 0.1
        more = {"val-aux/validation/color/forgotten": forgotten, "vade/effective_ratio": 0.3}
        config = {"data": {"num_validation": 10_000}, "eval": {"num_samples": 4}}
        return recorded(seed, [0.1, score], (0, 1), config=config, **more)

    again = [ends(seed, 0.5 + values["apart"] * (-1) ** seed) for seed in range(24)]
    for run_again in again:  # only the first runs unlearn
        for record in run_again.records:
            record["val-aux/validation/color/forgotten"] = 0.0
    first = [ends(seed, 0.5) for seed in range(values["num_seeds"])]
    found = checked({"uniform": first, "stability": again})["stability"]
    assert found.passed == passed
    if not changes:  # the deviation of a run is 0.02 / sqrt 2
        assert found.found == "unlearned 0/48 (0–7 %), spread 0.014 (24 pairs)"


def test_the_error_is_the_largest_of_the_seeds_each_with_its_own_numbers():
    """Runs come in any order; the one at .5 has a tenth of the questions of the one at .9."""
    runs = [
        run(1, 0.0, start=0.499, num_validation=1000),
        run(0, 0.0, start=0.9, num_validation=10_000),
    ]
    found = checked(dict.fromkeys(("uniform", "dose", "oracle"), runs))["error"]
    assert found.found == f"{math.sqrt(0.25 / 12_000):.4f}"
