"""How well a selector knew the pass rates before it asked, from the rollout logs of a run.

Its belief about a prompt before a step is in the log, Beta(alpha + 1, beta + 1). What is compared with the
answers is its mean. At a prompt's first visit there was no answer to it yet: what the selector then knows, it
was told, or it has learned it from other prompts. After a pass over all prompts, which is in no log, none is
a first visit.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import tables
from vade_jax.report import curves, run
from vade_jax.store import rollout_log
from vade_jax.types import PathLike

PARTS = 3  # of a run's steps
NAMES = ("auroc", "first_auroc", "correlation", "ceiling")
Foresight = Mapping[str, Sequence[float]]  # NAMES -> a value for each part of the steps
NOTES = (
    "AUROC: the chance that the belief was higher before a right answer than before a wrong one; 0.5 says "
    "nothing. First visits: of prompts that had not been asked before.",
    "Correlation of the belief with the share of right answers, and the most that perfect knowledge of the "
    "pass rates would have, as a few answers only estimate them.",
    "Mixed groups: their share, as the selector forecast it and as it was found.",
)


# ------------------------------------------------------------------------------ one run
def of_directory(workdir: PathLike) -> dict[str, list[float]]:
    """Returns `Foresight`; empty if the run has no rollout logs, or its selector no belief."""
    if not rollout_log.paths(workdir):
        return {}
    log = run.read(workdir)
    groups = [x for x in log.groups if x.count and math.isfinite(x.alpha)]
    if not groups:
        return {}
    has_passes = curves.named(log.records, "vade/measured_rollouts").values.any()
    seen, columns = {x.uid for x in groups if has_passes}, []
    for group in groups:
        mean = (group.alpha + 1) / (group.alpha + group.beta + 2)
        columns.append((group.step, group.uid not in seen, mean, group.right, group.count))
        seen.add(group.uid)
    step_G, first_G, mean_G, right_G, count_G = (np.array(x) for x in zip(*columns, strict=True))
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for after, until in parts(step_G.max()):
        own = (step_G > after) & (step_G <= until)
        of_all, of_first = (
            [x_G[chosen] for x_G in (mean_G, right_G, count_G)] for chosen in (own, own & first_G)
        )
        found["auroc"].append(auroc(*of_all))
        found["first_auroc"].append(auroc(*of_first))
        for name, value in zip(NAMES[2:], correlation(*of_all), strict=True):
            found[name].append(value)
    return found


def parts(last: int) -> list[tuple[int, int]]:
    """Returns the step before each part of a run of `last` steps, and the last step of the part."""
    bounds = [round(last * part / PARTS) for part in range(PARTS + 1)]
    return list(itertools.pairwise(bounds))


def auroc(belief_G: np.ndarray, right_G: np.ndarray, count_G: np.ndarray) -> float:
    """Returns the chance that a right answer had the higher belief of a pair; NaN without both kinds."""
    order = np.argsort(belief_G, kind="stable")
    belief_G, right_G = belief_G[order], right_G[order].astype(float)
    wrong_G = count_G[order] - right_G
    _, start = np.unique(belief_G, return_index=True)  # groups with one belief are ties
    if not len(start) or not right_G.sum() * wrong_G.sum():
        return math.nan
    right_U, wrong_U = np.add.reduceat(right_G, start), np.add.reduceat(wrong_G, start)
    below_U = np.cumsum(wrong_U) - wrong_U
    return float(right_U @ (below_U + wrong_U / 2) / (right_G.sum() * wrong_G.sum()))


def correlation(
    belief_G: np.ndarray, right_G: np.ndarray, count_G: np.ndarray
) -> tuple[float, float]:
    """Returns the correlation with the share of right answers, and its ceiling; NaN where nothing varies.

    A group of n answers has its share with a variance of p (1 - p) / n around the pass rate p, which
    k (n - k) / (n - 1) / n / n estimates without bias. What is left of the shares' variance is that of p.
    """
    if len(belief_G) < 2 or count_G.min() < 2:
        return math.nan, math.nan
    share_G = right_G / count_G
    noise = np.mean(share_G * (1 - share_G) / (count_G - 1))
    total = np.var(share_G, ddof=1)
    if not total:
        return math.nan, math.nan
    found = np.corrcoef(belief_G, share_G)[0, 1] if np.ptp(belief_G) > 1e-6 else math.nan
    return float(found), math.sqrt(max(0.0, 1 - noise / total))


# ------------------------------------------------------------------------------ over seeds
def markdown(groups: Mapping[str, Mapping[str, Sequence[Any]]]) -> str:
    """Returns a table for each data/loss, "" if no arm has a belief.

    Args:
        groups: `records.Recorded` runs by data/loss, then by arm.
    """
    texts = []
    for name, arms in groups.items():
        head, rows = table(arms)
        if rows:
            texts.append(f"## {name}\n\n{tables.markdown(head, rows)}\n")
    return "\n".join([*texts, *(f"- {note}" for note in NOTES)]) if texts else ""


def table(arms: Mapping[str, Sequence[Any]]) -> tuple[list[str], list[list[str]]]:
    """Returns a row for each arm and part of the steps; arms without a belief are left out."""
    head = ["arm", "third of the steps", "AUROC", "of first visits", "correlation", "its ceiling"]
    head += ["mixed: forecast", "found"]
    known = {arm: [run for run in runs if run.foresight] for arm, runs in arms.items()}
    rows = [_row(arm, runs, part) for arm, runs in known.items() if runs for part in range(PARTS)]
    return head, rows


def _row(arm: str, runs: Sequence[Any], part: int) -> list[str]:
    row = [arm, ("first", "second", "last")[part]]
    row += [curves.mean([run.foresight[name][part] for run in runs]).text() for name in NAMES]
    means_R = [_mixed(run.records, part) for run in runs]
    return row + [curves.mean(values).text("{:.2f}") for values in zip(*means_R, strict=True)]


def _mixed(records: curves.Records, part: int) -> list[float]:
    """Returns the share of mixed groups in a part of the run's own steps: as forecast, and as found."""
    after, until = parts(max(record["step"] for record in records))[part]
    own = [record for record in records if after < record["step"] <= until]
    return [float(np.mean(x)) if len(x) else math.nan for x in curves.predicted_and_observed(own)]
