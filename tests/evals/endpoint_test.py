"""One request: what is sent, which errors may pass, and what a bad address is told."""

import contextlib
import socket
import threading
import time

import pytest

from tests.http_server import KEY, ScriptedChat
from vade_jax.evals.endpoint import Endpoint, finished, num_tokens, text
from vade_jax.http import RefusedError, TransientError

BODY = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


@pytest.fixture
def server():
    with ScriptedChat(lambda body: "hello") as server:
        yield server


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("https://host/v1/", "https://host/v1"),
        ("https://host/openai/v2", "https://host/openai/v2"),
    ],
)
def test_a_url_without_a_path_means_v1(url, full):
    assert Endpoint(url, "m").url == full


@pytest.mark.parametrize("url", ["host:8000", "localhost", "ftp://host", "http://"])
def test_no_url(url):
    with pytest.raises(ValueError, match=r"is no URL: write http://host:port"):
        Endpoint(url, "m")


def test_a_reply_comes_raw(server):
    reply = Endpoint(server.url, "m").complete(BODY)
    assert reply["choices"][0]["message"]["role"] == "assistant"
    assert text(reply) == "hello" and server.bodies == [BODY]


@pytest.mark.parametrize("fault", [408, 429, 500, 503, "drop", "html", "other"])
def test_what_may_pass_is_a_fault(server, fault):
    server.faults = [fault]
    with pytest.raises(TransientError):
        Endpoint(server.url, "m").complete(BODY)


@pytest.mark.parametrize("fault", ["hang", "trickle"])
def test_a_stall_is_a_fault_at_the_time_limit(server, fault):
    server.faults = [fault]
    start = time.monotonic()
    with pytest.raises(TransientError, match="ReadTimeout"):
        Endpoint(server.url, "m", timeout_s=0.3).complete(BODY)
    assert 0.3 <= time.monotonic() - start < 30  # it would hang for 60


@pytest.mark.parametrize("status", [400, 403, 422])
def test_what_will_not_pass_is_refused(server, status):
    server.faults = [status]
    with pytest.raises(RefusedError, match="out of luck") as caught:
        Endpoint(server.url, "m").complete(BODY)
    assert caught.value.status == status


def test_a_busy_server_says_for_how_long(server):
    server.faults, server.retry_after = [429], "7"
    with pytest.raises(TransientError) as caught:
        Endpoint(server.url, "m").complete(BODY)
    assert caught.value.pause_s == 7


def test_a_reply_without_text_is_empty(server):
    server.faults = ["null"]
    assert text(Endpoint(server.url, "m").complete(BODY)) == ""
    with pytest.raises(TransientError, match="content is no text"):
        text({"choices": [{"message": {"content": 5}}]})


@pytest.mark.parametrize(
    ("reason", "usage", "expected"),
    [
        ("stop", {"completion_tokens": 7}, (True, 7)),
        ("length", {"completion_tokens": "7"}, (False, None)),
        ("content_filter", {}, (None, None)),
        (None, None, (None, None)),
        (["stop"], 7, (None, None)),
    ],
)
def test_how_a_reply_ended(reason, usage, expected):
    choice = {"message": {"content": "a"}, "finish_reason": reason}
    reply = {"choices": [choice], "usage": usage}
    assert (finished(reply), num_tokens(reply)) == expected
    bare = {"choices": [{"message": {"content": "a"}}]}
    assert finished(bare) is num_tokens(bare) is None


def test_an_end_from_another_thread(server):
    server.faults = ["hang"]
    endpoint = Endpoint(server.url, "m")
    threading.Timer(0.2, endpoint.close).start()
    for _ in range(2):  # the one in flight, and any other
        with pytest.raises(TransientError):
            endpoint.complete(BODY)


# ------------------------------------------------------------------------------ check
def test_a_server_that_is_fit_passes():
    with ScriptedChat(needs_key=True) as server:
        Endpoint(server.url, "m", api_key=KEY).check()
        assert server.bodies == []


@pytest.mark.parametrize(("key", "given"), [("", "no API key"), ("x", "the API key")])
def test_a_wrong_key(key, given):
    with ScriptedChat(needs_key=True) as server:
        message = rf"{server.url}/v1 does not accept {given} .*HTTP 401: Incorrect"
        with pytest.raises(ValueError, match=message):
            Endpoint(server.url, "m", api_key=key).check()


def test_an_unknown_model_and_a_wrong_path(server):
    with pytest.raises(ValueError, match=r"serves m, not 'n' \(HTTP 404: The model"):
        Endpoint(server.url, "n").check()
    message = r"/other/v1 has no chat there \(HTTP 404: Not Found\): give the URL that"
    with pytest.raises(ValueError, match=message):
        Endpoint(f"{server.url}/other/v1", "m").check()


def test_nobody_listens():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with pytest.raises(
        ValueError, match=r"does not answer \(.*Connection refused.*URL"
    ):
        Endpoint(f"http://127.0.0.1:{port}", "m").check()


def test_another_service_on_that_port(server):
    server.always = "html"
    endpoint = Endpoint(server.url, "m")
    endpoint.complete = lambda body: Endpoint.complete(endpoint, BODY)
    with pytest.raises(ValueError, match=r"does not answer \(a reply that is no JSON"):
        endpoint.check()
