"""Two processes without a model; this file is also what they run."""

import pathlib
import socket
import subprocess
import sys

import chex
import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from tests.rollout.fake import FakeEngine
from tests.trainer import small
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.leader import LeaderEngine
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


class Synced(FakeEngine):
    def sync(self, tensors, version):
        self.names = [name for name, _ in tensors]
        self.version = version


def _engine(number):
    real = Synced({str(m): 0.5 for m in range(4)})
    gathered = lambda params: ((name, multihost_utils.process_allgather(x)) for name, x in params)
    answers = Sampling(max_tokens=2)
    engine = LeaderEngine(real if number == 0 else None, answers, gathered, processes.on_leader)
    arguments = small.prompts(4), np.array([2, 1, 3, 2]), jax.random.key(3)
    scored = {}
    rollouts = engine.generate(*arguments, 0, on_group=scored.__setitem__)
    expected = Synced(real.pass_rate).generate(*arguments, 0)
    chex.assert_trees_all_equal(vars(rollouts), vars(expected))
    chex.assert_trees_all_equal_dtypes(vars(rollouts), vars(expected))
    assert sorted(scored) == [0, 1, 2, 3] * (number == 0)
    engine.sync([("a", np.ones(2)), ("b", np.ones(3))], 5)
    assert number or (real.names == ["a", "b"] and real.version == 5)
    with pytest.raises(ValueError, match="version 5"):
        engine.generate(*arguments, 0)
    assert engine.generate(*arguments, 5).params_version == 5


def _member(address, number):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(address, 2, number, initialization_timeout=60)
    assert processes.several() and processes.is_leader() == (number == 0)
    _put()
    _agreement(number)
    _leader(number)
    _engine(number)


if __name__ == "__main__":
    _member(sys.argv[1], int(sys.argv[2]))
