"""The process of the user's functions: what works in it, its time limits, what a crash says."""

import dataclasses
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time
from concurrent import futures

import pytest

from tests.rewards import own as own_functions
from vade_jax.rewards import process
from vade_jax.rewards.functions import RewardFailure
from vade_jax.types import Item

ITEM = Item(uid="row 3", question="How many?", images=(), answer=r"\frac13", kind="expr")
TEXTS = [r"So it is \boxed{\frac{1}{3}}.", r"$\boxed{0.5}$", "no idea"]


def rewards(function, answers=TEXTS, item=ITEM):
    return own_functions.rewards(function, answers, item)


@pytest.fixture
def own(tmp_path):
    return functools.partial(own_functions.of_file, tmp_path)


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ------------------------------------------------------------------------------ signals
MATH = """
from math_verify import parse, verify

def f(completions, answer, **_):
    texts = [chat[-1]["content"] for chat in completions]
    return [verify(parse(f"${gold}$"), parse(x)) for x, gold in zip(texts, answer, strict=True)]
"""


def test_math_verify_works_with_its_time_limits(own):
    assert rewards(own(MATH)) == [1, 0, 0]


# ------------------------------------------------------------------------------ at once


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_with_concurrency_calls_are_made_at_once(own, kind):
    """Each call waits for the others: four at a time, which share the file's globals."""
    wait = "time.sleep" if kind == "def" else "await asyncio.sleep"
    code = (
        "import asyncio, time\ncalls = []\n"
        f"{kind} f(completions, **_):\n    calls.append(1)\n"
        f"    while len(calls) < 4:\n        {wait}(0.01)\n"
        "    return [1.0] * len(completions)\n"
    )
    f = own(code, concurrency=4)
    with futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: rewards(f, ["a"]), range(4))) == [[1.0]] * 4


# ------------------------------------------------------------------------------ time
STUCK = """
import asyncio, pathlib, subprocess, time
calls = []

def f(completions, kind, **_):
    calls.append(1)
    if kind[0] == "stuck":
        sleeper = subprocess.Popen(["sleep", "1000"])
        pathlib.Path(__file__).with_name("sleeper").write_text(str(sleeper.pid))
        time.sleep(1000)
    return [len(calls)] * len(completions)

async def g(completions, kind, **_):
    if kind[0] == "stuck":
        await asyncio.sleep(1000)
    return [0.5] * len(completions)
"""
LATE = dataclasses.replace(ITEM, kind="stuck")


def test_a_call_that_takes_too_long_has_no_verdict_and_its_process_begins_anew(own, tmp_path):
    f, g = own(STUCK, "f", "g", timeout_s=1.0)
    assert [rewards(f)[0] for _ in range(2)] == [1, 2]
    for function in (f, g):
        start, ended = time.monotonic(), process.running()
        found = function(LATE, TEXTS, None)
        assert [(one.is_known, one.reason) for one in found] == [(False, "timeout")] * 3
        assert time.monotonic() - start < 10 and process.running() is not ended
    sleeper = int((tmp_path / "sleeper").read_text())
    assert until(lambda: not is_alive(sleeper))  # what it has started ends with it
    assert rewards(f) == [1] * 3 and rewards(g) == [0.5] * 3


@pytest.mark.parametrize("name", ["f", "g"])
def test_with_concurrency_a_late_call_leaves_the_others_their_process(own, name):
    (f,) = own(STUCK, name, timeout_s=1.5, concurrency=2)
    before = rewards(f)
    there = process.running()
    assert [one.reason for one in f(LATE, TEXTS, None)] == ["timeout"] * 3
    assert process.running() is there and rewards(f)[0] >= before[0]


# ------------------------------------------------------------------------------ ends


@pytest.mark.parametrize(
    ("end", "how"), [("os._exit(3)", "with exit code 3"), ("os.abort()", "by SIGABRT")]
)
def test_a_crash_names_function_row_and_how(tmp_path, end, how):
    body = f"import os\nif 'no idea' in texts:\n    {end}\nreturn [1] * len(texts)"
    f = own_functions.of_body(tmp_path, body)
    with pytest.raises(RewardFailure, match=rf"py:f': its process ended {how}; at row 'row 3'"):
        rewards(f)
    assert rewards(f, ["a", "b"]) == [1, 1]


RUN = """
from types import SimpleNamespace
from vade_jax.rewards import functions, process

item = SimpleNamespace(uid="a", question="", answer="", kind="", metadata={{}}, columns={{}})
print("begun", flush=True)
print(" reward", functions.UserFunction("f", {place!r}, 60.0)(item, ["a"], None)[0].reward, flush=True)
print("pid", process.running()._process.pid, flush=True)
"""


def test_a_program_is_not_run_again_and_its_function_prints_where_it_prints(tmp_path):
    """Though its main part has no guard."""
    body = "print('called', end='', flush=True)\nreturn [0.25] * len(texts)"
    path = tmp_path / "main.py"
    path.write_text(RUN.format(place=own_functions.of_body(tmp_path, body).name))
    out = subprocess.check_output([sys.executable, str(path)], timeout=60, text=True)
    assert out.count("begun") == 1 and "called reward 0.25" in out
    assert not is_alive(int(out.split()[-1]))  # it ends with the run


def test_it_has_the_runs_environment_but_no_jax_and_little_of_the_devices_memory(own, monkeypatch):
    monkeypatch.setenv("MINE", "7")
    process.close()
    code = (
        "import os, sys\n"
        "f = lambda **_: [{'jax', 'jaxlib', 'torch', 'numpy'} & set(sys.modules) == set(),\n"
        "    os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] == 'false', os.environ['MINE'] == '7']\n"
    )
    assert rewards(own(code)) == [1] * 3
    assert os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") is None
    assert os.getpgid(process.running()._process.pid) != os.getpgid(0)  # Ctrl-C is for the run
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
