"""The page of a sweep, sweep.html: means over seeds, paired differences, curves, and costs.

It is made from the numbers and figures that a sweep leaves, so it can be made again without the runs. Like
report.html, the file contains everything and loads nothing from a server.
"""

import base64
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from vade_jax import atomic
from vade_jax.report import curves
from vade_jax.report.comparison import LATE, NOTES, Arm, Comparison, outcome
from vade_jax.report.controls import Control
from vade_jax.report.records import Groups, Recorded
from vade_jax.types import PathLike

ASSETS = pathlib.Path(__file__).with_name("assets")
FILE = "sweep.html"
# Figures in their order, with captions; figures that a sweep does not have are left out.
FIGURES = {
    "arms.png": "Every arm: mean, 95 % interval and single seeds",
    "learning.png": "Over the steps: validation, effective ratio, gradient norm",
    "rollouts.png": "Over the answers paid for",
    "effective_ratio.png": "Groups that teach, over the steps",
    "calibration.png": "What the posterior forecast, and what came out",
    "decays.png": "Over the two decays",
    "rates.png": "Over learning rates",
    "batches.png": "Over sizes of a batch",
    "map.png": "Over batch, answers to a prompt and pool",
}


def write(
    groups: Groups,
    compared: Comparison,
    directory: PathLike,
    checked: Mapping[str, Sequence[Control]] = {},
) -> pathlib.Path:
    """Writes the page into the directory of a sweep's figures, and returns its path.

    Args:
        groups: the runs by data/loss, then by arm.
        compared: the same in numbers.
        directory: holds the figures; the page is written into it.
        checked: the controls of an arena, by data/loss; a sweep may have none.
    """
    folder = pathlib.Path(directory)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS), autoescape=True, undefined=jinja2.StrictUndefined
    )
    text = environment.get_template(FILE).render(
        title=folder.resolve().name,
        baseline=compared.baseline,
        late=LATE,
        style=(ASSETS / "style.css").read_text("utf-8"),
        groups=[
            _group(name, arms, compared.groups[name], compared.baseline, checked.get(name, ()))
            for name, arms in groups.items()
        ],
        figures=[_figure(folder / name, says) for name, says in FIGURES.items()],
        notes=[note.format(baseline=compared.baseline) for note in NOTES],
    )
    atomic.write_text(folder / FILE, text)
    return folder / FILE


def _group(
    name: str,
    runs: Mapping[str, Sequence[Recorded]],
    arms: Mapping[str, Arm],
    baseline: str,
    controls: Sequence[Control],
) -> dict[str, Any]:
    """Returns what the page shows of one data/loss: the baseline first, then the arms, best to worst."""
    rank = lambda label: (label != baseline, -arms[label].means["late"].mean)
    return {
        "name": name,
        "rows": [
            _row(label, arms[label], runs[label], label == baseline)
            for label in sorted(arms, key=rank)
        ],
        "controls": controls,
    }


def _row(label: str, arm: Arm, runs: Sequence[Recorded], is_baseline: bool) -> dict[str, Any]:
    difference, means = arm.difference, arm.means
    # Clear: the interval of the difference does not contain 0.
    is_clear = not is_baseline and difference.count > 1 and abs(difference.mean) > difference.half
    return {
        "arm": label,
        "seeds": len(arm.seeds),
        "late": means["late"].text("{:.3f}"),
        "difference": "" if is_baseline else difference.text("{:.3f}", sign=True),
        "verdict": ("right" if difference.mean > 0 else "wrong") if is_clear else "",
        "effective": means["effective_ratio"].text("{:.2f}"),
        "rollouts": means["rollouts"].text("{:,.0f}"),
        "tokens": curves.mean(_tokens(runs)).text("{:,.0f}"),
        "seconds": curves.mean([60 * outcome(run).minutes for run in runs]).text("{:,.0f}"),
    }


def _tokens(runs: Sequence[Recorded]) -> list[float]:
    """Returns the answer tokens that each run has sampled; NaN if its records do not count them."""
    totals = [curves.named(run.records, "vade/tokens_total").values for run in runs]
    return [float(total[-1]) if total.size else np.nan for total in totals]


def _figure(path: pathlib.Path, says: str) -> dict[str, str] | None:
    if not path.is_file():
        return None
    data = base64.b64encode(path.read_bytes()).decode()
    return {"says": says, "uri": f"data:image/png;base64,{data}"}
