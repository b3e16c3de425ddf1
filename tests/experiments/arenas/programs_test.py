"""Programs side by side: their cores, logs and ends, and what a stop does."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from experiments.arenas.programs import BUSY, Program, ProgramPool, shares


def program(folder, name, code):
    return Program(name, (sys.executable, "-c", code), str(folder / f"x/{name}.log"))


def test_each_has_its_log_and_one_that_fails_stops_no_other(tmp_path):
    bad = "print('one'); print('error: no luck', flush=True); raise SystemExit(3)"
    programs = [
        program(tmp_path, "bad", bad),
        program(tmp_path, "good", "print('fine')"),
    ]
    with ProgramPool(1) as pool:
        ended = {one.program.name: one for one in pool.run(programs)}
    assert (ended["bad"].code, ended["good"].code) == (3, 0)
    assert ended["bad"].reason() == "error: no luck"
    assert ended["good"].reason() == "fine"
    command, said = (tmp_path / "x/good.log").read_text().split("\n")[1:3]
    assert command.startswith(f"$ {sys.executable} -c ") and said == "fine"
    with ProgramPool(1) as pool:
        list(pool.run(programs[1:]))
    assert (tmp_path / "x/good.log").read_text().count("fine") == 4  # appended


@pytest.mark.parametrize(
    ("second", "reason"), [("", "it printed nothing"), ("print('step 1', flush=True); ", "step 1")]
)
def test_the_reason_is_that_of_the_last_start(tmp_path, second, reason):
    killed = f"import os, signal; {second}os.kill(os.getpid(), signal.SIGKILL)"
    for code in ("raise SystemExit('error: no luck')", killed):
        with ProgramPool(1) as pool:
            (ended,) = pool.run([program(tmp_path, "a", code)])
    assert (ended.code, ended.reason()) == (-signal.SIGKILL, reason)


def test_as_many_at_a_time_as_asked(tmp_path):
    """Two programs that wait for each other end only side by side."""
    meet = (
        "import pathlib, sys, time\n"
        "own, other = (pathlib.Path({root!r}) / x for x in ({a!r}, {b!r}))\n"
        "own.touch()\n"
        "for _ in range(1500):\n"
        "    if other.exists(): sys.exit(0)\n"
        "    time.sleep(0.01)\n"
        "sys.exit(1)\n"
    )
    names = [("a", "b"), ("b", "a")]
    programs = [program(tmp_path, a, meet.format(root=str(tmp_path), a=a, b=b)) for a, b in names]
    with ProgramPool(2) as pool:
        assert [ended.code for ended in pool.run(programs)] == [0, 0]


def test_the_others_start_when_the_first_has_compiled(tmp_path):
    """The second fails where it starts before that; the first fails where it is to end before that."""
    first = (
        "import pathlib, sys, time\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "time.sleep(0.3)\n"
        "(root / 'code').touch()\n"
        "for _ in range(1500):\n"
        "    if (root / 'second').exists(): sys.exit(0)\n"
        "    time.sleep(0.01)\n"
        "sys.exit(1)\n"
    )
    second = (
        "import pathlib, sys\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "(root / 'second').touch()\n"
        "sys.exit(not (root / 'code').exists())\n"
    )
    programs = [program(tmp_path, "first", first), program(tmp_path, "second", second)]
    with ProgramPool(2) as pool:
        ended = list(pool.run(programs, lambda one: (tmp_path / "code").exists()))
    assert [one.code for one in ended] == [0, 0]


def test_a_log_that_is_being_written_is_left_alone(tmp_path):
    """As after the death of a sweep whose programs live on."""
    log = tmp_path / "x/a.log"
    log.parent.mkdir()
    code = "import time; print(1, flush=True); time.sleep(60)"
    with log.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        other = subprocess.Popen([sys.executable, "-c", code], stdout=file)
    with ProgramPool(1) as pool:
        (ended,) = pool.run([program(tmp_path, "a", "print(2)")])
    other.kill()
    other.wait()
    assert ended.code == BUSY and "another process" in ended.reason()
    with ProgramPool(1) as pool:
        (ended,) = pool.run([program(tmp_path, "a", "print(2)")])
    assert ended.code == 0


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_cores_are_shared_out(tmp_path, monkeypatch):
    whole = os.sched_getaffinity(0)
    if len(whole) > 1:
        code = "import os; print('cores', *sorted(os.sched_getaffinity(0)))"
        with ProgramPool(2) as pool:
            ended = list(pool.run([program(tmp_path, f"j{i}", code) for i in range(6)]))
        seen = {tuple(map(int, one.reason().split()[1:])) for one in ended}
        places = [tuple(cores) for cores in shares(2)]
        assert seen <= set(places)
        assert sorted(core for cores in places for core in cores) == sorted(whole)
    assert os.sched_getaffinity(0) == whole
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5, 6})
    assert shares(2) == [[0, 1], [4, 5, 6]]
    assert shares(1) == [[0, 1, 4, 5, 6]]
    assert shares(9) == [()] * 9


def test_a_stop_asks_what_runs_once_and_starts_nothing_more(tmp_path):
    polite = (
        "import signal, sys, time\n"
        "count = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: count.append(1))\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "while not count: time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "print('saved', len(count), flush=True)\n"
    )

    def interrupt():
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    programs = [
        program(tmp_path, "first", polite),
        program(tmp_path, "second", "print(1)"),
    ]
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    with ProgramPool(1) as pool:
        thread.start()
        ended = {one.program.name: one for one in pool.run(programs)}
        assert pool.stopped
    thread.join()
    assert ended["first"].code == 0 and ended["first"].reason() == "saved 1"
    assert ended["second"].code is None
    assert signal.getsignal(signal.SIGINT) is before
