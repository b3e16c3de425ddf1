"""The policies of a sweep in the paper's tables: seeds together, each arm next to its baseline.

The answers of all seeds of an arm are pooled, as if one policy had answered each question more often. So
standard errors and intervals show how much other questions would change a number, not how much other
training runs would. For the latter see the sweep's own tables.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.evals import benchmarks, stats, summary
from experiments.evals.results import Result
from experiments.evals.summary import Results
from vade_jax import atomic, tables

BASE = "base"  # the untrained policy's row
# VADE with one option changed, as configs/arms.py names them: they are compared with `vade`. Other arms
# around VADE, such as vade_dapo and vade_measured, stand in Table 1.
ABLATIONS = (
    *("vade_p1p", "vade_greedy", "vade_last_update", "vade_mean", "vade_no_decay"),
    *("vade_decay_selected", "vade_decay_rest", "vade_no_warmup", "vade_full_warmup"),
    *("vade_max_3_in_a_row", "vade_uniform_quarter", "vade_per_token"),
)
_RUN = re.compile(r"(.+)_seed(\d+)")
Groups = Mapping[str, Mapping[str, Mapping[int, Results]]]  # by data/loss, arm and seed


@dataclasses.dataclass(frozen=True)
class Policy:
    """A finished run {sweep}/{data}/{loss}/{arm}_seed{seed}."""

    group: str  # data/loss
    arm: str
    seed: int
    directory: str

    @property
    def name(self) -> str:
        return f"{self.group}/{self.arm}_seed{self.seed}"


def policies(sweep: str) -> list[Policy]:
    """Returns the finished runs in a sweep's directory; prints which are not finished.

    Raises:
        ValueError: there are none.
    """
    finished, unfinished = [], []
    for path in sorted(pathlib.Path(sweep).glob("*/*/*_seed*/")):
        match = _RUN.fullmatch(path.name)
        if match and (path / "policy" / "config.json").exists():
            group = str(path.parent.relative_to(sweep))
            finished.append(Policy(group, match[1], int(match[2]), str(path)))
        elif match:
            unfinished.append(path.name)
    if not finished:
        raise ValueError(
            f"--sweep={sweep} has no finished run: give the --workdir of an experiments.sweep"
        )
    if unfinished:
        print(f"not finished, so left out: {', '.join(unfinished)}")
    return finished


def pooled(of_seeds: Sequence[Results]) -> dict[str, Result]:
    """Returns, for each benchmark that all seeds have, one result with the answers of all."""
    together = {}
    for name, first in of_seeds[0].items():
        if all(name in each for each in of_seeds):
            same = [each[name] for each in of_seeds]
            items = range(len(first.uids))
            together[name] = dataclasses.replace(
                first,
                correct_MG=np.concatenate([r.correct_MG for r in same], axis=1),
                extracted=[[text for r in same for text in r.extracted[i]] for i in items],
                counts={what: sum(r.counts[what] for r in same) for what in first.counts},
            )
    return together


def write(
    workdir: str,
    groups: Groups,
    untrained: Results | None,
    *,
    baseline: str,
    size: str,
    seed: int,
) -> str:
    """Writes tables.md to `workdir` and returns it.

    Args:
        workdir: of the evaluation.
        groups: results by data/loss, arm and seed.
        untrained: those of the policy before training, if they are known.
        baseline: what all arms but `ABLATIONS` are compared with; those are compared with `vade`.
        size: "7B" or "3B" for the paper's rows, or "".
        seed: of resamples.
    """
    rows, variants, num_seeds = ({BASE: untrained} if untrained else {}), {}, {}
    for group, arms in groups.items():
        has_ablations = any(_selector(arm) in ABLATIONS for arm in arms)
        for arm, seeds in arms.items():
            label, is_ablation = _label(arm, group), _selector(arm) in ABLATIONS
            results, num_seeds[label] = pooled(list(seeds.values())), len(seeds)
            if not is_ablation:
                rows[label] = results
            if is_ablation or (has_ablations and _selector(arm) == "vade"):
                variants[label] = results
    text = ""
    options: dict[str, Any] = {"size": size, "seeds": num_seeds, "seed": seed}
    if rows:
        text += f"# Table 1\n\n{summary.table(rows, **options)}\n"
    if variants:
        shown = summary.table(variants, ablations=True, **options)
        text += f"\n# Tables 2 and 5: VADE and its variants\n\n{shown}\n"
    lines = [x for each in (rows | variants).values() for x in summary.scorers(each).splitlines()]
    text += "\n" + "".join(f"- {line}\n" for line in dict.fromkeys(lines)) if lines else ""
    text += _paired(_differences(groups, baseline, seed))
    atomic.write_text(os.path.join(workdir, "tables.md"), text)
    return text


def _label(arm: str, group: str) -> str:
    data, _, loss = group.partition("/")
    return f"{arm} + {loss.upper()}" + ("" if data == "clean" else f" ({data})")


def _selector(arm: str) -> str:
    """Returns an arm's name without its learning rate: vade for vade@5e-5."""
    return arm.partition("@")[0]


def _differences(
    groups: Groups, baseline: str, seed: int
) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Returns the number of shared seeds and the difference, by "arm minus its counterpart"."""
    gaps = {}
    for group, arms in groups.items():
        for arm, seeds in arms.items():
            vade = "vade" + arm.removeprefix(_selector(arm))  # at the same learning rate
            other = vade if _selector(arm) in ABLATIONS and vade in arms else baseline
            both = sorted(seeds.keys() & arms.get(other, {}).keys())
            if arm != other and both:
                mine, theirs = (pooled([x[n] for n in both]) for x in (seeds, arms[other]))
                label = f"{_label(arm, group)} minus {_label(other, group)}"
                gaps[label] = len(both), summary.difference(mine, theirs, seed)
    return gaps


def _paired(gaps: Mapping[str, tuple[int, Mapping[str, Any]]]) -> str:
    """Returns the table of differences, in points."""
    if not gaps:
        return "\nNo arm shares a seed with its baseline: no differences.\n"
    names = [*benchmarks.BENCHMARKS, "average"]
    columns = [name for name in names if any(name in gap for _, gap in gaps.values())]
    rows, remarks = [], ""
    for label, (num, gap) in gaps.items():
        cells = [stats.Estimate(**gap[n]).points("+") if n in gap else "" for n in columns]
        rows.append([label, *cells, str(num)])
        remarks += "".join(f"- {label}: {line}\n" for line in summary.not_alike(gap))
    header = ["", *columns, "seeds"]
    text = tables.markdown(header, rows, right=range(1, len(header)))
    return (
        f"\n# Differences\n\n{text}\n\nIn points, paired by question and seed, with 95 % intervals "
        f"over questions: another seed of training may differ by more.\n{remarks}"
    )
