"""Times that can be divided by each other, and the speeds of this machine that floors are made of.

A shared machine swings by a factor of two between runs. So the cases of a table take turns in one run,
together with the matmul and the copy that their floors are made of, and the shortest time counts.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Case = Callable[[], Any]  # runs once; what it returns is waited for
MATMUL_SIZE, NUM_MATMULS = 1024, 8


class Machine(NamedTuple):
    """What this machine reached in the run it is measured in."""

    flops: float  # float32 matmul, FLOP/s
    bandwidth: float  # bytes/s, read and written, of an array as large as the work's


def interleaved(
    cases: Mapping[str, Case], *, rounds: int, num_bytes: int, budget: float = 20.0
) -> tuple[dict[str, float], Machine]:
    """Returns the shortest time of each case in seconds, and the machine.

    One run of each comes first, untimed: it compiles.

    Args:
        cases: what is timed, in turns.
        rounds: runs of each case.
        num_bytes: that the work moves; the bandwidth is measured with as many, because an array
            that fits in a cache is read faster.
        budget: seconds after which a case sits out the further rounds; two it always takes.
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
    return best, Machine(flops, num_bytes / best.pop("copy"))


def seconds(run: Case) -> float:
    """Returns the time of one run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def describe() -> str:
    """Returns one line on the machine: a load near its cores makes all times doubtful."""
    device = jax.devices()[0]
    return (
        f"{os.cpu_count()} cores, {jax.default_backend()} "
        f"({device.device_kind}), jax {jax.__version__}, "
        f"load {os.getloadavg()[0]:.1f} before the start"
    )


def _matmul() -> Case:
    """Multiplies in a loop: a new output's pages, at each call, would take as long again."""
    shape = (MATMUL_SIZE, MATMUL_SIZE)
    x = jnp.full(shape, 1 / MATMUL_SIZE, jnp.float32)  # its own square
    square = lambda _, x: jnp.matmul(x, x, precision="float32")
    multiply = jax.jit(lambda x: jax.lax.fori_loop(0, NUM_MATMULS, square, x))
    return lambda: multiply(x)


def _copy(num_bytes: int) -> Case:
    """Reads and writes `num_bytes` altogether, in place: new pages would cost more."""
    negate = jax.jit(jnp.negative, donate_argnums=0)
    x = [jnp.zeros(num_bytes // 8, jnp.float32)]

    def run():
        x[0] = negate(x[0])
        return x[0]

    return run
