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


def test_a_plain_run_joins_nobody():
    cluster.join()
    assert not jax.distributed.is_initialized()


@pytest.mark.parametrize(
    "arguments", [(None, None, 0), ("a:1", 2, None), ("a", 2, 0), ("a:1", 2, 2)]
)
def test_places_that_do_not_fit(arguments):
    with pytest.raises(ValueError, match="--coordinator_address"):
        cluster.join(*arguments)


def test_what_process_0_wrote_must_be_seen_by_all(tmp_path, monkeypatch):
    cluster.wait_until_shared(tmp_path)
    monkeypatch.setattr(cluster, "VISIBLE_TIMEOUT_S", 0.0)
    with pytest.raises(ValueError, match="hosts share"):
        cluster.wait_until_shared(tmp_path / "absent")


# ------------------------------------------------------------------------------ two processes
def finish(*ends):
    """Starts a process for each of `ends`, what it does after a few steps; returns (exit code, stdout)."""
    command = [sys.executable, "-m", "tests.run.cluster_test", f"127.0.0.1:{process.free_port()}"]
    members = [
        subprocess.Popen(
            [*command, end, str(i)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for i, end in enumerate(ends)
    ]
    try:
        outputs = [member.communicate(timeout=60) for member in members]
    finally:
        for member in members:
            member.kill()
    return [
        (member.returncode, out.decode(), err.decode())
        for member, (out, err) in zip(members, outputs, strict=True)
    ]


@pytest.mark.parametrize("ends", [("killed", "steps"), ("steps", "killed")])
def test_a_killed_process_ends_the_other(ends):
    before = time.monotonic()
    ended = dict(zip(ends, finish(*ends), strict=True))
    assert ended["killed"][0] == -signal.SIGKILL and ended["steps"][0] != 0
    assert time.monotonic() - before < 40


@pytest.mark.slow
def test_an_error_in_one_process_is_shown_there_and_ends_both():
    (stopped, *_), (code, _, err) = finish("steps", "fails")
    assert stopped != 0 and code == 1 and "KeyError: 'a bug'" in err


def test_both_end_well_and_one_prints():
    (code, out, _), (other_code, other_out, _) = finish("done", "done")
    assert (code, other_code) == (0, 0)
    assert "process 0 is done" in out and "is done" not in other_out


def _member(address, end, number):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    cluster.HEARTBEAT_TIMEOUT_S = 6
    with errors.user_errors():
        cluster.join(address, 2, int(number))
    with cluster.ends_together():
        cluster.only_leader_prints()
        for _ in range(3):
            processes.any_of(False)
        if end == "killed":
            signal.raise_signal(signal.SIGKILL)
        if end == "fails":
            raise KeyError("a bug")
        for _ in range(1000 * (end == "steps")):
            processes.any_of(False)
            time.sleep(0.01)
        print(f"process {jax.process_index()} is done")


if __name__ == "__main__":
    _member(*sys.argv[1:])
