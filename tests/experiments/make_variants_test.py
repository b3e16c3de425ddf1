"""The command as a process: it goes on where it was killed, and a mistake is one line."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.experiments.diva.offline_test import question, read, teacher, write
from tests.http_server import KEY, ScriptedChat
from vade_jax.run.directory import own

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
    assert f"{total - known} asked, {known} remembered, 0 retries, 0 unanswered" in out
    assert len(server.bodies) == before + total - known
    assert len(read(target)) == 12 and server.most_in_flight <= 2
    assert not any(KEY in path.read_text() for path in (tmp_path / "out_replies").iterdir())
    code, _, error = run(server, source, target, key)
    assert code == 2 and error.startswith("error: --target=") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("--api_key_env=NO_SUCH_KEY", "--api_key_env='NO_SUCH_KEY'"),
        ("--server=http://127.0.0.1:9", "http://127.0.0.1:9"),
        ("--target=out.csv", "--target=out.csv"),
        ("--source=none.jsonl", "none.jsonl"),
        ("--tries=-1", "tries=-1"),
    ],
)
def test_a_mistake_is_one_line_before_the_bulk(server, tmp_path, more, name):
    source = write(tmp_path / "mine.jsonl", question(3))
    code, _, error = run(server, source, tmp_path / "out.jsonl", more)
    assert code == 2 and name in error and error.count("\n") == 1 and server.bodies == []


def test_two_do_not_write_one_file_and_nothing_kept_is_an_error(server, tmp_path):
    server.answer = lambda body: "no"
    source = write(tmp_path / "mine.jsonl", question(3))
    with own(str(tmp_path / "out_replies")):
        code, _, error = run(server, source, tmp_path / "out.jsonl")
    assert code == 2 and "out_replies" in error and server.bodies == []
    code, out, error = run(server, source, tmp_path / "out.jsonl")
    assert code == 1 and "rejected: answer_no_box 1" in out and error.count("error: ") == 1
