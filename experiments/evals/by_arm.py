"""The policies of a sweep in the paper's tables: seeds together, each arm next to its baseline.

The answers of all seeds of an arm are pooled, as if one policy had answered each question more often. So
standard errors and intervals show how much other questions would change a number, not how much other
training runs would. For the latter see the sweep's own tables.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.evals import benchmarks, stats, summary
from experiments.evals.results import Result
from experiments.evals.summary import Results
from vade_jax import atomic, fields, tables

BASE = "base"  # the untrained policy's row
# VADE with one option changed, as configs/arms.py names them: they are compared with `vade`. Other arms
# around VADE, such as vade_dapo and vade_measured, stand in Table 1.
ABLATIONS = (
    *("vade_p1p", "vade_greedy", "vade_last_update", "vade_mean", "vade_no_decay"),
    *("vade_decay_selected", "vade_decay_rest", "vade_no_warmup", "vade_full_warmup"),
    *("vade_max_3_in_a_row", "vade_uniform_quarter", "vade_per_token"),
)
_RUN = re.compile(r"(.+)_seed(\d+)")
Seeds = Mapping[int, Results]  # of one arm


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
    found, unfinished = [], []
    for path in sorted(pathlib.Path(sweep).glob("*/*/*_seed*/")):
        match = _RUN.fullmatch(path.name)
        if match is None:
            continue
        if (path / "policy" / "config.json").exists():
            group = str(path.parent.relative_to(sweep))
            found.append(Policy(group, match[1], int(match[2]), str(path)))
        else:
            unfinished.append(path.name)
    if not found:
        raise ValueError(
            f"--sweep={sweep} has no finished run: give the --workdir of an experiments.sweep"
        )
    if unfinished:
        print(f"not finished, so left out: {', '.join(unfinished)}")
    return found


def check_baseline(policies: Sequence[Policy], baseline: str) -> None:
    """Raises ValueError, with the nearest arm, unless some policy is of this one."""
    fields.check_word("--baseline", baseline, sorted({policy.arm for policy in policies}))


def pooled(of_seeds: Sequence[Results]) -> dict[str, Result]:
    """Returns, for each benchmark that all seeds have, one result with the answers of all."""
    together = {}
    for name, first in of_seeds[0].items():
        same = [each[name] for each in of_seeds if name in each]
        if len(same) == len(of_seeds):
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
    groups: Mapping[str, Mapping[str, Seeds]],
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
        named = {_label(arm, group): pooled(list(seeds.values())) for arm, seeds in arms.items()}
        num_seeds |= {_label(arm, group): len(seeds) for arm, seeds in arms.items()}
        ablated = [_label(arm, group) for arm in arms if _selector(arm) in ABLATIONS]
        rows |= {label: found for label, found in named.items() if label not in ablated}
        if ablated:
            whole = [_label(arm, group) for arm in arms if _selector(arm) == "vade"]
            variants |= {label: named[label] for label in (*whole, *ablated)}
    text = ""
    options: dict[str, Any] = {"size": size, "seeds": num_seeds, "seed": seed}
    if rows:
        text += f"# Table 1\n\n{summary.table(rows, **options)}\n"
    if variants:
        shown = summary.table(variants, ablations=True, **options)
        text += f"\n# Tables 2 and 5: VADE and its variants\n\n{shown}\n"
    lines = [x for found in (rows | variants).values() for x in summary.scorers(found).splitlines()]
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


def _compared_with(arm: str, arms: Collection[str], baseline: str) -> str:
    """Returns `vade` at the same learning rate for an ablation, if it is there, else the baseline."""
    whole = "vade" + arm.removeprefix(_selector(arm))
    return whole if _selector(arm) in ABLATIONS and whole in arms else baseline


def _differences(
    groups: Mapping[str, Mapping[str, Seeds]], baseline: str, seed: int
) -> dict[tuple[str, str], tuple[int, Mapping[str, Any]]]:
    """Returns the number of shared seeds and the difference, by labels (of an arm, of its counterpart)."""
    found = {}
    for group, arms in groups.items():
        for arm, seeds in arms.items():
            other = _compared_with(arm, arms, baseline)
            both = sorted(seeds.keys() & arms.get(other, {}).keys())
            if arm == other or not both:
                continue
            mine, theirs = (pooled([x[n] for n in both]) for x in (seeds, arms[other]))
            gap = summary.difference(mine, theirs, seed)
            found[_label(arm, group), _label(other, group)] = len(both), gap
    return found


def _paired(gaps: Mapping[tuple[str, str], tuple[int, Mapping[str, Any]]]) -> str:
    """Returns the table of differences, in points."""
    if not gaps:
        return "\nNo arm shares a seed with its baseline: no differences.\n"
    names = [*benchmarks.BENCHMARKS, "average"]
    columns = [name for name in names if any(name in gap for _, gap in gaps.values())]
    lines = []
    for (arm, other), (num, gap) in gaps.items():
        cells = []
        for name in columns:
            cells.append(stats.Estimate(**gap[name]).points("+") if name in gap else "")
        lines.append([f"{arm} minus {other}", *cells, str(num)])
    header = ["", *columns, "seeds"]
    text = tables.markdown(header, lines, right=range(1, len(header)))
    remarks = [
        f"- {arm} minus {other}: {line}\n"
        for (arm, other), (_, gap) in gaps.items()
        for line in summary.not_alike(gap)
    ]
    return (
        f"\n# Differences\n\n{text}\n\nIn points, paired by question and seed, with 95 % intervals "
        f"over questions: another seed of training may differ by more.\n{''.join(remarks)}"
    )
