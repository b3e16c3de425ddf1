"""Programs side by side: their cores, logs and ends, and what a stop does."""

import os
import signal
import sys
import threading
import time

from experiments.arenas.programs import Program, ProgramPool


def program(folder, name, code):
    return Program(name, (sys.executable, "-c", code), str(folder / f"x/{name}.log"))


def test_each_has_its_log_and_one_that_fails_stops_no_other(tmp_path):
    bad = "print('one'); print('error: no luck', flush=True); raise SystemExit(3)"
    programs = [program(tmp_path, "bad", bad), program(tmp_path, "good", "print('fine')")]
    with ProgramPool(1) as pool:
        ended = {one.program.name: one for one in pool.run(programs)}
    assert (ended["bad"].code, ended["good"].code) == (3, 0)
    assert (ended["bad"].reason(), ended["good"].reason()) == ("error: no luck", "fine")
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with ProgramPool(1) as pool:
        (again,) = pool.run([program(tmp_path, "bad", killed)])
    # The log goes on, and the reason is that of the last start.
    assert (again.code, again.reason()) == (-signal.SIGKILL, "it printed nothing")
    log = (tmp_path / "x/bad.log").read_text()
    assert log.count(f"$ {sys.executable} -c ") == 2 and log.count("\nerror: no luck\n") == 1


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

    programs = [program(tmp_path, "first", polite), program(tmp_path, "second", "print(1)")]
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
