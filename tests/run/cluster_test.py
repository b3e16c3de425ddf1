"""How processes find each other and end together; this file is also what they run."""

import pathlib
import signal
import subprocess
import sys
import time

import jax
import pytest

from experiments import errors
from vade_jax.rollout.vllm import process
from vade_jax.run import cluster
from vade_jax.trainer import processes

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments", [(None, None, 0), ("a:1", 2, None), ("a", 2, 0), ("a:1", 2, 2)]
)
def test_places_that_do_not_fit(arguments):
    with pytest.raises(ValueError, match="--coordinator_address"):
        cluster.join(*arguments)


def test_what_process_0_wrote_must_be_seen_by_all(tmp_path, monkeypatch):
    cluster.wait_until_shared(tmp_path)
    monkeypatch.setattr(cluster, "VISIBLE_TIMEOUT_S", 0.0)
    with pytest.raises(ValueError, match="share --workdir"):
        cluster.wait_until_shared(tmp_path / "absent")


# ------------------------------------------------------------------------------ two processes
def finish(*ends):
    """Starts a process for each of `ends`, what it does after a few steps; returns the exit codes."""
    command = [sys.executable, "-m", "tests.run.cluster_test", f"127.0.0.1:{process.free_port()}"]
    members = [
        subprocess.Popen([*command, end, str(i)], cwd=ROOT, stderr=subprocess.DEVNULL)
        for i, end in enumerate(ends)
    ]
    try:
        return [member.wait(timeout=40) for member in members]
    finally:
        for member in members:
            member.kill()


@pytest.mark.parametrize("ends", [("killed", "steps"), ("steps", "killed")])
def test_a_killed_process_ends_the_other(ends):
    ended = dict(zip(ends, finish(*ends), strict=True))
    assert ended["killed"] == -signal.SIGKILL and ended["steps"] != 0


def _member(address, end, number):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    cluster.HEARTBEAT_TIMEOUT_S = 6
    with errors.user_errors():
        cluster.join(address, 2, int(number))
    with cluster.ends_together():
        for _ in range(3):
            processes.any_of(False)
        if end == "killed":
            signal.raise_signal(signal.SIGKILL)
        for _ in range(1000):
            processes.any_of(False)
            time.sleep(0.01)


if __name__ == "__main__":
    _member(*sys.argv[1:])
