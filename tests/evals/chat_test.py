"""Bulk questions against a scripted server: faults, bounds, memory, and a process that is killed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.http_server import ScriptedChat, said
from vade_jax.evals import replies
from vade_jax.evals.chat import Chat, ServerLost, Unanswered
from vade_jax.evals.endpoint import Endpoint

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def server():
    with ScriptedChat(lambda body: said(body).upper()) as server:
        yield server


@pytest.fixture
def make(server, tmp_path):
    def make(*, timeout_s=10.0, **options):
        memory = replies.Replies(tmp_path / "replies.jsonl")
        endpoint = Endpoint(server.url, "m", timeout_s=timeout_s)
        return Chat(endpoint, memory, **{"backoff_s": 0.01} | options)

    return make


def user(text):
    return [{"role": "user", "content": text}]


def ask(chat, text="a", **fields):
    return chat.ask(user(text), **fields)


# ------------------------------------------------------------------------------ memory
def test_a_question_is_asked_once(server, make):
    chat = make()
    assert [ask(chat, "a"), ask(chat, "a"), ask(chat, "b")] == ["A", "A", "B"]
    assert ask(chat, "a", seed=1) == "A"  # another question
    assert [said(body) for body in server.bodies] == ["a", "b", "a"]
    assert chat.counts() == dict(asked=3, remembered=1, retries=0, unanswered=0)
    assert ask(make(), "b") == "B" and len(server.bodies) == 3  # another process


def test_the_same_question_in_many_threads_is_asked_once(server, make):
    server.seconds = 0.1
    chat = make(concurrency=8)
    assert list(chat.map(lambda _: ask(chat), range(8))) == ["A"] * 8
    assert len(server.bodies) == 1
    assert chat.counts() == dict(asked=1, remembered=7, retries=0, unanswered=0)


def test_fields_of_the_run_win_and_none_takes_one_out(server, make):
    chat = make(fields={"max_tokens": None, "top_p": 0.5})
    ask(chat, max_tokens=7, top_p=1.0, seed=3)
    (body,) = server.bodies
    assert body == {"model": "m", "messages": user("a"), "top_p": 0.5, "seed": 3}


# ------------------------------------------------------------------------------ faults
@pytest.mark.parametrize("fault", [500, "other", "hang"])
def test_a_fault_is_mended_by_asking_again(server, make, fault):
    server.faults = [fault, fault]
    chat = make(retries=2, timeout_s=0.3 if fault == "hang" else 10.0)
    assert ask(chat) == "A"
    assert chat.counts() == dict(asked=1, remembered=0, retries=2, unanswered=0)


def test_retries_have_an_end_and_failures_are_not_remembered(server, make):
    server.faults = [500] * 3
    chat = make(retries=2)
    with pytest.raises(Unanswered, match=r"no reply in 3 tries; the last: HTTP 500"):
        ask(chat)
    assert ask(chat) == "A"
    assert chat.counts() == dict(asked=2, remembered=0, retries=2, unanswered=1)


def test_a_refused_question_is_not_asked_again(server, make):
    server.faults = [400]
    chat = make()
    with pytest.raises(Unanswered, match="refused: HTTP 400: out of luck"):
        ask(chat)
    assert ask(chat, "b") == "B" and len(server.bodies) == 2


@pytest.mark.parametrize("status", [401, 404])
def test_a_key_or_model_that_is_gone_ends_everything(server, make, status):
    chat = make()
    ask(chat, "a")
    server.always = status
    for text in "bc":
        with pytest.raises(ServerLost, match=rf"is given up: HTTP {status}"):
            ask(chat, text)
    assert len(server.bodies) == 2  # nobody asked for c
    assert ask(chat, "a") == "A"  # what is remembered needs no server


def test_a_server_that_is_gone_is_given_up_after_some_questions(server, make):
    chat = make(retries=1, concurrency=2)
    server.always = 500
    for n in range(5):
        with pytest.raises(Unanswered):
            ask(chat, str(n))
    with pytest.raises(ServerLost, match="5 questions in a row failed: HTTP 500"):
        ask(chat, "6")
    assert len(server.bodies) == 10


def test_a_good_reply_in_between_keeps_the_server(server, make):
    chat = make(retries=0, concurrency=1)
    for n in range(6):
        server.faults = [500]
        with pytest.raises(Unanswered):
            ask(chat, f"bad {n}")
        assert ask(chat, f"good {n}") == f"GOOD {n}"


# ------------------------------------------------------------------------------ many
def test_no_more_than_allowed_are_in_flight(server, make):
    server.seconds = 0.05
    chat = make(concurrency=3)
    together = []  # threads of the caller beside those of `map`
    for n in range(4):
        together.append(threading.Thread(target=ask, args=(chat, f"more {n}")))
        together[-1].start()
    found = list(chat.map(lambda n: ask(chat, str(n)), range(12)))
    for thread in together:
        thread.join()
    assert found == [str(n) for n in range(12)]
    assert len(server.bodies) == 16 and server.most_in_flight == 3


def test_an_error_ends_the_rest_at_once(server, make):
    chat = make(concurrency=2)

    def work(n):
        if n == 0:
            while not server.bodies:
                time.sleep(0.01)
            raise KeyError("broken")
        return ask(chat, str(n))

    server.faults = ["hang"]
    start = time.monotonic()
    with pytest.raises(KeyError, match="broken"):
        list(chat.map(work, range(50)))
    assert time.monotonic() - start < 30 and len(server.bodies) < 10
    with pytest.raises(ServerLost, match="was ended"):
        ask(chat, "z")


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"retries": -1}])
def test_impossible_numbers(make, options):
    with pytest.raises(ValueError, match=r"concurrency=.*retries="):
        make(**options)


WORK = """
import sys
from vade_jax.evals import chat, endpoint, replies
memory = replies.Replies(sys.argv[2])
chat = chat.Chat(endpoint.Endpoint(sys.argv[1], "m"), memory, concurrency=2)
ask = lambda n: chat.ask([{"role": "user", "content": f"a{n}"}])
print(list(chat.map(ask, range(20))), chat.counts())
"""


def test_a_killed_process_goes_on_where_it_was(server, tmp_path):
    path = tmp_path / "replies.jsonl"
    command = [sys.executable, "-c", WORK, server.url, str(path)]
    server.seconds = 0.05
    first = subprocess.Popen(command, cwd=ROOT, env=os.environ)
    while len(server.bodies) < 8:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    known = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    before = len(server.bodies)
    assert 4 <= len(known) <= before < 20
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert str([f"A{n}" for n in range(20)]) in second.stdout, second.stderr
    assert f"'asked': {20 - len(known)}, 'remembered': {len(known)}" in second.stdout
    assert len(server.bodies) == before + 20 - len(known)
