"""Times that can be compared, and the table of them, as in docs/speed.md.

The speed of a shared machine varies by a factor of two between runs. So the cases of a table take turns in
one run, and the shortest time of each counts.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vade_jax import tables

Case = Callable[[], Any]  # runs once; the timer waits for its result
HEADER = ("what", "ours", "peer", "ratio", "floor", "share", "command")


def seconds(run: Case) -> float:
    """Returns the time of one run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def interleaved(cases: Mapping[str, Case], *, rounds: int) -> dict[str, list[float]]:
    """Returns the times of each case in seconds; each first runs once untimed, to compile."""
    for run in cases.values():
        jax.block_until_ready(run())
    times = [{name: seconds(run) for name, run in cases.items()} for _ in range(rounds)]
    return {name: [of_round[name] for of_round in times] for name in cases}


def matmul_flops(size: int = 2048) -> float:
    """Returns the FLOP/s of this machine's float32 matmul, which no program of matmuls exceeds."""
    x, multiply = jnp.ones((size, size)), jax.jit(jnp.matmul)
    (times,) = interleaved({"": lambda: multiply(x, x)}, rounds=5).values()
    return 2 * size**3 / min(times)


class Table(NamedTuple):
    """Cases that were timed by turns; the first is our own code."""

    title: str
    times: Mapping[str, list[float]]
    floor: float = 0.0  # seconds of the first case's useful FLOPs at `matmul_flops`; 0: not counted

    def rows(self, suite: str) -> list[list[str]]:
        """Returns lines under HEADER, one for each other case."""
        command, cases = f"`--suite={suite}`", list(self.times.items())
        ours, share = cases[0][1], ["", ""]
        if self.floor:
            share = [ms([self.floor]), f"{self.floor / min(ours):.0%}"]
        return [
            [self.title, ms(ours), f"{name}: {ms(x)}", f"{min(x) / min(ours):.2f}", *share, command]
            for name, x in cases[1:]
        ]


def ms(times: list[float]) -> str:
    """Returns the shortest time, and the median of several, in ms."""
    least, median = 1e3 * min(times), 1e3 * statistics.median(times)
    return f"{least:,.1f} ms" + (f" ({median:,.1f})" if len(times) > 1 else "")


def run(suites: Mapping[str, Callable[[bool], Iterable[Table]]], quick: bool) -> None:
    """Prints each table as soon as it is measured, and at the end all of them as one."""
    machine = f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}, jax {jax.__version__}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f} before the start")
    rows = []
    for name, suite in suites.items():
        for table in suite(quick):
            rows += (new := table.rows(name))
            print(tables.markdown(HEADER, new), end="\n\n", flush=True)
    print(tables.markdown(HEADER, rows))
