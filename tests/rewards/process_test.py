"""The process of the user's functions: what works in it, its time limits, how it ends."""

import dataclasses
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.rewards import own as own_functions
from vade_jax.rewards import functions, process
from vade_jax.rewards.functions import RewardFailure, UserFunction
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

async def g(**given):
    return f(**given)
"""


@pytest.mark.parametrize("name", ["f", "g"])
def test_math_verify_works_with_its_time_limits(own, name):
    (f,) = own(MATH, name)
    assert rewards(f) == [1, 0, 0]


def test_in_threads_the_error_about_signals_names_the_setting(own):
    with pytest.raises(RewardFailure, match=r"py:f': ValueError: .*reward.concurrency=1 "):
        rewards(own(MATH, concurrency=2))


# ------------------------------------------------------------------------------ async
def test_async_functions_share_a_loop_that_goes_on_between_calls(own):
    code = (
        "import asyncio\nloops, beats = set(), []\n"
        "async def beat():\n    while True:\n        beats.append(1)\n        await asyncio.sleep(0.01)\n"
        "async def f(completions, **_):\n"
        "    if not loops:\n        globals()['task'] = asyncio.create_task(beat())\n"
        "    loops.add(asyncio.get_running_loop())\n"
        "    return [len(loops)] * len(completions)\n"
        "def g(completions, **_):\n    return [len(beats)] * len(completions)\n"
        "def h(completions, **_):\n    return [asyncio.run(asyncio.sleep(0, 7))] * len(completions)\n"
    )
    f, g, h = own(code, "f", "g", "h")
    assert rewards(f) == rewards(f) == [1] * 3
    assert until(lambda: rewards(g)[0] > 5)
    assert rewards(h) == [7] * 3  # a loop of the function's own


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
    judge = functions.SumOfJudges([own(code, concurrency=4)], [1.0], num_threads=4)
    assert list(judge.map(lambda _: judge(ITEM, ["a"], None)[0].reward, range(4))) == [1] * 4


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


def test_importing_the_function_is_not_a_part_of_the_call(own):
    slow = own("import time\ntime.sleep(2)\nf = lambda **_: [1] * 3", timeout_s=1.5)
    assert rewards(slow) == [1] * 3


# ------------------------------------------------------------------------------ ends
CRASH = """
import os, time
waiting = []

def f(completions, question, **_):
    if question[0] == "innocent":
        waiting.append(1)
        time.sleep(0.3)
    texts = [chat[-1]["content"] for chat in completions]
    if "no idea" in texts:
        while question[0] == "guilty" and not waiting:
            time.sleep(0.01)
        END
    return [1.0] * len(texts)
"""


@pytest.mark.parametrize(
    ("end", "how"), [("os._exit(3)", "with exit code 3"), ("os.abort()", "by SIGABRT")]
)
def test_a_crash_names_function_row_and_how(own, end, how):
    f = own(CRASH.replace("END", end))
    with pytest.raises(RewardFailure, match=rf"py:f': its process ended {how}; at row 'row 3'"):
        rewards(f)
    assert rewards(f, ["a", "b"]) == [1, 1]


def test_a_crash_blames_no_other_call_at_the_time(own):
    f = own(CRASH.replace("END", "os._exit(3)"), concurrency=2)
    judge = functions.SumOfJudges([f], [1.0], num_threads=2)

    def judged(asked):
        question, answers = asked
        try:
            item = dataclasses.replace(ITEM, uid=question, question=question)
            return [one.reward for one in judge(item, answers, None)]
        except RewardFailure as error:
            return str(error)

    innocent, guilty = judge.map(judged, [("innocent", ["a", "b"]), ("crash", TEXTS)])
    assert innocent == [1, 1]
    assert "at row 'crash'" in guilty


RUN = """
from types import SimpleNamespace
from vade_jax.rewards import functions, process

item = SimpleNamespace(uid="a", question="", answer="", kind="", metadata={{}}, columns={{}})
print("begun", flush=True)
print(" reward", functions.UserFunction("f", {place!r}, 60.0)(item, ["a"], None)[0].reward, flush=True)
print("pid", process.running()._process.pid, flush=True)
{more}
"""
SAYS = """
def f(completions, **_):
    print("called", end="", flush=True)
    return [0.25] * len(completions)

def g(**_):
    __import__("time").sleep(1000)
"""


def run(tmp_path, own, more=""):
    """Starts a program that has no guard around its main part."""
    f, g = own(SAYS, "f", "g")
    path = tmp_path / "main.py"
    path.write_text(RUN.format(place=f.name, more=more.format(place=g.name)))
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)


def test_a_program_is_not_run_again_and_its_function_prints_where_it_prints(tmp_path, own):
    with run(tmp_path, own) as program:
        out, _ = program.communicate(timeout=60)
    assert out.count("begun") == 1 and "called reward 0.25" in out
    assert not is_alive(int(out.split()[-1]))  # it ends with the run


@pytest.mark.parametrize(
    "more",
    [
        "functions.UserFunction('g', {place!r}, 1e6)(item, ['a'], None)",
        "__import__('time').sleep(1000)",
    ],
)
def test_it_ends_with_a_run_that_is_killed(tmp_path, own, more):
    with run(tmp_path, own, more) as program:
        assert program.stdout is not None
        pid = next(int(line.split()[1]) for line in program.stdout if line.startswith("pid"))
        time.sleep(0.3)
        assert is_alive(pid)
        program.kill()
    assert until(lambda: not is_alive(pid))


def test_sigterm_is_for_the_run_alone(own):
    """As a scheduler sends it to all processes; what a function forks ends by it as ever."""
    code = (
        "import multiprocessing, os, signal, time\n"
        "def f(completions, **_):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    other = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))\n"
        "    other.start()\n    time.sleep(0.2)\n    other.terminate()\n    other.join()\n"
        "    return [other.exitcode] * len(completions)\n"
    )
    assert rewards(own(code)) == [-signal.SIGTERM] * 3


def test_a_function_may_clean_up_at_the_end(own, tmp_path):
    code = (
        "import atexit, pathlib\n"
        f"atexit.register(pathlib.Path({str(tmp_path / 'saved')!r}).touch)\n"
        "f = lambda completions, **_: [1] * len(completions)\n"
    )
    assert rewards(own(code)) == [1] * 3
    process.close()
    assert (tmp_path / "saved").exists()
    assert rewards(own(code)) == [1] * 3  # another process


def test_a_function_is_found_where_the_run_finds_it_now(tmp_path, monkeypatch):
    process.running()
    (tmp_path / "found_later.py").write_text(
        "f = lambda completions, **_: [0.5] * len(completions)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert rewards(UserFunction("m", functions.load("found_later:f"), 20.0)) == [0.5] * 3


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
