"""Bulk questions against a scripted server: faults, bounds, memory, a process that is killed.

tests/http_test.py has what one request may meet.
"""

import json
import pathlib
import threading
import time
from concurrent import futures

import pytest

from experiments.evals.chat import (
    Chat,
    Replies,
    ServerLost,
    Unanswered,
    finished,
    num_tokens,
    request_key,
    text,
)
from experiments.evals.settings import Judge
from tests.http_server import KEY, ScriptedChat, said
from vade_jax.http import TransientError

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def server():
    with ScriptedChat(lambda body: said(body).upper()) as server:
        yield server


@pytest.fixture
def make(server, tmp_path):
    def make(**options):
        asked = Judge(**{"url": server.url, "model": "m", "timeout_s": 10.0} | options)
        return Chat(asked, tmp_path / "replies.jsonl", backoff_s=0.01)

    return make


def user(text):
    return [{"role": "user", "content": text}]


def ask(chat, text="a", **fields):
    return chat.ask(user(text), **fields)


# ------------------------------------------------------------------------------ a first word
@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("https://host/v1/", "https://host/v1"),
        ("https://host/openai/v2", "https://host/openai/v2"),
    ],
)
def test_a_url_without_a_path_means_v1(make, url, full):
    assert make(url=url).url == full


def test_a_wrong_key(make, server, monkeypatch):
    monkeypatch.setenv("GOOD", KEY)
    monkeypatch.setenv("WRONG", "x")
    server.needs_key = True
    make(api_key_env="GOOD").check()
    assert server.bodies == []
    for variable, given in (("", "no API key"), ("WRONG", "the API key")):
        message = rf"{server.url}/v1 does not accept {given} .*HTTP 401: Incorrect"
        with pytest.raises(ValueError, match=message):
            make(api_key_env=variable).check()
    with pytest.raises(ValueError, match=r"judge.api_key_env='NONE': there is no such variable"):
        make(api_key_env="NONE")


def test_a_wrong_address(make, server):
    with pytest.raises(ValueError, match=r"serves m, not 'n' \(HTTP 404: The model"):
        make(model="n").check()
    message = r"/other/v1 has no chat there \(HTTP 404: Not Found\): give the URL that"
    with pytest.raises(ValueError, match=message):
        make(url=f"{server.url}/other/v1").check()
    server.always = "html"
    with pytest.raises(ValueError, match=r"does not answer \(a reply that is no JSON"):
        make().check()
    server.kill()
    with pytest.raises(ValueError, match=r"does not answer \(.*refused.*correct its URL"):
        make().check()


# ------------------------------------------------------------------------------ what a reply says
def test_a_reply_without_text_is_empty_and_one_of_another_form_is_transient(server, make):
    server.faults = ["null"]
    assert ask(make()) == ""
    with pytest.raises(TransientError, match="content is no text"):
        text({"choices": [{"message": {"content": 5}}]})
    with pytest.raises(TransientError, match="no chat completion"):
        text({"data": []})


@pytest.mark.parametrize(
    ("reason", "usage", "expected"),
    [
        ("stop", {"completion_tokens": 7}, (True, 7)),
        ("length", {"completion_tokens": "7"}, (False, None)),
        ("content_filter", {}, (None, None)),
        (["stop"], 7, (None, None)),
    ],
)
def test_how_a_reply_ended(reason, usage, expected):
    choice = {"message": {"content": "a"}, "finish_reason": reason}
    reply = {"choices": [choice], "usage": usage}
    assert (finished(reply), num_tokens(reply)) == expected
    bare = {"choices": [{"message": {"content": "a"}}]}
    assert finished(bare) is num_tokens(bare) is None


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
    chat = make(fields='{"max_tokens": null, "top_p": 0.5}')
    ask(chat, max_tokens=7, top_p=1.0, seed=3)
    (body,) = server.bodies
    assert body == {"model": "m", "messages": user("a"), "top_p": 0.5, "seed": 3}


def test_the_key_is_of_the_content():
    assert request_key({"a": 1, "b": 2}) == request_key({"b": 2, "a": 1})
    requests = [{"messages": user("p")}, {"messages": user("q")}, {"seed": 0}, {"seed": 1}]
    assert len(set(map(request_key, requests))) == 4


def test_a_line_that_was_cut_off_costs_one_reply(tmp_path):
    path = tmp_path / "new" / "replies.jsonl"
    memory = Replies(path)
    memory.put("a", {"q": "é"}, 1)
    memory.put("b", {}, 2)
    assert memory.get("c") is None
    path.write_bytes(path.read_bytes()[:-5])
    memory = Replies(path)
    assert (memory.get("a"), memory.get("b"), memory.damaged) == (1, None, 1)
    memory.put("b", {}, 3)
    memory = Replies(path)
    assert (memory.get("a"), memory.get("b"), memory.damaged) == (1, 3, 1)


def test_images_are_kept_as_their_hash(tmp_path):
    url = "data:image/png;base64," + "A" * 1000
    Replies(tmp_path / "a.jsonl").put("a", {"messages": [{"image_url": {"url": url}}]}, url)
    row = json.loads((tmp_path / "a.jsonl").read_text())
    kept = row["request"]["messages"][0]["image_url"]["url"]
    assert kept.startswith("data:image/png;base64,sha256=") and len(kept) < 100
    assert row["reply"] == url


def test_threads_share_a_memory(tmp_path):
    memory = Replies(tmp_path / "replies.jsonl")

    def fill(i):
        for n in range(50):
            memory.put(f"{i}-{n}", {}, "x" * (i * n))
            assert memory.get(f"{i}-{n}") == "x" * (i * n)

    with futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(fill, range(8)))
    again = Replies(tmp_path / "replies.jsonl")
    assert (len(again), again.damaged, again.get("7-9")) == (400, 0, "x" * 63)


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


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_key_or_model_that_is_gone_ends_everything(server, make, status):
    chat = make()
    ask(chat, "a")
    server.always = status
    for question in "bc":
        with pytest.raises(ServerLost, match=rf"is given up: HTTP {status}"):
            ask(chat, question)
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
