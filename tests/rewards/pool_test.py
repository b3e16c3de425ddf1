"""Workers that hold their deadline, and are replaced."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import time

import pytest

from vade_jax.rewards import pool

ONE, TWO, X = ("n", "1"), ("n", "2"), ("v", "x")
NINE = ("n", "9")
TOWER = ("^", NINE, ("^", NINE, ("^", NINE, NINE)))  # Python's pow, deaf to signals


@pytest.fixture(scope="module")
def workers():
    made = pool.WorkerPool(num_workers=2, deadline=1.5)
    made.check(ONE, ONE)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("key", "given", "reason"),
    [
        (("sqrt", ("n", "12")), ("*", TWO, ("sqrt", ("n", "3"))), "ok"),
        (("sqrt", ("n", "12")), ("*", ("n", "3"), ("sqrt", TWO)), "different"),
        (("^", ("+", X, ONE), TWO), ("+", ("+", ("^", X, TWO), ("*", TWO, X)), ONE), "ok"),
        (("^", ("+", X, ONE), TWO), ("+", ("^", X, TWO), ONE), "different"),
        (X, ("(", ONE), "unreadable"), (("(", ONE), X, "bad_key"), ("", X, "bad_key"), (X, "x", "unreadable"),
        (X, ("n", "\ud800"), "unreadable"), (X, ("n", '"\n["x","x"]'), "unreadable"),
        (("[)", ONE, TWO), ("setminus", ("[]", ONE, TWO), ("{}", TWO)), "ok"),
    ],
)  # fmt: skip
def test_reasons(workers, key, given, reason):
    assert workers.check(key, given) == reason


def test_a_power_tower_ends_at_the_deadline(workers):
    start = time.perf_counter()
    assert workers.check(ONE, TOWER) == "timeout"
    assert time.perf_counter() - start < pool.START_SECONDS / 2
    assert workers.check(TWO, ("/", ("n", "4"), TWO)) == "ok"


def test_threads_share_the_workers_and_get_their_own_replies(workers):
    pairs = [(("n", str(i)), ("/", ("n", str(2 * (i + i % 2))), TWO)) for i in range(40)]
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        reasons = list(threads.map(workers.check, *zip(*pairs, strict=True)))
    assert reasons == ["different" if i % 2 else "ok" for i in range(40)]


def test_a_worker_that_dies_is_replaced(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda *a, **k: started.append(popen(*a, **k)) or started[-1],
    )
    workers = pool.WorkerPool(num_workers=1, deadline=60.0)
    assert not started
    assert workers.check(ONE, ONE) == "ok"
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        reply = thread.submit(workers.check, ONE, TOWER)
        time.sleep(0.5)
        os.kill(started[0].pid, signal.SIGKILL)
        assert reply.result(30) == "crash"
    assert workers.check(ONE, ONE) == "ok"
    os.kill(started[1].pid, signal.SIGKILL)  # while it is idle: nobody's answer is lost
    started[1].wait()
    assert workers.check(ONE, ONE) == "ok"
    workers.close()
    assert all(process.poll() is not None for process in started)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch {}')", 'eval(\'__import__("os").mkdir("{}")\')',
        r"\mathrm{{__import__('os').mkdir('{}')}}", "1.__class__.mkdir('{}')",
        r"\text{{open('{}','w')}}", "x_{{open('{}','w')}}", r"\operatorname{{open}}('{}','w')",
    ],
)  # fmt: skip
def test_no_answer_is_run_as_code(workers, tmp_path, code):
    target = tmp_path / "x"
    for op in ("n", "v", "c", "sin", code.format(target)):
        assert workers.check(ONE, (op, code.format(target))) != "ok"
        assert workers.check((op, code.format(target)), ONE) != "ok"
    assert not target.exists()


def test_a_worker_that_does_not_start_is_an_error(monkeypatch, tmp_path, capfd):
    broken = tmp_path / "worker.py"
    broken.write_text("import no_such_module")
    monkeypatch.setattr(pool, "_WORKER", broken)
    with pytest.raises(RuntimeError, match=r"did not start.*SymPy"):
        pool.WorkerPool().check("1", "1")
    assert "no_such_module" in capfd.readouterr().err


def test_a_worker_imports_nothing_of_jax():
    flags = ("-P", "-X", "importtime")
    command = [sys.executable, *flags, str(pool._WORKER), "1", str(2**31)]
    run = subprocess.run(command, input="", capture_output=True, text=True, timeout=100)
    assert run.stdout == "ready\n" and "sympy" in run.stderr
    names = [line.rpartition("|")[2].strip() for line in run.stderr.splitlines()]
    assert not {"jax", "jaxlib", "vade_jax"} & {name.split(".")[0] for name in names}


def test_workers_end_with_a_run_that_is_killed():
    code = (
        "import subprocess, threading, time\n"
        "from vade_jax.rewards import pool\n"
        "made = pool.WorkerPool(deadline=2.0)\n"
        "made.check(('n', '1'), ('n', '1'))\n"
        "print(made._idle[0].pid, flush=True)\n"
        f"made.check(('n', '1'), {TOWER})\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    pid = int(run.stdout.readline())
    time.sleep(0.3)
    run.kill()
    run.communicate()
    end = time.monotonic() + 20
    while _lives(pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not _lives(pid)


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
