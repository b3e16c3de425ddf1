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


# ------------------------------------------------------------------------------ joining
def test_a_plain_run_joins_nobody():
    cluster.join()
    assert not jax.distributed.is_initialized()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, 0), "--coordinator_address and --num_processes missing"),
        (
            ("a:1", 2, None),
            "^--process_id missing: give .* together, or --distributed alone",
        ),
        (("a", 2, 0), "--coordinator_address=a --process_id=0: give HOST:PORT"),
        (("a:1", 2, 2), "--process_id=2: .* from 0 to --num_processes - 1 = 1"),
    ],
)
def test_places_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        cluster.join(*arguments)


def test_what_process_0_wrote_must_be_seen_by_all(tmp_path, monkeypatch):
    cluster.wait_until_shared(tmp_path)
    monkeypatch.setattr(cluster, "VISIBLE_TIMEOUT_S", 0.0)
    with pytest.raises(ValueError, match=r"does not see .*absent.*hosts share"):
        cluster.wait_until_shared(tmp_path / "absent")


def test_alone_errors_pass_through():
    with pytest.raises(KeyError), cluster.ends_together():
        raise KeyError("x")


# ------------------------------------------------------------------------------ two processes
def start(*ends):
    """Starts a process for each `ends`, which say what it does after a few steps."""
    port = process.free_port()
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.run.cluster_test", end),
                *(f"127.0.0.1:{port}", str(i)),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, end in enumerate(ends)
    ]


def finish(members):
    """Returns (exit code, last line of stderr, stdout) of each."""
    try:
        said = [member.communicate(timeout=60) for member in members]
    finally:
        for member in members:
            member.kill()
    last = lambda text: ([""] + [x for x in text.splitlines() if x.strip()])[-1]
    return [
        (member.returncode, last(err), out)
        for member, (out, err) in zip(members, said, strict=True)
    ]


STOPPED = "error: another process of this run has stopped"


@pytest.mark.parametrize("ends", [("killed", "steps"), ("steps", "killed")])
def test_a_killed_process_ends_the_other_with_a_clear_last_line(ends):
    before = time.monotonic()
    ended = dict(zip(ends, finish(start(*ends)), strict=True))
    assert ended["killed"][0] == -signal.SIGKILL
    assert ended["steps"][0] == 1 and ended["steps"][1].startswith(STOPPED)
    assert time.monotonic() - before < 40


@pytest.mark.slow
def test_an_error_in_one_process_is_shown_there_and_ends_both():
    (_, stopped, _), (code, last, _) = finish(start("steps", "fails"))
    assert code == 1 and last == "KeyError: 'a bug'"
    assert stopped.startswith(STOPPED)


@pytest.mark.slow
def test_a_users_error_keeps_its_exit_code():
    ended = finish(start("refuses", "refuses"))
    assert {code for code, *_ in ended} <= {1, 2}  # 1: the other was quicker to leave
    assert any((code, last) == (2, "error: lower the learning rate") for code, last, _ in ended)


def test_both_end_well_and_one_prints():
    (code, _, out), (other_code, _, other_out) = finish(start("done", "done"))
    assert (code, other_code) == (0, 0)
    assert "process 0 is done" in out and "is done" not in other_out


def test_a_process_that_stays_alone_says_so():
    (member,) = start("alone")
    ((code, last, _),) = finish([member])
    assert code == 2 and last.startswith("error: the processes did not find each other")


def _member(end, address, number):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    cluster.START_TIMEOUT_S, cluster.HEARTBEAT_TIMEOUT_S = 20, 6
    if end == "alone":
        cluster.START_TIMEOUT_S = 3
    with errors.user_errors():
        cluster.join(address, 2, number)
    with cluster.ends_together():
        cluster.only_leader_prints()
        _live(end)


def _live(end):
    for step in range(1000):
        if step == 3:
            _end(end)
            if end == "done":
                return
        processes.any_of(False)
        time.sleep(0.01)


def _end(end):
    if end == "done":
        print(f"process {jax.process_index()} is done")
    if end == "killed":
        signal.raise_signal(signal.SIGKILL)
    if end == "fails":
        raise KeyError("a bug")
    if end == "refuses":
        with errors.user_errors():
            raise ValueError("lower the learning rate")


if __name__ == "__main__":
    _member(sys.argv[1], sys.argv[2], int(sys.argv[3]))
