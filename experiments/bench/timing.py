"""Times that can be compared, the machine's speed in the same run, and tables of both.

The speed of a shared machine varies by a factor of two between runs. So the cases of a table take turns in
one run, together with a matmul and a copy, and the shortest time of each counts. The matmul and the copy
measure how fast the machine was at that time. They give the floors: the time that the useful work would take
if nothing were wasted.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments import errors
from vade_jax import atomic, tables

Case = Callable[[], Any]  # runs once; the timer waits for its result
MATMUL_SIZE, NUM_MATMULS = 1024, 8


# ------------------------------------------------------------------------------ times
class Speed(NamedTuple):
    """The speed of this machine in the same run as the cases."""

    flops: float  # float32 matmul, FLOP/s
    bandwidth: float  # bytes/s, read and written, of an array as large as that of the work


def interleaved(
    cases: Mapping[str, Case], *, rounds: int, num_bytes: int, budget: float = 20.0
) -> tuple[dict[str, float], Speed]:
    """Returns the shortest time of each case in seconds, and the speed of the machine.

    Each case first runs once untimed, to compile.

    Args:
        cases: the cases to time, in turns.
        rounds: timed runs of each case.
        num_bytes: the bytes that the work moves. The bandwidth is measured with the same number, because
            an array that fits in a cache is read faster.
        budget: seconds after which a case skips further rounds; it always runs at least twice.
    """
    cases = {**cases, "matmul": _matmul(), "copy": _copy(num_bytes)}
    for run in cases.values():
        jax.block_until_ready(run())
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, run in cases.items():
            if len(times[name]) < 2 or sum(times[name]) < budget:
                times[name].append(seconds(run))
    best = {name: min(values) for name, values in times.items()}
    flops = 2 * NUM_MATMULS * MATMUL_SIZE**3 / best.pop("matmul")
    return best, Speed(flops, num_bytes / best.pop("copy"))


def seconds(run: Case) -> float:
    """Returns the time of one run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def describe() -> str:
    """Returns one line on the machine; a load near the number of cores makes all times doubtful."""
    device = jax.devices()[0]
    return (
        f"{os.cpu_count()} cores, {jax.default_backend()} "
        f"({device.device_kind}), jax {jax.__version__}, "
        f"load {os.getloadavg()[0]:.1f} before the start"
    )


def _matmul() -> Case:
    """Returns a case of matmuls in one loop; allocating an output for each would take as long again."""
    shape = (MATMUL_SIZE, MATMUL_SIZE)
    x = jnp.full(shape, 1 / MATMUL_SIZE, jnp.float32)  # its own square

    @jax.jit
    def multiply(x):
        square = lambda _, x: jnp.matmul(x, x, precision="float32")
        return jax.lax.fori_loop(0, NUM_MATMULS, square, x)

    return lambda: multiply(x)


def _copy(num_bytes: int) -> Case:
    """Returns a case that reads and writes `num_bytes` in total, in place: new pages would cost more."""
    negate = jax.jit(jnp.negative, donate_argnums=0)
    x = jnp.zeros(num_bytes // 8, jnp.float32)

    def run():
        nonlocal x
        x = negate(x)
        return x

    return run


# ------------------------------------------------------------------------------ tables
@dataclasses.dataclass(frozen=True)
class Row:
    """One case of a table."""

    name: str
    seconds: float | None  # None: not run
    ratio: float | None  # seconds / seconds of the table's first row
    floor: float | None  # seconds that the useful work takes at the machine's measured speed
    note: str = ""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for --json


@dataclasses.dataclass(frozen=True)
class Table:
    """Cases that were timed by turns; the first row is our own code."""

    title: str
    rows: list[Row]
    floor: str  # what the floor counts

    def __str__(self) -> str:
        rows = []
        for row in self.rows:
            reached = f"{row.floor / row.seconds:.0%}" if row.floor and row.seconds else "-"
            ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
            rows.append(
                [row.name, _duration(row.seconds), ratio, _duration(row.floor), reached, row.note]
            )
        header = ["", "time", "x ours", "floor", "floor/time", ""]
        return tables.for_terminal(self.title, header, rows, f"floor: {self.floor}", left=(0, 5))


def table(
    title: str,
    times: Mapping[str, float],
    floors: Mapping[str, float | None],
    floor: str,
    *,
    notes: Mapping[str, str] | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> Table:
    """Returns a table of `times`; ratios are relative to the first entry."""
    notes, facts, ours = notes or {}, facts or {}, next(iter(times.values()))
    rows = [
        Row(name, time, time / ours, floors.get(name), notes.get(name, ""), facts.get(name, {}))
        for name, time in times.items()
    ]
    return Table(title, rows, floor)


def run(
    suites: Mapping[str, Callable[[bool], Iterable[Table]]], quick: bool, path: str | None
) -> None:
    """Prints each table as soon as it is measured; writes all tables so far to `path`, if given.

    Args:
        suites: by name, a function that yields tables; its argument is `quick`.
        quick: whether tables should be tiny.
        path: of a JSON file. It is also written before the first suite, so that a wrong path fails at
            once. If a suite fails, the file keeps the tables of the suites before it.
    """
    machine, results = describe(), {}
    print(machine)

    def save():
        if path:
            write_json(path, machine, results)

    with errors.user_errors():
        save()
    for name, suite in suites.items():
        print(f"\n## {name}\n", flush=True)
        results[name] = []
        for table in suite(quick):
            results[name].append(table)
            print(table, flush=True)
            save()


def write_json(path: str, machine: str, results: Mapping[str, Sequence[Table]]) -> None:
    """Writes the machine and every row of every suite."""
    suites = {name: [dataclasses.asdict(one) for one in found] for name, found in results.items()}
    content = {"machine": machine, "suites": suites}
    atomic.write_text(path, json.dumps(content, indent=2) + "\n")


def _duration(seconds: float | None) -> str:
    """Returns seconds with three digits in a fitting unit."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
