"""Workers that hold their deadline, and are replaced."""

import fractions
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.rewards.process_test import is_alive, until
from vade_jax.rewards import process

ONE, TWO = ("n", "1"), ("n", "2")
NINE = ("n", "9")
TOWER = ("^", NINE, ("^", NINE, ("^", NINE, NINE)))  # Python's pow, deaf to signals


def ask(key, given, seconds=60.0):
    return process.ask(key, given, fractions.Fraction(0), process.Clock(seconds))


@pytest.fixture(autouse=True)
def anew():
    process.ask.cache_clear()


def test_a_power_tower_ends_at_the_deadline():
    ask(ONE, TWO)
    start = time.perf_counter()
    with pytest.raises(TimeoutError):
        ask(ONE, TOWER, seconds=1.0)
    assert time.perf_counter() - start < 30
    assert ask(TWO, ("/", ("n", "4"), TWO))


def test_a_worker_that_dies_is_replaced():
    process.close()
    ask(ONE, ONE)
    (worker,) = process._idle
    kill = lambda: os.kill(worker._process.pid, signal.SIGKILL)
    threading.Timer(0.5, kill).start()
    with pytest.raises(process.Ended):
        ask(ONE, TOWER)
    assert ask(ONE, ("/", TWO, TWO))
    (worker,) = process._idle
    kill()  # while it is idle: nobody's answer is lost
    until(lambda: not worker.is_alive())
    assert ask(TWO, ("+", ONE, ONE))


@pytest.mark.parametrize("code", ["__import__('os').mkdir('{}')", "1.__class__.mkdir('{}')"])
def test_no_answer_is_run_as_code(tmp_path, code):
    target = tmp_path / "x"
    for op in ("n", "v", "c", "sin", code.format(target)):
        assert not ask(ONE, (op, code.format(target)))
        assert not ask((op, code.format(target)), ONE)
    assert not target.exists()


def test_workers_end_with_a_run_that_is_killed():
    """Their second limit is a fifth of what it is."""
    limit = "from vade_jax.rewards import expression_worker as x; x._ALARM /= 5"
    code = (
        "from fractions import Fraction\n"
        "from vade_jax.rewards import process\n"
        "process.ask(('n', '1'), ('n', '1'), Fraction(0), process.Clock(2))\n"
        f"process._idle[0].call(exec, {limit!r})\n"
        "print(process._idle[0]._process.pid, flush=True)\n"
        f"process.ask(('n', '1'), {TOWER}, Fraction(0), process.Clock(100))\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    pid = int(run.stdout.readline())
    time.sleep(0.3)
    run.kill()
    run.wait()
    run.stdout.close()  # the worker has it too
    assert until(lambda: not is_alive(pid), seconds=10)
