"""Scored answers to one benchmark: kept item by item, summarised, one JSON file each."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import types
from vade_jax.evals import benchmarks, stats


@dataclasses.dataclass(frozen=True)
class Result:
    """The answers of one policy to one benchmark, scored.

    Attributes:
      label: of the policy, a row of a table.
      benchmark: name in `BENCHMARKS`.
      profile: "paper" or "cot".
      uids: of the M items.
      correct_MG: bool [M, G].
      extracted: M lists of G texts, None where nothing could be extracted.
      groups: M mappings from breakdown to the item's values.
      clusters: what each item has in common with others, for standard errors.
      settings: sampling, judge, prompt: whatever another run must share to be compared.
      counts: such as "judge_failed", answers scored wrong for want of a verdict.
    """

    label: str
    benchmark: str
    profile: str
    uids: tuple[str, ...]
    correct_MG: np.ndarray
    extracted: Sequence[Sequence[str | None]]
    groups: Sequence[Mapping[str, Sequence[str]]]
    clusters: Sequence[str]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        fields = (self.uids, self.extracted, self.groups, self.clusters)
        shapes = set(map(len, fields))
        if shapes != {len(self.correct_MG)}:
            raise ValueError(
                f"{self.benchmark} of {self.label}: {len(self.correct_MG)} items have "
                f"scores, other fields have {sorted(shapes)}"
            )


def collect(
    label: str,
    benchmark: benchmarks.Benchmark,
    profile: str,
    items: Sequence[types.Item],
    correct_MG: np.ndarray,
    extracted: Sequence[Sequence[str | None]],
    **settings_and_counts: Mapping[str, Any],
) -> Result:
    """Returns the `Result` of scores for `items`, with their groups and clusters."""
    return Result(
        label=label,
        benchmark=benchmark.name,
        profile=profile,
        uids=tuple(item.uid for item in items),
        correct_MG=np.asarray(correct_MG, bool),
        extracted=extracted,
        groups=[benchmark.groups(item) for item in items],
        clusters=[benchmark.cluster(item) for item in items],
        **settings_and_counts,
    )


def summary(result: Result) -> dict[str, Any]:
    """Returns accuracy, its standard error, pass@G, majority@G and the breakdowns.

    The error is None where all items hang together: JSON has no NaN.
    """
    num_items, num_samples = np.shape(result.correct_MG)
    error = stats.standard_error(result.correct_MG, result.clusters)
    return {
        "num_items": num_items,
        "num_samples": num_samples,
        "accuracy": stats.average(result.correct_MG),
        "standard_error": None if math.isnan(error) else error,
        "pass": stats.pass_at_k(result.correct_MG, num_samples),
        "majority": stats.majority(result.extracted, result.correct_MG),
        "breakdown": stats.by_group(result.correct_MG, result.groups),
    }


def save(path: str | pathlib.Path, result: Result) -> None:
    """Writes the result, every item of it, and its summary as JSON."""
    fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    fields["correct_MG"] = np.asarray(result.correct_MG).astype(int).tolist()
    text = json.dumps({"summary": summary(result), **fields}, indent=1)
    pathlib.Path(path).write_text(text + "\n", "utf-8")


def load(path: str | pathlib.Path) -> Result:
    """Reads what `save` wrote.

    Raises:
      ValueError: if it is no such file.
    """
    try:
        fields = json.loads(pathlib.Path(path).read_text("utf-8"))
        names = [f.name for f in dataclasses.fields(Result)]
        fields = {name: fields[name] for name in names}
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{path} holds no result of a benchmark: {error!r}") from error
    fields["uids"] = tuple(fields["uids"])
    fields["correct_MG"] = np.array(fields["correct_MG"], bool)
    return Result(**fields)
