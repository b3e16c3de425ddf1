"""The HTTP client against a server that fails in every way, and the pauses between tries."""

import threading
import time
from concurrent import futures

import pytest

from tests.http_server import CHAT, ScriptedChat
from vade_jax import http
from vade_jax.http import Client, RefusedError, TransientError

BODY = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


@pytest.fixture
def server():
    with ScriptedChat(lambda body: body["messages"][0]["content"]) as server:
        yield server


@pytest.fixture
def client(server):
    return Client(server.url, timeout_s=5.0)


def ask(client, text="q", **options):
    messages = [{"role": "user", "content": text}]
    body = {"model": "m", "messages": messages}
    reply = client.ask("POST", CHAT, body, **options)
    return reply["choices"][0]["message"]["content"]


# ------------------------------------------------------------------------------ replies
@pytest.mark.parametrize(
    "url", ["host:8000", "localhost", "ftp://host", "http://", "http://host:port"]
)
def test_what_is_no_url_is_an_error(url):
    with pytest.raises(ValueError, match=r"is no URL: write http://host:port"):
        Client(url, timeout_s=1.0)


def test_text_comes_back_whatever_is_in_it(client, server):
    assert ask(client, text="é\ud800\n") == "é\ud800\n"  # models write lone surrogates
    assert server.log == [("POST", CHAT, server.bodies[0])]


def test_the_path_of_the_url_comes_first(server):
    client = Client(f"{server.url}/v1/", timeout_s=5.0)
    assert client.url == f"{server.url}/v1"
    assert client.ask("GET", "/models")["data"] == [{"id": "m"}]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        *((status, f"HTTP {status}: out of luck") for status in (408, 429, 500, 503)),
        ("drop", "POST /v1/chat/completions: RemoteProtocolError: Server disconn"),
        ("cut", "RemoteProtocolError: peer closed connection"),
        ("html", "a reply that is no JSON: '<html>gateway"),
    ],
)
def test_what_may_pass_is_transient(client, server, fault, words):
    server.faults = [fault]
    with pytest.raises(TransientError, match=words):
        ask(client)
    assert ask(client) == "q"


@pytest.mark.parametrize("fault", ["hang", "trickle"])
def test_a_stall_is_ended_at_the_time_limit(client, server, fault):
    server.faults = [fault]
    start = time.monotonic()
    with pytest.raises(TransientError, match="ReadTimeout"):
        ask(client, timeout_s=0.3)
    assert 0.3 <= time.monotonic() - start < 30  # it would hang for 60


@pytest.mark.parametrize("status", [400, 403, 422])
def test_what_will_not_pass_is_refused(client, server, status):
    server.faults = [status]
    with pytest.raises(RefusedError, match=f"HTTP {status}: out of luck") as caught:
        ask(client)
    assert caught.value.status == status


# ------------------------------------------------------------------------------ connections
def test_connections_are_kept(client, server):
    for _ in range(20):
        ask(client)
    assert server.num_connections == 1
    server.seconds = 0.02
    with futures.ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: ask(client, text=str(n)), range(40)))
    assert found == [str(n) for n in range(40)]
    assert server.num_connections <= 4


def test_a_server_that_restarted_gets_a_new_connection(client, server):
    ask(client)
    server.kill()
    server.start()
    assert ask(client) == "q" and server.num_connections == 2


def test_an_abort_from_another_thread_ends_what_is_in_flight_alone(client, server):
    ask(client)
    server.faults = ["hang", "hang"]
    with futures.ThreadPoolExecutor(2) as threads:
        # One over the kept connection, one over a new one.
        asked = [threads.submit(ask, client) for _ in range(2)]
        while server.in_flight < 2:
            time.sleep(0.01)
        client.abort()
        for one in asked:
            with pytest.raises(TransientError):
                one.result(timeout=30)
    assert ask(client) == "q"


def test_a_close_ends_what_is_to_come_too(client, server):
    server.faults = ["hang"]
    threading.Timer(0.2, client.close).start()
    for _ in range(2):
        with pytest.raises(TransientError):
            ask(client)
    assert len(server.bodies) == 1


# ------------------------------------------------------------------------------ retries
class Fails:
    """Fails `times`, then returns "done"."""

    def __init__(self, times, error=None):
        self.times, self.calls = times, []
        self.error = error or TransientError("out of luck")

    def __call__(self):
        self.calls.append(time.monotonic())
        if len(self.calls) <= self.times:
            raise self.error
        return "done"


def test_a_failure_is_repeated_and_counted():
    work, counted = Fails(2), []
    retrying = http.retrying(3, 0.001, on_retry=lambda: counted.append(1))
    assert retrying(work) == "done"
    assert len(work.calls) == 3 and len(counted) == 2


@pytest.mark.parametrize(
    ("error", "calls"), [(None, 3), (RefusedError(400, "no"), 1), (KeyError("x"), 1)]
)
def test_the_last_error_passes_and_others_are_not_repeated(error, calls):
    work = Fails(9, error)
    with pytest.raises(type(work.error)) as caught:
        http.retrying(3, 0.001)(work)
    assert caught.value is work.error and len(work.calls) == calls


def test_pauses_double_and_have_a_random_part():
    work = Fails(3)
    http.retrying(4, 0.2)(work)
    pauses = [b - a for a, b in zip(work.calls, work.calls[1:], strict=False)]
    for pause, longest in zip(pauses, (0.2, 0.4, 0.8), strict=True):
        assert longest / 2 <= pause < longest + 0.15


def test_the_servers_wish_is_granted(client, server):
    server.faults, server.retry_after = [429], "1"
    http.retrying(2, 0.0)(lambda: ask(client))
    assert server.times[1] - server.times[0] >= 1


def test_an_end_cuts_pauses_short_and_stops():
    work, ended = Fails(9), threading.Event()
    threading.Timer(0.2, ended.set).start()
    start = time.monotonic()
    with pytest.raises(TransientError):
        http.retrying(9, 60.0, ended=ended)(work)
    assert len(work.calls) <= 2 and time.monotonic() - start < 20
