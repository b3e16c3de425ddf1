"""What the arms of a sweep chose in their last steps, by family and level, from their rollout logs."""

import collections
import json
import pathlib
from collections.abc import Mapping, Sequence

from vade_jax import atomic, tables
from vade_jax.store import rollout_log
from vade_jax.types import PathLike

LAST_PART = 0.25  # of a run's steps
NOTE = f"""14% (0.70): of the groups of the last {LAST_PART:.0%} of the steps 14 % were of this kind, and
of these 70 % had right and wrong answers.
"""


def write(directories: Mapping[str, Mapping[str, Sequence[PathLike]]], folder: PathLike) -> None:
    """Writes selection.md from run directories by data/loss, then by arm.

    Rollout logs are large and may have been deleted: a note names the runs without them.
    """
    chosen = [f"## {name}\n\n{_group(arms)}\n" for name, arms in directories.items()]
    atomic.write_text(pathlib.Path(folder, "selection.md"), "\n".join([*chosen, NOTE]))


def _group(arms: Mapping[str, Sequence[PathLike]]) -> str:
    """Returns the table of the runs that still have their rollout logs, and a note on those that do not."""
    logged = {arm: [x for x in runs if rollout_log.paths(x)] for arm, runs in arms.items()}
    logged = {arm: runs for arm, runs in logged.items() if runs}
    gone = [str(x) for runs in arms.values() for x in runs if not rollout_log.paths(x)]
    parts = [table(logged)] if logged else []
    if gone:
        parts.append(f"Not counted, as their rollouts are not there: {', '.join(gone)}")
    return "\n\n".join(parts)


def table(arms: Mapping[str, Sequence[PathLike]]) -> str:
    """Returns a row for each family and level, with each arm's share of groups in its last steps."""
    counted = {arm: _count(directories) for arm, directories in arms.items()}
    total = sum((count for count, _ in counted.values()), collections.Counter())
    lines = []
    for family in sorted(total, key=lambda family: (-total[family], family)):
        line = [family]
        for count, mixed in counted.values():
            num = count[family]
            line.append(f"{num / count.total():.0%} ({mixed[family] / num:.2f})" if num else "-")
        lines.append(line)
    return tables.markdown(["family, level", *counted], lines)


def _count(workdirs: Sequence[PathLike]) -> tuple[collections.Counter, collections.Counter]:
    """Returns two counts by family, over the last steps of the runs: of all groups, and of mixed groups."""
    count, mixed = collections.Counter(), collections.Counter()
    for workdir in workdirs:
        paths = rollout_log.paths(workdir)
        for path in paths[-max(1, round(LAST_PART * len(paths))) :]:
            rows = rollout_log.read(path, ["group", "correct", "metadata"])
            answers = collections.defaultdict(list)
            for group, correct in zip(rows["group"], rows["correct"], strict=True):
                if correct is not None:  # None: the answer was not judged
                    answers[group].append(correct)
            metadata = dict(zip(rows["group"], rows["metadata"], strict=True))
            for group, correct in answers.items():
                family = rollout_log.subset(json.loads(metadata[group])) or "all"
                count[family] += 1
                mixed[family] += rollout_log.is_mixed(sum(correct), len(correct))
    return count, mixed
