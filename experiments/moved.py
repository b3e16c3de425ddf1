"""How far training moved the weights, and whether runs from one start moved them the same way.

    python -m experiments.moved --start=runs/a/warm_start --policies runs/a/policy runs/b/policy

A row a policy: the norm of its move, as a share of the start's norm, and the cosine of its move to the first
policy's. Directories are Hugging Face checkpoints, read a tensor at a time.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments import errors, paths
from vade_jax import tables
from vade_jax.models.qwen import files


class Move(NamedTuple):
    """From a start to one policy, over all weights."""

    length: float  # norm, as a share of the start's
    cosine: float  # to the first policy's move; NaN where one of them is 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints what the command line asks for."""
    parser = argparse.ArgumentParser("experiments.moved", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--start", type=paths.path, required=True, help="the checkpoint that training began with"
    )
    parser.add_argument(
        "--policies",
        type=paths.path,
        nargs="+",
        required=True,
        help="checkpoints that were trained from it",
    )
    given = parser.parse_args(arguments)
    with errors.user_errors():
        moves = compare(given.start, given.policies)
    rows = [
        (path, f"{x.length:.5f}", f"{x.cosine:.3f}")
        for path, x in zip(given.policies, moves, strict=True)
    ]
    header = ["policy", "norm of the move / of the start", "cosine"]
    print(
        tables.for_terminal(
            f"from {given.start}", header, rows, "cosine: to the first policy's move"
        )
    )


def compare(start: str, policies: Sequence[str]) -> list[Move]:
    """Returns the move of each policy.

    Raises:
        FileNotFoundError: a directory is none, or lacks a file.
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


if __name__ == "__main__":
    main(sys.argv[1:])
