"""The tables and figures of a sweep by hand arithmetic."""

import json
import math
import re

import numpy as np
import pytest

from experiments import results
from experiments.arenas import across, comparison, figures, sweep_page
from tests.experiments.arenas.made import recorded


def run(seed, scores, ratio=0.5, **more):
    of_step = {"vade/effective_ratio": ratio + 0.1, "vade/trained_effective_ratio_correct": ratio}
    of_step["val-aux/validation/forgotten"] = lambda step: step / 100
    return recorded(seed, scores, **of_step, **more)


@pytest.fixture
def groups():
    return {
        "clean/gspo": {
            "uniform": [run(0, [0.1, 0.2, 0.4, 0.3, 0.3]), run(1, [0.1, 0.3, 0.5, 0.6, 0.4])],
            "vade": [  # the order of runs says nothing about seeds
                run(1, [0.1, 0.4, 0.5, 0.5, 0.5], hopeless=0.0),
                run(0, [0.1, 0.4, 0.5, 0.4, 0.6]),
                run(7, [0.1, 0.2, 0.2, 0.2, 0.2], ratio=0.8),
            ],
        }
    }


def test_the_numbers_of_a_run():
    one = run(3, [0.1, 0.6, 0.4, 0.2, 0.3])
    assert comparison.of_run(one) == {
        "late": pytest.approx(0.3),  # of 0.4, 0.2, 0.3
        "unlearned": 0.0,
        "last": 0.3,
        "effective_ratio": 0.5,
        "early": 0.5,
        "overshoot": pytest.approx(math.nan, nan_ok=True),  # a selector without a forecast
        "forgotten": pytest.approx(0.03),  # of .02, .03, .04
        "hopeless": 0.25,
    }
    assert one.outcome.rollouts == 256


def test_a_forecast_is_too_high_by_the_mean_of_the_steps_that_have_one():
    forecast = {"vade/predicted_effective_ratio": lambda step: (0.7, 0.5)[step - 1]}
    forecast["vade/effective_ratio_correct"] = lambda step: (0.2, 0.6)[step - 1]
    found = comparison.of_run(recorded(0, [0.1, 0.2, 0.3], **forecast))
    assert found["overshoot"] == pytest.approx((0.5 - 0.1) / 2)


def test_arms_are_paired_by_seed(groups):
    rows = comparison.compare(groups).groups["clean/gspo"]
    assert rows["vade"].seeds == (0, 1, 7)
    assert rows["vade"].values["last"] == (0.6, 0.5, 0.2)
    # seed 0: mean of .5 .4 .6 less that of .4 .3 .3; seed 1: .5 less the mean of .5 .6 .4
    assert rows["vade"].differences == pytest.approx((1 / 6, 0.0))
    assert rows["vade"].means["difference"].mean == pytest.approx(1 / 12)
    # their deviation is 1/6 / sqrt 2, the error 1/12, and t of one degree of freedom 12.706
    assert rows["vade"].means["difference"].half == pytest.approx(12.706 / 12, rel=1e-4)
    assert rows["vade"].values["hopeless"] == (0.25, 0.0, 0.25)
    assert rows["vade"].means["effective_ratio"].mean == pytest.approx(0.6)
    groups["clean/gspo"]["vade"].append(run(7, [0.1, 0.2]))
    with pytest.raises(ValueError, match="seed 7"):
        comparison.compare(groups)


def test_tables_of_a_sweep(groups):
    groups["wrong10/gspo"] = {"vade": groups["clean/gspo"]["vade"]}  # and no baseline
    text = comparison.markdown(comparison.compare(groups))
    title, _, head, _, _, vade = text.splitlines()[:6]
    assert title == "## clean/gspo" and "## wrong10/gspo" in text
    cells = dict(zip(head.split(" | "), vade.split(" | "), strict=True))
    assert cells["difference to uniform"] == "+0.083 ± 1.059 (2 of 3)"


def test_a_run_that_unlearned_a_kind_is_told_apart():
    def ends(seed, score, **forgotten):
        names = {f"val-aux/validation/{kind}/forgotten": x for kind, x in forgotten.items()}
        return recorded(seed, [0.1, score], (0, 1), **names)

    arms = {
        "uniform": [ends(0, 0.5, color=0.0), ends(1, 0.5, color=0.1), ends(2, 0.4, color=0.0)],
        "vade": [
            ends(0, 0.6, color=0.1),
            ends(1, 0.3, color=0.05, letter=0.2),
            recorded(2, [0.1, 0.6], (0, 1)),
        ],
    }
    found = comparison.compare({"clean/gspo": arms}).groups["clean/gspo"]
    assert found["uniform"].values["unlearned"] == (0, 0, 0)  # a tenth is not more than a tenth
    vade = found["vade"]
    # The last one was not measured.
    np.testing.assert_array_equal(vade.values["unlearned"], (0, 1, np.nan))
    assert comparison.cell(vade, "unlearned", "") == "1/2 (9–91 %)"
    assert vade.means["difference"].mean == pytest.approx(0.1 / 3)
    others = vade.means["difference_others"]
    assert (others.mean, others.count) == (pytest.approx(0.15), 2)


def late(*values):
    """Validations whose last three are the same, of seeds 0, 1, ..."""
    return [run(seed, [0.1, value, value, value]) for seed, value in enumerate(values)]


def test_a_seeds_mean_over_the_arenas_that_have_it(tmp_path):
    """Arm a has 0.1, 0.2, 0.3 more in one arena and 0.3, 0.2 in the other; b is in one of them."""
    arenas = {
        "one": {"uniform": late(0.2, 0.2, 0.2), "a": late(0.3, 0.4, 0.5)},
        "two": {"uniform": late(0.4, 0.4, 0.4), "a": late(0.7, 0.6), "b": late(0.5)},
    }
    compared = comparison.compare(arenas)
    mean = across.seeds_mean(compared, "a")
    # Seed 0: (0.1 + 0.3) / 2, seed 1: (0.2 + 0.2) / 2; seed 2 is in one arena alone.
    assert mean.mean == pytest.approx(0.2) and mean.count == 2
    assert across.seeds_mean(compared, "b").count == 0
    across.draw(compared, tmp_path / "across.png")
    assert (tmp_path / "across.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_has_the_baseline_first_then_the_best_and_colors_what_differs(tmp_path):
    """Intervals by hand: of seeds 0 to 3 with slopes .01, .02 and .03, t of three degrees is 3.182."""
    level = lambda base, slope: [run(s, [base + slope * s] * 3, steps=(1, 2, 3)) for s in range(4)]
    arms = {"a<b>": level(0.3, 0.03), "vade": level(0.5, 0.02), "uniform": level(0.4, 0.01)}
    results.write({"clean/gspo": arms}, str(tmp_path), "uniform")
    page = (tmp_path / sweep_page.FILE).read_text()
    cells = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", page)
    rows = [[arm, *re.findall(r"<td[^>]*>(.*?)</td>", rest)] for arm, rest in cells]
    assert rows[0][:4] == ["uniform", "4", "0.415 ± 0.021", ""]
    assert rows[1][:4] == ["vade", "4", "0.530 ± 0.041", "+0.115 ± 0.021"]
    assert rows[2][0] == "a&lt;b&gt;"  # a label is text
    assert 'steps right">+0.115 ± 0.021<' in page and 'steps wrong">-0.070 ± 0.041<' in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["runs"] == list(arms) and list(data["axes"]) == ["rollouts", "step"]
    of_a = data["charts"]["score-0"]["series"][0]  # from 0.3, the mean of slopes 0 to .09
    assert (of_a["step"], of_a["y"]) == ([1, 2, 3], [pytest.approx(0.345)] * 3)


def test_a_band_is_the_mean_and_its_standard_error_where_all_have_points():
    one = (np.array([0, 2]), np.array([0.0, 2.0]))
    two = (np.array([0, 2]), np.array([2.0, 6.0]))
    x, mean, error = figures.band([one, two])
    assert x.tolist() == [0, 2] and mean.tolist() == [1.0, 4.0]
    np.testing.assert_allclose(error, [1.0, 2.0])  # sqrt(2) / sqrt(2), sqrt(8) / sqrt(2)
    long = (np.array([1, 2, 5]), np.array([3.0, 4.0, 9.0]))
    x, mean, _ = figures.band([one, long, (np.zeros(0), np.zeros(0))])
    assert x.tolist() == [1, 2]  # 0 is before the second's first point, 5 after the first's last
    assert mean.tolist() == [2.0, 3.0]  # (1 + 3) / 2, (2 + 4) / 2
    assert figures.band([one])[2].tolist() == [0.0, 0.0]
