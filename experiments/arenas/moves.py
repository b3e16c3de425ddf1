"""How far training moved the weights in each run of a sweep, and whether in the same direction."""

import collections
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.arenas.runs import PlannedRun
from vade_jax import tables
from vade_jax.models.qwen import files

NOTE = (
    "Norm: how far all weights moved, as a share of their first norm. Cosine: between this move and that of "
    "{baseline} with the same seed."
)


class Move(NamedTuple):
    """The change of all weights from the start to one policy."""

    length: float  # norm of the change, as a share of the norm of the start
    cosine: float  # to the first policy's change; NaN if either change is 0


def markdown(finished: Sequence[PlannedRun], baseline: str) -> str:
    """Returns a row for each run, compared with the baseline of its data, loss and seed.

    Raises:
        FileNotFoundError: a run's policy or its warm start was removed.
        ValueError: a file is damaged.
    """
    pairs = collections.defaultdict(list)
    for run in finished:
        pairs[run.group, run.seed].append(run)
    rows = []
    for runs in pairs.values():
        runs = sorted(runs, key=lambda run: run.arm != baseline)
        if runs[0].arm == baseline:
            policies = [os.path.join(run.directory, "policy") for run in runs]
            moves = compare(runs[0].settings.warm_start.directory, policies)
            found = zip(runs, moves, strict=True)
            rows += [(run.name, f"{x.length:.5f}", f"{x.cosine:.3f}") for run, x in found]
    head = ["run", "norm of the change", "cosine"]
    return f"{tables.markdown(head, rows)}\n\n{NOTE.format(baseline=baseline)}\n"


def compare(start: str, policies: Sequence[str]) -> list[Move]:
    """Returns the move of each policy, reading one tensor at a time.

    Args:
        start: the checkpoint that training began with.
        policies: checkpoints that were trained from it.

    Raises:
        FileNotFoundError: a directory does not exist, or lacks a file.
        ValueError: a file is damaged, or has other tensors than the start.
    """
    before, after = files.open_tensors(start), [files.open_tensors(path) for path in policies]
    for path, tensors in zip(policies, after, strict=True):
        shapes, own = ({n: x.shape for n, x in of.items()} for of in (before, tensors))
        if shapes != own:
            other = sorted(n for n in shapes | own if shapes.get(n) != own.get(n))
            raise ValueError(f"{path} is no policy that began as {start}: see {other[0]}")
    norm, squares, products = 0.0, np.zeros(len(policies)), np.zeros(len(policies))
    for name, x in before.items():
        x = x.astype(np.float32)
        norm += float(np.vdot(x, x))
        moves = [(tensors[name].astype(np.float32) - x).ravel() for tensors in after]
        squares += [np.vdot(move, move) for move in moves]
        products += [np.vdot(moves[0], move) for move in moves]
    with np.errstate(invalid="ignore"):
        cosines = products / np.sqrt(squares * squares[0])
    lengths = np.sqrt(squares / norm) if norm else np.full(len(policies), math.nan)
    return [Move(*map(float, x)) for x in zip(lengths, cosines, strict=True)]
