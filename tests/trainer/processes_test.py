"""Two processes without a model; this file is also what they run."""

import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from vade_jax.trainer import mesh, processes

ROOT = pathlib.Path(__file__).parents[2]


def test_two_processes():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
    command = [sys.executable, "-m", "tests.trainer.processes_test", address]
    members = [
        subprocess.Popen(
            [*command, str(i)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]
    try:
        said = [member.communicate(timeout=120)[0] for member in members]
    finally:
        for member in members:
            member.kill()
    assert [member.returncode for member in members] == [0, 0], "\n".join(said)


def _put():
    devices = mesh.make(data=1, fsdp=4)
    x = np.arange(8.0)
    placed = processes.put({"x": x}, mesh.batch_sharding(devices))["x"]
    assert not placed.is_fully_addressable
    assert placed.addressable_shards[0].data.shape == (2,)
    assert float(jax.jit(lambda x: (x * x).sum())(placed)) == (x * x).sum()


def _agreement(number):
    assert processes.any_of(number == 1) and not processes.any_of(False)
    processes.agree("the same", [[0, 1, 2], "text"])
    with pytest.raises(ValueError, match=r"the prompts of step 7: processes \[1\] of 2"):
        processes.agree("the prompts of step 7", [number, "text"])


def _leader(number):
    called = []

    def look():
        called.append(number)
        return {"there": True}

    assert processes.on_leader(look) == {"there": True}
    assert called == [0] * (number == 0)
    expected = "no such thing" if number == 0 else "process 0: no such thing"
    seen_by_others = {
        ValueError: ValueError,
        UnicodeError: ValueError,
        PermissionError: OSError,
        ZeroDivisionError: Exception,
    }
    for kind, seen in seen_by_others.items():
        with pytest.raises(kind if number == 0 else seen, match=f"^{expected}$"):
            processes.on_leader(lambda kind=kind: fail(kind))


def fail(kind):
    raise kind("no such thing")


def _member(address, number):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(address, 2, number, initialization_timeout=60)
    assert processes.several() and processes.is_leader() == (number == 0)
    _put()
    _agreement(number)
    _leader(number)


if __name__ == "__main__":
    _member(sys.argv[1], int(sys.argv[2]))
