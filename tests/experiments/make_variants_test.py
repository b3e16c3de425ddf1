"""The command as a process: it goes on where it was killed."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.experiments.diva.offline_test import question, read, teacher, write
from tests.http_server import KEY, ScriptedChat

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def server():
    with ScriptedChat(teacher) as server:
        yield server


def start(server, source, target, *more):
    command = [
        *(sys.executable, "-m", "experiments.make_variants", f"--source={source}"),
        *(f"--target={target}", f"--server={server.url}", "--model=m"),
        *("--paraphrases=3", "--concurrency=2", *more),
    ]
    where = {"cwd": ROOT, "text": True, "env": os.environ | {"THE_KEY": KEY}}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **where)


def run(*args):
    process = start(*args)
    out, error = process.communicate()
    return process.returncode, out, error


def test_a_killed_command_goes_on_and_then_refuses_to_write_over(server, tmp_path):
    source = write(tmp_path / "mine.jsonl", *map(question, range(3, 15)))
    target, server.seconds, server.needs_key = tmp_path / "out.jsonl", 0.03, True
    key = "--api_key_env=THE_KEY"
    first = start(server, source, target, key)
    while len(server.bodies) < 20:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not target.exists()
    known = len(read(tmp_path / "out_replies" / "replies.jsonl"))
    before, total = len(server.bodies), 12 * 8
    code, out, error = run(server, source, target, key)
    assert code == 0, error
    assert f"{total - known} asked, {known} remembered, 0 unanswered" in out
    assert len(server.bodies) == before + total - known
    assert len(read(target)) == 12 and server.most_in_flight <= 2
    assert not any(KEY in path.read_text() for path in (tmp_path / "out_replies").iterdir())
    code, _, error = run(server, source, target, key)
    assert code == 2 and error.startswith("error: --target=") and error.count("\n") == 1
