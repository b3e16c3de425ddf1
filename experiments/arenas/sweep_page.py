"""The page of a sweep, sweep.html: means over seeds, paired differences, curves, and costs.

Like report.html, the file contains everything and loads nothing from a server; its charts are those of
report.html.
"""

import base64
import collections
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from experiments.arenas import cost, seeds
from experiments.arenas.comparison import NOTES, Arm, Comparison
from experiments.arenas.controls import Control
from experiments.arenas.records import Groups, Recorded
from experiments.arenas.seeds import Mean
from vade_jax import atomic
from vade_jax.report import charts, page
from vade_jax.report.run import Run
from vade_jax.types import PathLike

FILE = "sweep.html"
POINTS = 200  # of a curve, at most
DRAW = 'startCharts(JSON.parse(document.getElementById("data").textContent));'


def write(
    groups: Groups,
    compared: Comparison,
    directory: PathLike,
    checked: Mapping[str, Sequence[Control]],
) -> None:
    """Writes the page into a directory.

    Args:
        groups: the runs by data/loss, then by arm.
        compared: the same in numbers.
        directory: of the sweep's tables.
        checked: the controls of an arena, by data/loss; a sweep may have none.
    """
    folder = pathlib.Path(directory)
    labels = list(dict.fromkeys(arm for arms in groups.values() for arm in arms))
    means = {name: [mean_run(x, arms.get(x, ())) for x in labels] for name, arms in groups.items()}
    drawn = {
        name: [
            {**chart, "id": f"{chart['id']}-{place}"}
            for chart in charts.dynamics(runs, POINTS)
            if chart["series"]
        ]
        for place, (name, runs) in enumerate(means.items())
    }
    data = {
        "runs": labels,
        "axes": charts.axes([run for runs in means.values() for run in runs]),
        "charts": {chart["id"]: chart for of_group in drawn.values() for chart in of_group},
    }
    script = (page.ASSETS / "charts.js").read_text("utf-8") + DRAW
    digest = hashlib.sha256(script.encode()).digest()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    text = environment.get_template(FILE).render(
        title=folder.resolve().name,
        baseline=compared.baseline,
        late=cost.LATE,
        switch={axis: words for axis, words in cost.EQUAL.items() if _has(compared, axis)},
        style=(page.ASSETS / "style.css").read_text("utf-8"),
        groups=[
            _group(name, compared.groups[name], compared, checked.get(name, ())) for name in groups
        ],
        drawn=drawn,
        data=data,
        script=script,
        script_digest=base64.b64encode(digest).decode(),
        notes=[note.format(baseline=compared.baseline) for note in (*NOTES, *cost.NOTES)],
    )
    atomic.write_text(folder / FILE, text)


def mean_run(arm: str, runs: Sequence[Recorded]) -> Run:
    """Returns the mean of an arm's runs, at the steps and of the metrics that all of them have."""
    by_step = collections.defaultdict(list)
    for run in runs:
        for record in run.records:
            by_step[record["step"]].append(record)
    means = []
    for step, at_step in sorted(by_step.items()):
        if len(at_step) == len(runs):
            shared = [name for name in at_step[0] if all(name in record for record in at_step)]
            values = np.array([[record[name] for name in shared] for record in at_step], np.float64)
            means.append(dict(zip(shared, values.mean(0).tolist(), strict=True)) | {"step": step})
    return Run(pathlib.Path(), arm, records=means)


def _has(compared: Comparison, axis: str) -> bool:
    """Returns whether a difference at equal `axis` is known of any arm."""
    arms = (arm for of_group in compared.groups.values() for arm in of_group.values())
    return any(arm.equal[axis].count for arm in arms)


def _group(
    name: str, arms: Mapping[str, Arm], compared: Comparison, controls: Sequence[Control]
) -> dict[str, Any]:
    """Returns what the page shows of one data/loss: the baseline first, then the arms, best to worst."""
    baseline = compared.baseline
    rank = lambda label: (label != baseline, -arms[label].means["late"].mean)
    ordered = {label: arms[label] for label in sorted(arms, key=rank)}
    # Differences are in the table above, by a switch.
    head, rows = cost.table(ordered, baseline)
    shown = [i for i, words in enumerate(head) if words not in cost.EQUAL.values()]
    return {
        "name": name,
        "rows": [_row(label, arm, label == baseline) for label, arm in ordered.items()],
        "costs": [[row[i] for i in shown] for row in (head, *rows)],
        "controls": controls,
    }


def _row(label: str, arm: Arm, is_baseline: bool) -> dict[str, Any]:
    count = len(arm.seeds)
    return {
        "arm": label,
        "seeds": count,
        "late": arm.means["late"].text("{:.3f}", of=count),
        "differences": {
            axis: ("", "")
            if is_baseline
            else (mean.text("{:.3f}", sign=True, of=count), _verdict(mean))
            for axis, mean in arm.equal.items()
        },
        "unlearned": seeds.share(arm.values["unlearned"]),
        "effective": arm.means["effective_ratio"].text("{:.2f}", of=count),
    }


def _verdict(difference: Mean) -> str:
    """Returns a color if the interval of a difference does not contain 0."""
    if difference.count < 2 or abs(difference.mean) <= difference.half:
        return ""
    return "right" if difference.mean > 0 else "wrong"
