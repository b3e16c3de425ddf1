"""The page of a sweep: numbers over seeds, the best arm after the baseline, what differs in color."""

import re

import pytest

from experiments import results
from experiments.arenas import records, sweep_page
from vade_jax import settings


def run(seed, accuracy, slope, tokens=None):
    found = [
        {
            "step": step,
            "val/own/acc/mean@4": accuracy + slope * seed,
            "vade/rollouts_total": 64 * step,
        }
        | {"timing_s/step": 2.0}
        | ({"vade/tokens_total": tokens * step} if tokens else {})
        for step in (1, 2, 3)
    ]
    config = settings.Run(seed=seed).to_dict()
    return records.Recorded(f"run {seed}", config, found, hopeless=0.1)


@pytest.fixture
def sweep(tmp_path):
    groups = {
        "clean/gspo": {
            "a<b>": [run(seed, 0.3, 0.03, tokens=100) for seed in range(4)],
            "vade": [run(seed, 0.5, 0.02) for seed in range(4)],
            "uniform": [run(seed, 0.4, 0.01) for seed in range(4)],
        }
    }
    results.write(groups, str(tmp_path / "mine"), "uniform")
    return tmp_path


def rows(page):
    cells = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", page)
    return [[arm, *re.findall(r"<td[^>]*>(.*?)</td>", rest)] for arm, rest in cells]


def test_the_baseline_comes_first_and_then_the_best(sweep):
    page = (sweep / "mine" / sweep_page.FILE).read_text()
    uniform, vade, other, *_ = rows(page)
    assert uniform == ["uniform", "4", "0.415 ± 0.021", "", "", "", "-"]
    assert vade[:4] == ["vade", "4", "0.530 ± 0.041", "+0.115 ± 0.021"]
    assert other[0] == "a&lt;b&gt;"  # a label is text
    assert 'steps right">+0.115 ± 0.021<' in page and 'steps wrong">-0.070 ± 0.041<' in page
    assert page.count("data:image/png") >= 1 and "<script" not in page
