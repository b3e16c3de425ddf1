"""Where the rollouts went: the share of each family of prompts, and how many of its groups taught."""

import collections
import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from vade_jax.store import rollout_log

PathLike = str | os.PathLike[str]


def table(runs: Mapping[str, Sequence[PathLike]], *, last: float = 0.25) -> str:
    """Returns markdown: for every family and level, each label's share of groups and mixed share.

    "14 % (0.70)" is 14 % of all groups, 70 % of them with right and wrong answers.

    Args:
        runs: run directories by label, one per seed; all must have rollout logs.
        last: the share of each run's steps that is read, from its end.
    """
    counted = {
        label: _count(group for workdir in dirs for group in _groups(workdir, last))
        for label, dirs in runs.items()
    }
    families = sorted(
        {family for counts in counted.values() for family in counts},
        key=lambda family: -sum(counts[family][0] for counts in counted.values()),
    )
    lines = [["family, level", *counted], ["---"] * (1 + len(counted))]
    for family in families:
        cells = [_cell(counts, family) for counts in counted.values()]
        lines.append([family, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def hopeless_share(workdir: PathLike) -> float:
    """Returns the share of a run's rollouts on prompts that cannot be answered right, or NaN.

    Those of the built-in data's stratum "impossible", and those with a wrong gold. NaN: the run has
    no rollout logs, or is of data that do not say which prompts those are.
    """
    counted = collections.Counter()
    for path in (pathlib.Path(workdir) / "rollouts").glob("step_*.parquet"):
        counted.update(rollout_log.read(path)["metadata"])
    fields = [(json.loads(text), count) for text, count in counted.items()]
    if not any("stratum" in of for of, _ in fields):
        return math.nan
    hopeless = sum(count for of, count in fields if _is_hopeless(of))
    return hopeless / counted.total()


def _is_hopeless(fields: Mapping) -> bool:
    return fields.get("stratum") == "impossible" or bool(fields.get("mislabelled"))


def _groups(workdir: PathLike, last: float) -> Iterator[tuple[str, list[float]]]:
    """Yields the family and the 0/1 answers of each group in the last steps of a run."""
    paths = sorted((pathlib.Path(workdir) / "rollouts").glob("step_*.parquet"))
    if not paths:
        raise FileNotFoundError(f"no rollouts in {workdir}/rollouts")
    for path in paths[-max(1, round(last * len(paths))) :]:
        rows = rollout_log.read(path)
        groups = collections.defaultdict(list)
        for group, correct in zip(rows["group"], rows["correct"], strict=True):
            groups[group].append(correct)
        metadata = dict(zip(rows["group"], rows["metadata"], strict=True))
        for group, answers in groups.items():
            yield rollout_log.subset(json.loads(metadata[group])) or "all", answers


def _count(groups) -> dict[str, list[int]]:
    """Returns [groups, mixed groups] by family."""
    counts = collections.defaultdict(lambda: [0, 0])
    for family, answers in groups:
        counts[family][0] += 1
        counts[family][1] += 0 < sum(answers) < len(answers)
    return counts


def _cell(counts, family):
    num, mixed = counts[family]
    total = sum(n for n, _ in counts.values())
    return f"{num / total:.0%} ({mixed / num:.2f})" if num else "-"
