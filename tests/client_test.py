"""The client of judges and evaluations against a server that fails in every way."""

import threading
import time
from concurrent import futures

import pytest

from tests.http_server import KEY, ScriptedChat, said
from vade_jax import client
from vade_jax.client import Failure


@pytest.fixture
def server():
    with ScriptedChat(said) as server:
        yield server


def make(server, **options):
    return client.Client(client.chat_url(server.url), **{"retries": 0} | options)


def submit(asked, text="q", model="m"):
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return asked.submit("/chat/completions", body, client.text_of)


def ask(asked, *args):
    return submit(asked, *args).result()


# ------------------------------------------------------------------------------ keys


@pytest.mark.parametrize("key", [None, "sk-secré", "sk-sec\nret"])
def test_a_key_that_no_header_can_hold_is_an_error_without_it(monkeypatch, key):
    if key is not None:
        monkeypatch.setenv("THE_KEY", key)
    with pytest.raises(ValueError, match="api_key_env of http://host must name") as caught:
        client.Client("http://host", api_key_env="THE_KEY")
    assert "sk-" not in str(caught.value) and caught.value.__context__ is None


def test_a_wrong_key_model_or_path_is_final(server, monkeypatch):
    monkeypatch.setenv("K", KEY)
    server.needs_key = True
    refused = ask(make(server))
    assert refused.is_final and refused.why == "HTTP 401: Incorrect API key provided"
    assert "`n` is unknown" in ask(make(server, api_key_env="K"), "q", "n").why
    other = client.Client(f"{server.url}/other", api_key_env="K")
    assert ask(other).is_final and server.bodies == []


# ------------------------------------------------------------------------------ failures


@pytest.mark.parametrize("fault", [500, 429, "drop", "cut", "hang"])
def test_what_may_pass_is_repeated(server, fault):
    server.faults = [fault]
    assert ask(make(server, retries=1, timeout_s=0.4)) == "q"
    assert len(server.bodies) == 2


@pytest.mark.parametrize("fault", [500, "drop", "cut", "html", "other", "hang"])
def test_without_a_reply_there_is_a_reason(server, fault):
    server.always = fault
    failure = ask(make(server, timeout_s=0.4))
    assert isinstance(failure, Failure) and failure.why and failure.status == 0


@pytest.mark.parametrize("status", [400, 422])
def test_what_is_refused_is_not_repeated(server, status):
    server.always = status
    failure = ask(make(server, retries=3))
    assert failure == Failure(f"HTTP {status}: out of luck", status) and not failure.is_final
    assert len(server.bodies) == 1


def test_the_servers_wish_for_a_pause_is_granted(server):
    server.faults, server.retry_after = [429], "1"
    ask(make(server, retries=1))
    first, second = server.times
    assert 1 <= second - first < 5


# ------------------------------------------------------------------------------ many
def test_no_more_than_allowed_are_in_flight(server):
    server.seconds = 0.05
    asked = make(server, concurrency=3)
    pending = [submit(asked, str(n)) for n in range(12)]
    assert [x.result() for x in pending] == [str(n) for n in range(12)]
    assert server.most_in_flight == 3


def test_closing_cancels_what_is_in_flight(server):
    server.always = "hang"
    asked = make(server)
    threading.Timer(0.3, asked.close).start()
    start = time.monotonic()
    with pytest.raises(futures.CancelledError):
        ask(asked)
    assert time.monotonic() - start < 20
