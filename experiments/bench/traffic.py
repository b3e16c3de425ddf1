"""Reads from the text of a compiled program what it sends between devices.

A collective counts as often as it runs: its bytes are multiplied by the trip counts of the loops around it,
and of a conditional only the branch that sends most counts. Bytes are those that one device sends if its
group is a ring of n devices:

    all-gather                 (n - 1) / n of the result
    reduce-scatter, all-to-all (n - 1) / n of the operand
    all-reduce                 twice that: a reduce-scatter and an all-gather
    collective-permute         the operand
"""

import functools
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
)
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s64": 8, "u64": 8}
BYTES |= {"f64": 8, "c64": 8}  # all others: 4

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_CALLED = re.compile(
    r"(calls|body|condition|true_computation|false_computation|called_computations"
    r"|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TO_APPLY = re.compile(r"(to_apply)=(%?[\w.\-]+)")
_TRIPS = re.compile(r'"?known_trip_count"?[:=]\{"?n"?:"?(\d+)"?')
_ARRAY = re.compile(r"\b([a-z]+\d+|pred)\[([\d,]*)\]")


class Collective(NamedTuple):
    """One instruction: a device sends `sent` bytes each time, `times` times in the whole program."""

    kind: str
    dtype: str
    shape: tuple[int, ...]  # of the largest array of its result
    ways: int
    sent: float
    times: int
    op: str  # JAX's name of the operation that it comes from
    channel: str  # the compiler's number for it, if it has one


class Instruction(NamedTuple):
    """A line of a program."""

    name: str
    op: str  # "while", "all-reduce-start"
    result: str  # its type
    text: str  # after the op's opening parenthesis


def collectives(text: str, num_devices: int) -> list[Collective]:
    """Returns the collectives of a compiled program, most bytes first."""
    entry, computations = parse(text)

    @functools.cache
    def inside(name: str) -> tuple[Collective, ...]:
        """Returns the collectives of one run of a computation."""
        found = []
        for instruction in computations.get(name, ()):
            if one := _collective(instruction, num_devices):
                # On a TPU a reduce-scatter is a fusion of an all-reduce with the slice that is kept.
                if one.kind == "all-reduce" and name.startswith("all-reduce-scatter"):
                    one = one._replace(kind="reduce-scatter", sent=one.sent / 2)
                found.append(one)
                continue
            groups = called(instruction)
            if instruction.op == "conditional":
                runs = [max((inside(x) for g in groups.values() for x in g), key=_total)]
            else:
                runs = [inside(x) for g in groups.values() for x in g]
            trips = trip_count(instruction, computations) if instruction.op == "while" else 1
            found += [x._replace(times=x.times * trips) for run in runs for x in run]
        return tuple(_once(found))

    return sorted(inside(entry), key=lambda x: -x.sent * x.times)


def total(found: Iterable[Collective]) -> dict[str, float]:
    """Returns the bytes that one device sends, by kind of collective."""
    sums = {}
    for x in found:
        sums[x.kind] = sums.get(x.kind, 0) + x.sent * x.times
    return sums


def _once(found: Iterable[Collective]) -> Iterable[Collective]:
    """Yields only one collective for each channel.

    A TPU sends an array while it computes. The start, the end, and every kernel that sends a part of the
    array contain the whole collective.
    """
    channels = set()
    for x in found:
        if x.channel not in channels:
            yield x
        channels |= {x.channel} - {""}


def _total(found: Iterable[Collective]) -> float:
    return sum(total(found).values())


def copies(text: str, lengths: set[int], at_least: int) -> list[tuple[str, int]]:
    """Returns type and bytes of copied arrays that are stacks of layers, the largest first.

    Copies of a broadcast do not count: they are the zeros that a sum over layers or micro-batches starts
    with.

    Args:
        text: the text of the program.
        lengths: numbers of layers, which are the first dimensions of stacks.
        at_least: bytes from which a copy counts.
    """
    found = {}
    for instructions in parse(text)[1].values():
        for x in instructions:
            if x.op not in ("copy", "copy-start") or "broadcast" in x.text.partition(")")[0]:
                continue
            dtype, shape, size = next(_arrays(x.result), ("", (), 0))
            if len(shape) > 2 and shape[0] in lengths and size >= at_least:
                found[f"{dtype}{list(shape)}".replace(" ", "")] = size
    return sorted(found.items(), key=lambda x: -x[1])


# ------------------------------------------------------------------------------ text to structure
def parse(text: str) -> tuple[str, dict[str, list[Instruction]]]:
    """Returns the name of the entry computation, and the instructions of every computation."""
    entry, computations, current = "", {}, None
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            current = computations.setdefault(start[2], [])
            entry = start[2] if start[1] else entry
        elif line == "}":  # a kernel's metadata may have lines that start with one
            current = None
        elif current is not None and (found := _INSTRUCTION.match(line)):
            current.append(_instruction(found[1], found[2]))
    return entry, computations


def _instruction(name: str, rest: str) -> Instruction:
    """Cuts `TYPE op(operands), attributes`, where a type may be a tuple with parentheses in it."""
    depth, cut = 0, 0
    while depth or rest[cut] != " ":
        depth += (rest[cut] in "([{") - (rest[cut] in ")]}")
        cut += 1
    op, _, text = rest[cut + 1 :].partition("(")
    return Instruction(name, op, rest[:cut], text)


def called(instruction: Instruction) -> dict[str, list[str]]:
    """Returns the names of the computations that an instruction runs, by attribute."""
    names = lambda x: [n.strip().lstrip("%") for n in x.strip("{}").split(",") if n.strip()]
    found = _CALLED.findall(instruction.text)
    # Elsewhere, as in a reduction, it is one step of the operation itself.
    if instruction.op == "call":
        found += _TO_APPLY.findall(instruction.text)
    return {key: names(value) for key, value in found}


def trip_count(loop: Instruction, computations: dict[str, list[Instruction]]) -> int:
    """Returns how often a loop runs: the compiler's number, or else the constant that it counts to.

    It is 1 for a loop whose end depends on data.
    """
    if known := _TRIPS.search(loop.text):
        return int(known[1])
    condition = computations.get(next(iter(called(loop).get("condition", [""]))), [])
    todo, constants = list(condition), []
    while todo:
        instruction = todo.pop()
        if instruction.op == "constant" and re.match(r"s(32|64)\[\]", instruction.result):
            constants.append(int(instruction.text.partition(")")[0]))
        for names in called(instruction).values():
            todo += [x for name in names for x in computations.get(name, ())]
    return max(constants) if len(constants) == 1 else 1


def _collective(instruction: Instruction, num_devices: int) -> Collective | None:
    kind = instruction.op.removesuffix("-start")
    if kind not in KINDS:
        return None
    # One collective may send several arrays. The result of a "-start", except an all-reduce's, lists the
    # operands before the results.
    arrays = list(_arrays(instruction.result))
    if instruction.op.endswith("-start") and kind != "all-reduce":
        arrays = [x for x in arrays if x[1]]  # a permutation has two counters at the end
        arrays = arrays[len(arrays) // 2 :]
    ways = _group_size(instruction.text, num_devices)
    if kind == "reduce-scatter":
        arrays = [(dtype, shape, size * ways) for dtype, shape, size in arrays]
    whole = sum(size for _, _, size in arrays)
    share = (ways - 1) / ways * (2 if kind == "all-reduce" else 1)
    dtype, shape, _ = max(arrays, key=lambda x: x[2], default=("", (), 0))
    name = re.search(r'op_name="([^"]*)"', instruction.text)
    channel = re.search(r"channel_id=(\d+)", instruction.text)
    return Collective(
        kind=kind,
        dtype=dtype,
        shape=shape,
        ways=ways,
        sent=whole * (1 if kind == "collective-permute" else share),
        times=1,
        op=name[1] if name else "",
        channel=channel[1] if channel else "",
    )


def result_bytes(instruction: Instruction) -> int:
    """Returns the bytes of what an instruction returns."""
    return sum(size for _, _, size in _arrays(instruction.result))


def _arrays(result: str):
    """Yields (dtype, shape, bytes) of each array in the text of a type."""
    for dtype, sizes in _ARRAY.findall(re.sub(r"\{[^{}]*\}", "", result)):
        shape = tuple(int(x) for x in sizes.split(",") if x)
        yield dtype, shape, math.prod(shape) * BYTES.get(dtype, 4)


def _group_size(text: str, num_devices: int) -> int:
    """Returns n of `{{0,1},{2,3}}`, `[groups,n]<=[...]` or `mesh['a'=2,'b'=2] {'a'}`."""
    groups = re.search(r"replica_groups=(.*)", text)
    if not groups:
        return num_devices
    groups = groups[1]
    if listed := re.match(r"\{\{([\d,]*)\}", groups):
        return len(listed[1].split(","))
    if tiled := re.match(r"\[\d+,(\d+)\]", groups):
        return int(tiled[1])
    if named := re.match(r"@?\w*\[([^\]]*)\] \{([^}]*)\}", groups):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", named[1]))
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part or sizes[axis]) for axis, part in axes)
    return num_devices
