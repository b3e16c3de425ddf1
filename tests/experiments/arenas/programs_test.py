"""Programs side by side: what a stop does."""

import os
import signal
import sys
import threading
import time

from experiments.arenas.programs import Program, ProgramPool


def program(folder, name, code):
    return Program(name, (sys.executable, "-c", code), str(folder / f"x/{name}.log"))


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
