"""The command as a process: it goes on where it was killed, and a mistake is one line."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.experiments.diva.offline_test import question, read, teacher, write
from tests.http_server import KEY, ScriptedChat
from vade_jax.run.directory import own

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def server():
    with ScriptedChat(teacher) as server:
        yield server


def command(server, source, target, *more):
    return [
        *(sys.executable, "-m", "experiments.make_variants", f"--source={source}"),
        *(f"--target={target}", f"--server={server.url}", "--model=m"),
        *("--paraphrases=3", "--concurrency=2", *more),
    ]


def run(*args):
    env = os.environ | {"THE_KEY": KEY}
    found = subprocess.run(command(*args), cwd=ROOT, capture_output=True, text=True, env=env)
    return found.returncode, found.stdout, found.stderr


@pytest.mark.slow
def test_a_killed_command_goes_on_and_then_refuses_to_write_over(server, tmp_path):
    source = write(tmp_path / "mine.jsonl", *map(question, range(3, 15)))
    target, server.seconds, server.needs_key = tmp_path / "out.jsonl", 0.03, True
    key = "--api_key_env=THE_KEY"
    first = subprocess.Popen(
        command(server, source, target, key),
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"THE_KEY": KEY},
    )
    while len(server.bodies) < 20:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not target.exists()
    known = len(read(tmp_path / "out_replies" / "replies.jsonl"))
    before = len(server.bodies)
    code, out, error = run(server, source, target, key)
    assert code == 0, error
    total = 12 * 8
    assert f"{total - known} asked, {known} remembered, 0 retries, 0 unanswered" in out
    assert len(server.bodies) == before + total - known
    assert len(read(target)) == 12 and server.most_in_flight <= 2
    assert not any(KEY in path.read_text() for path in (tmp_path / "out_replies").iterdir())
    code, _, error = run(server, source, target, key)
    assert code == 2 and re.search(r"error: --target=.* exists: remove it", error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--api_key_env=NO_SUCH_KEY"], r"--api_key_env='NO_SUCH_KEY': there is no such"),
        (["--server=http://127.0.0.1:9"], r"server http://127.0.0.1:9/v1 does not answer"),
        (["--target=out.csv"], r"--target=out.csv: give a file that ends in .jsonl"),
        (["--source=none.jsonl"], r"none.jsonl does not exist: give a .jsonl,"),
        (["--concurrency=0"], r"--concurrency=0: "),
        (["--tries=-1"], r"tries=-1: "),
        (["--steps=0", "--paraphrases=0"], "ask for nothing"),
    ],
)
def test_a_mistake_is_one_line_before_the_bulk(server, tmp_path, more, message):
    source = write(tmp_path / "mine.jsonl", question(3))
    code, _, error = run(server, source, tmp_path / "out.jsonl", *more)
    assert code == 2 and re.search(message, error) and error.count("\n") == 1
    assert server.bodies == []


@pytest.mark.slow
def test_two_do_not_write_one_file(server, tmp_path):
    source = write(tmp_path / "mine.jsonl", question(3))
    with own(str(tmp_path / "out_replies")):
        code, _, error = run(server, source, tmp_path / "out.jsonl")
    assert code == 2 and "out_replies is another run's" in error and error.count("\n") == 1
    assert server.bodies == []


@pytest.mark.slow
def test_nothing_kept_is_an_error(server, tmp_path):
    server.answer = lambda body: "no"
    source = write(tmp_path / "mine.jsonl", question(3))
    code, out, error = run(server, source, tmp_path / "out.jsonl")
    assert code == 1 and "steps               0 kept   rejected: answer_no_box 1" in out
    assert "error: nothing was kept, so" in error
