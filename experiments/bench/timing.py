"""Times that can be compared, and tables of them.

The speed of a shared machine varies by a factor of two between runs. So the cases of a table take turns in
one run, and the shortest time of each counts.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax

from vade_jax import tables

Case = Callable[[], Any]  # runs once; the timer waits for its result


def seconds(run: Case) -> float:
    """Returns the time of one run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def interleaved(cases: Mapping[str, Case], *, rounds: int) -> dict[str, float]:
    """Returns the shortest time of each case in seconds; each first runs once untimed, to compile."""
    for run in cases.values():
        jax.block_until_ready(run())
    times = [{name: seconds(run) for name, run in cases.items()} for _ in range(rounds)]
    return {name: min(of_round[name] for of_round in times) for name in cases}


class Table(NamedTuple):
    """Cases that were timed by turns; the first is our own code."""

    title: str
    times: Mapping[str, float]
    notes: Mapping[str, str]  # by case

    def __str__(self) -> str:
        ours = next(iter(self.times.values()))
        rows = [
            [name, f"{1e3 * time:,.1f} ms", f"{time / ours:.2f}", self.notes.get(name, "")]
            for name, time in self.times.items()
        ]
        return tables.for_terminal(self.title, ["", "time", "x ours", ""], rows, "", left=(0, 3))


def run(suites: Mapping[str, Callable[[bool], Iterable[Table]]], quick: bool) -> None:
    """Prints each table as soon as it is measured."""
    print(
        f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}, jax {jax.__version__}, load "
        f"{os.getloadavg()[0]:.1f} before the start"
    )
    for name, suite in suites.items():
        print(f"\n## {name}\n", flush=True)
        for table in suite(quick):
            print(table, flush=True)
