"""Reads from a compiled program's text what it sends between devices, launches and copies.

JAX's `memory_analysis()` and `cost_analysis()` know none of the three. What a loop runs counts as often as
the loop does; of a conditional only the branch that runs most counts. Bytes are those that one device sends
if its group is a ring of n devices: (n - 1) / n of an all-gather's result or of the operand of a
reduce-scatter or all-to-all, twice that of an all-reduce, all of a permutation's operand. On a GPU each
operation is a kernel or a copy that is launched, on a CPU a thunk.
"""

import collections
import math
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

COLLECTIVE = r"all-(gather|reduce|to-all)|reduce-scatter|ragged-all-to-all|collective-permute"
CONTROL = ("while", "conditional", "call")
# What costs nothing.
FREE = r"after-all|bitcast|constant|copy-done|get-tuple-element|opt-barrier|parameter|tuple|\w+-id"
# As operations, or as the last part of a fusion
MOVES = ("copy", "copy-start", "transpose", "slice", "dynamic-slice", "concatenate")
LARGE = 2**20  # bytes from which a move counts
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s64": 8, "u64": 8}
BYTES |= {"f64": 8, "c64": 8}  # all others: 4

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*)$")
_CALLED = re.compile(
    r"(calls|body|condition|true_computation|false_computation|called_computations"
    r"|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TO_APPLY = re.compile(r"(to_apply)=(%?[\w.\-]+)")
_TRIPS = re.compile(r'"?known_trip_count"?[:=]\{"?n"?:"?(\d+)"?')
_ARRAY = re.compile(r"\b([a-z]+\d+|pred)\[([\d,]*)\]")


class Instruction(NamedTuple):
    """A line of a program."""

    op: str  # "while", "all-reduce-start"
    result: str  # its type
    text: str  # after the op's opening parenthesis
    where: str  # the computation that it is in


Computations = dict[str, list[Instruction]]


def sent(text: str, num_devices: int) -> dict[str, float]:
    """Returns the bytes that one device sends, by kind of collective."""
    entry, computations = _parse(text)
    weigh = lambda x: (_sent(x, num_devices) or ("", 0.0))[1]
    sums, channels = collections.Counter(), set()
    for x, times in _executed(entry, computations, weigh):
        if one := _sent(x, num_devices):
            # A TPU sends an array while it computes: the start, the end and every kernel that sends a part
            # of the array contain the whole collective.
            channel = re.search(r"channel_id=\d+", x.text)
            if channel is None or channel[0] not in channels:
                sums[one[0]] += one[1] * times
            channels.add(channel and channel[0])
    return dict(sums)


def launched(text: str, *, of_step: bool = False) -> tuple[int, int]:
    """Returns how many operations a program launches, and the bytes of large copies, transposes and slices.

    A loop whose end depends on data counts once. With `of_step` it is one trip of the outermost loop that
    launches most: a step of decoding.
    """
    entry, computations = _parse(text)

    def count(name: str) -> tuple[int, int]:
        runs = list(_executed(name, computations, _is_launched, CONTROL))
        copied = sum(times * _moved(x, computations) for x, times in runs if _is_launched(x))
        return sum(times * _is_launched(x) for x, times in runs), copied

    if not of_step:
        return count(entry)
    outer = _executed(entry, computations, _is_launched, ("conditional", "call"))
    bodies = [_called(x)["body"][0] for x, _ in outer if x.op == "while"]
    return max(map(count, bodies), default=(0, 0))


# ------------------------------------------------------------------------------ text to structure
def _parse(text: str) -> tuple[str, Computations]:
    """Returns the name of the entry computation, and the instructions of every computation."""
    entry, computations, current = "", {}, None
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            current = start[2]
            computations[current] = []
            entry = current if start[1] else entry
        elif line == "}":  # a kernel's metadata may have lines that start with one
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            computations[current].append(_instruction(match[1], current))
    return entry, computations


def _instruction(line: str, where: str) -> Instruction:
    """Cuts `TYPE op(operands), attributes`, where a type may be a tuple with parentheses in it."""
    depth, cut = 0, 0
    while depth or line[cut] != " ":
        depth += (line[cut] in "([{") - (line[cut] in ")]}")
        cut += 1
    op, _, text = line[cut + 1 :].partition("(")
    return Instruction(op, line[:cut], text, where)


def _executed(
    name: str,
    computations: Computations,
    weigh: Callable[[Instruction], float],
    into: Collection[str] | None = None,
) -> Iterator[tuple[Instruction, int]]:
    """Yields the instructions that one run of a computation executes, and how often.

    Those that `into` names, or all, are followed by what they call; a conditional by its heaviest branch.
    """
    for x in computations.get(name, ()):
        yield x, 1
        if into is not None and x.op not in into:
            continue
        names = [one for names in _called(x).values() for one in names]
        runs = [list(_executed(one, computations, weigh, into)) for one in names]
        if x.op == "conditional":
            runs = [max(runs, key=lambda run: sum(times * weigh(one) for one, times in run))]
        trips = _trips(x, computations) if x.op == "while" else 1
        for run in runs:
            yield from ((one, times * trips) for one, times in run)


def _called(x: Instruction) -> dict[str, list[str]]:
    """Returns the names of the computations that an instruction runs, by attribute."""
    names = lambda value: [n.strip().lstrip("%") for n in value.strip("{}").split(",") if n.strip()]
    # Elsewhere, as in a reduction, `to_apply` is one step of the operation itself.
    applied = _TO_APPLY.findall(x.text) if x.op == "call" else []
    return {key: names(value) for key, value in _CALLED.findall(x.text) + applied}


def _trips(loop: Instruction, computations: Computations) -> int:
    """Returns how often a loop runs: the compiler's number, or else the constant that it counts to.

    It is 1 for a loop whose end depends on data.
    """
    if known := _TRIPS.search(loop.text):
        return int(known[1])
    (condition,) = _called(loop).get("condition", [""])
    constants = [
        int(x.text.partition(")")[0])
        for x, _ in _executed(condition, computations, _is_launched)
        if x.op == "constant" and re.match(r"s(32|64)\[\]", x.result)
    ]
    return constants[0] if len(constants) == 1 else 1


# ------------------------------------------------------------------------------ one instruction
def _sent(x: Instruction, num_devices: int) -> tuple[str, float] | None:
    """Returns the kind of a collective and the bytes that one device sends; None for other instructions."""
    kind = x.op.removesuffix("-start")
    if not re.fullmatch(COLLECTIVE, kind):
        return None
    arrays = list(_arrays(x.result))
    if x.op.endswith("-start") and kind != "all-reduce":  # the operands come before the results
        arrays = [one for one in arrays if one[0]]  # a permutation has two counters at the end
        arrays = arrays[len(arrays) // 2 :]
    ways = _group_size(x.text, num_devices)
    share = (ways - 1) / ways
    factors = {"all-reduce": 2 * share, "reduce-scatter": ways - 1, "collective-permute": 1}
    factor = factors.get(kind, share)
    if kind == "all-reduce" and x.where.startswith("all-reduce-scatter"):
        # On a TPU a reduce-scatter is a fusion of an all-reduce with the slice that is kept.
        kind, factor = "reduce-scatter", share
    return kind, factor * sum(size for _, size in arrays)


def _is_launched(x: Instruction) -> bool:
    return x.op not in CONTROL and not re.fullmatch(FREE, x.op)


def _moved(x: Instruction, computations: Computations) -> int:
    """Returns the bytes that a large copy or slice moves, or a fusion that ends with one; else 0."""
    size = sum(size for _, size in _arrays(x.result))
    # S(1) is a TPU core's own memory: a read of what is used next.
    if size < LARGE or "S(1)" in x.result:
        return 0
    op = x.op
    if op == "fusion":
        body = computations[_called(x)["calls"][0]]
        op = [one.op for one in body if one.op not in ("bitcast", "reshape")][-1]
    return size if op in MOVES else 0


def _arrays(result: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yields the shape and the bytes of each array in the text of a type."""
    for dtype, sizes in _ARRAY.findall(re.sub(r"\{[^{}]*\}", "", result)):
        shape = tuple(int(x) for x in sizes.split(",") if x)
        yield shape, math.prod(shape) * BYTES.get(dtype, 4)


def _group_size(text: str, num_devices: int) -> int:
    """Returns n of `{{0,1},{2,3}}`, `[groups,n]<=[...]` or `mesh['a'=2,'b'=2] {'a'}`."""
    match = re.search(r"replica_groups=(.*)", text)
    groups = match[1] if match else ""
    if listed := re.match(r"\{\{([\d,]*)\}", groups):
        return len(listed[1].split(","))
    if tiled := re.match(r"\[\d+,(\d+)\]", groups):
        return int(tiled[1])
    if named := re.match(r"@?\w*\[([^\]]*)\] \{([^}]*)\}", groups):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", named[1]))
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part or sizes[axis]) for axis, part in axes)
    return num_devices
