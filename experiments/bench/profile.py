"""Lists what a device does in one call of a program: its operations, their number and their time."""

import collections
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax

COSTLIEST = 15
CONTROL = ("while", "cond", "call")  # operations that are made of others


def of(call: Callable[[], Any]) -> dict:
    """Runs `call` once under JAX's profiler.

    On a GPU an operation is a kernel or a copy, on a CPU a thunk. Operations on several streams or threads
    overlap, so that their seconds can add up to more than the call takes.

    Returns:
        operations: how many ran;
        busy: their seconds in all;
        costliest: the COSTLIEST ones as [name, seconds, how often], the longest first.
    """
    seconds, times = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            jax.block_until_ready(call())
        for path in pathlib.Path(directory).rglob("*.xplane.pb"):
            for name, duration in _operations(jax.profiler.ProfileData.from_file(str(path))):
                seconds[name] += duration
                times[name] += 1
    return {
        "operations": sum(times.values()),
        "busy": sum(seconds.values()),
        "costliest": [[name, s, times[name]] for name, s in seconds.most_common(COSTLIEST)],
    }


def _operations(data: jax.profiler.ProfileData) -> Iterator[tuple[str, float]]:
    """Yields the name and the seconds of every operation on a device."""
    for plane in data.planes:
        on_gpu = plane.name.startswith("/device:GPU")
        if not (on_gpu or plane.name == "/host:CPU"):
            continue
        for line in plane.lines:
            if on_gpu and not line.name.startswith("Stream"):
                continue  # the same time again, by module and by name scope
            for event in line.events:
                op = dict(event.stats).get("hlo_op")
                if op is not None or on_gpu:
                    # XLA numbers the copies of an operation: `fusion.12` is one more `fusion`.
                    kind = str(op).rstrip("0123456789").rstrip(".") if op else event.name
                    if not kind.startswith(CONTROL):
                        name = f"{event.name[:60]} ({kind})" if on_gpu and op else kind
                        yield name, event.duration_ns / 1e9
