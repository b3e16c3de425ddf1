"""Bulk questions against a scripted server: memory, a server that is gone.

tests/client_test.py has what one request may meet.
"""

import pytest

from experiments.evals.chat import Chat, ServerLost, Unanswered
from experiments.evals.settings import Judge
from tests.http_server import ScriptedChat, said


@pytest.fixture
def server():
    with ScriptedChat(lambda body: said(body).upper()) as server:
        yield server


@pytest.fixture
def make(server, tmp_path):
    def make(**options):
        options = {"url": server.url, "model": "m", "timeout_s": 10.0, "retries": 0} | options
        return Chat(Judge(**options), tmp_path / "replies.jsonl")

    return make


def user(text):
    return [{"role": "user", "content": text}]


def ask(chat, text="a", **fields):
    return chat.ask(user(text), **fields)


def test_a_question_is_asked_once(server, make):
    chat = make()
    assert [ask(chat, "a"), ask(chat, "a"), ask(chat, "b")] == ["A", "A", "B"]
    assert ask(chat, "a", seed=1) == "A"  # another question
    assert [said(body) for body in server.bodies] == ["a", "b", "a"]
    assert chat.counts() == dict(asked=3, remembered=1, unanswered=0)
    assert ask(make(), "b") == "B" and len(server.bodies) == 3  # another process
    server.seconds = 0.1
    assert list(make(concurrency=8).map(lambda _: ask(chat, "c"), range(8))) == ["C"] * 8
    assert len(server.bodies) == 4  # in many threads at once


def test_failures_are_counted_and_not_remembered(server, make):
    server.faults = [500, 500, 400]
    chat = make(retries=1)
    for why in ("HTTP 500", "HTTP 400: out of luck"):
        with pytest.raises(Unanswered, match=why):
            ask(chat)
    assert ask(chat) == "A"
    assert chat.counts() == dict(asked=3, remembered=0, unanswered=2)


def test_a_server_that_is_gone_is_given_up_after_some_questions(server, make):
    chat = make(concurrency=2)
    for n in range(6):
        server.faults = [500]
        with pytest.raises(Unanswered):
            ask(chat, f"bad {n}")
        assert ask(chat, f"good {n}") == f"GOOD {n}"  # which keeps the server
    server.always = 500
    for n in range(4):
        with pytest.raises(Unanswered):
            ask(chat, str(n))
    with pytest.raises(ServerLost, match="5 questions in a row failed: HTTP 500"):
        ask(chat, "5")
    with pytest.raises(ServerLost):
        ask(chat, "6")
    assert len(server.bodies) == 12 + 5
