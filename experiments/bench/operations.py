"""Counts what a compiled program runs: kernels, copies and transposes, in all and in one trip of a loop.

On a GPU each operation is a kernel or a copy that is launched, on a CPU a thunk. Control (loops, branches)
and what costs nothing (tuples, bitcasts) do not count; of a conditional the longest branch counts.
"""

import collections
import functools
from collections.abc import Iterator
from typing import NamedTuple

from experiments.bench import traffic

FREE = {
    "after-all",
    "bitcast",
    "constant",
    "copy-done",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
}
CONTROL = ("while", "conditional", "call")
# As operations, or as the last part of a fusion
MOVES = ("copy", "copy-start", "transpose", "slice", "dynamic-slice", "concatenate")
LARGE = 2**20  # bytes from which a move counts


class Operations(NamedTuple):
    """What a program, or one trip of a loop, runs."""

    count: int
    moves: int  # copies, transposes and slices of at least LARGE bytes
    moved: float  # their bytes

    def __str__(self) -> str:
        return f"{self.count:,} operations, {self.moved / 1e6:,.0f} MB copied"


def of(text: str) -> Operations:
    """Returns the operations of a whole program; a loop whose end depends on data counts once."""
    entry, computations = traffic.parse(text)
    return _counter(computations)(entry)


def of_longest_loop(text: str) -> Operations:
    """Returns the operations in one trip of the outermost loop that has the most: a step of decoding."""
    entry, computations = traffic.parse(text)
    count = _counter(computations)
    bodies = [count(traffic.called(loop)["body"][0]) for loop in _outermost(entry, computations)]
    return max(bodies, default=Operations(0, 0, 0.0))


def _outermost(name: str, computations) -> Iterator[traffic.Instruction]:
    for x in computations.get(name, ()):
        if x.op == "while":
            yield x
        elif x.op in CONTROL:
            for names in traffic.called(x).values():
                for one in names:
                    yield from _outermost(one, computations)


def _counter(computations):
    @functools.cache
    def count(name: str) -> Operations:
        """Returns the operations of one run of a computation."""
        total = collections.Counter()
        for x in computations.get(name, ()):
            if x.op in CONTROL:
                runs = [count(one) for names in traffic.called(x).values() for one in names]
                runs = [max(runs)] if x.op == "conditional" else runs
                trips = traffic.trip_count(x, computations) if x.op == "while" else 1
                for run in runs:
                    total.update({key: trips * n for key, n in run._asdict().items()})
            elif x.op not in FREE:
                size = traffic.result_bytes(x)
                moves = size >= LARGE and _moves(x, computations)
                total.update(count=1, moves=moves, moved=size * moves)
        return Operations(total["count"], total["moves"], float(total["moved"]))

    return count


def _moves(x: traffic.Instruction, computations) -> bool:
    """Returns whether an operation only moves data: a copy, a slice, or a fusion that ends with one."""
    if "S(1)" in x.result:  # into a TPU core's own memory: a read of what is used next
        return False
    if x.op != "fusion":
        return x.op in MOVES
    body = computations[traffic.called(x)["calls"][0]]
    ends = [
        one for one in body if one.op not in ("bitcast", "reshape")
    ]  # the last one is the result
    return ends[-1].op in MOVES
