"""Times that can be compared, and tables of them.

The speed of a shared machine varies by a factor of two between runs. So the cases of a table take turns in
one run, and the shortest time of each counts.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax

from experiments import errors
from vade_jax import atomic, tables

Case = Callable[[], Any]  # runs once; the timer waits for its result


def seconds(run: Case) -> float:
    """Returns the time of one run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def interleaved(
    cases: Mapping[str, Case], *, rounds: int, budget: float = 30.0
) -> dict[str, float]:
    """Returns the shortest time of each case in seconds; each first runs once untimed, to compile.

    A case skips further rounds after `budget` seconds; it always runs at least twice.
    """
    for run in cases.values():
        jax.block_until_ready(run())
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, run in cases.items():
            if len(times[name]) < 2 or sum(times[name]) < budget:
                times[name].append(seconds(run))
    return {name: min(values) for name, values in times.items()}


class Table(NamedTuple):
    """Cases that were timed by turns; the first is our own code."""

    title: str
    times: Mapping[str, float]
    notes: Mapping[str, str]  # by case

    def __str__(self) -> str:
        ours = next(iter(self.times.values()))
        rows = [
            [name, _duration(time), f"{time / ours:.2f}", self.notes.get(name, "")]
            for name, time in self.times.items()
        ]
        return tables.for_terminal(self.title, ["", "time", "x ours", ""], rows, "", left=(0, 3))


def run(
    suites: Mapping[str, Callable[[bool], Iterable[Table]]], quick: bool, path: str | None
) -> None:
    """Prints each table as soon as it is measured; writes all tables so far to `path`, if given.

    The file is also written before the first suite, so that a wrong path fails at once.
    """
    machine = f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}, jax {jax.__version__}, "
    machine += f"load {os.getloadavg()[0]:.1f} before the start"
    print(machine)
    content = {"machine": machine, "suites": {}}
    with errors.user_errors():
        write_json(path, content)
    for name, suite in suites.items():
        print(f"\n## {name}\n", flush=True)
        content["suites"][name] = []
        for table in suite(quick):
            content["suites"][name].append(table._asdict())
            print(table, flush=True)
            write_json(path, content)


def write_json(path: str | None, content: Mapping[str, Any]) -> None:
    """Writes a JSON file; None: none."""
    if path:
        atomic.write_text(path, json.dumps(content, indent=2) + "\n")


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
