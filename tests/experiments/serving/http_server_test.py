"""HTTP: statuses, sizes, clients that stall or leave, an orderly end."""

import http.client
import json
import socket
import threading

import pytest

from experiments.serving.api_error import ApiError, bad
from experiments.serving.http_server import Server

CHAT = "/v1/chat/completions"


class Api:
    """Echoes; can be held, and fails when asked to."""

    def __init__(self):
        self.may_go, self.asked = threading.Event(), threading.Semaphore(0)
        self.may_go.set()

    def models(self):
        return {"object": "list", "data": [{"id": "m"}]}

    def chat(self, body):
        self.asked.release()
        assert self.may_go.wait(30)
        if body == "refuse":
            raise bad("n", "n=0")
        if body == "fail":
            raise MemoryError("no room")
        kind = "chat.completion.chunk" if body == "stream" else "chat.completion"
        return {"object": kind, "body": body}


@pytest.fixture
def server():
    made = Server("127.0.0.1", 0, body_bytes=2000, timeout_s=1.0)
    made.start(Api())
    yield made
    made.api.may_go.set()
    made.close()


def connect(server):
    return http.client.HTTPConnection(*server.server_address[:2], timeout=30)


def ask(server, method, path, data=None, headers=(), connection=None):
    connection = connection or connect(server)
    connection.request(method, path, data, dict(headers))
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def post(server, body, **more):
    return ask(server, "POST", CHAT, json.dumps(body), **more)


def test_the_three_calls(server):
    assert ask(server, "GET", "/health") == (200, {"status": "ok"})
    assert ask(server, "GET", "/v1/models")[1]["data"] == [{"id": "m"}]
    assert post(server, "é")[1] == {"object": "chat.completion", "body": "é"}


def test_one_connection_serves_many(server):
    connection = connect(server)
    for body in ("a", "refuse", "b"):
        status, _ = post(server, body, connection=connection)
        assert status == (400 if body == "refuse" else 200)
    assert ask(server, "GET", "/health", connection=connection)[0] == 200
    assert server.counts == {200: 3, 400: 1}


@pytest.mark.parametrize(
    ("method", "path", "data", "headers", "status", "message"),
    [
        ("POST", CHAT, "{", {}, 400, "the body is no JSON"),
        ("POST", CHAT, "[" * 1999, {}, 400, "the body is no JSON"),
        ("POST", CHAT, b"\xff", {}, 400, "the body is no JSON"),
        ("POST", CHAT, '"refuse"', {}, 400, "n=0"),
        ("POST", CHAT, "x" * 2001, {}, 413, "2001 bytes, the limit is 2000"),
        ("POST", CHAT, None, {"Content-Length": "-1"}, 411, "Content-Length"),
        ("POST", CHAT, None, {"Content-Length": "9" * 5000}, 411, "Content-Length"),
        ("POST", CHAT, None, {"Transfer-Encoding": "chunked"}, 411, "Content-Length"),
        ("POST", "/v1/completions", "{}", {}, 404, "no /v1/completions here"),
        ("GET", "/", None, {}, 404, "/health, /v1/models"),
        ("GET", CHAT, None, {}, 405, "takes POST"),
        ("POST", "/v1/models", "{}", {}, 405, "takes GET"),
        ("PUT", CHAT, "{}", {}, 501, "Unsupported method"),
    ],
)
def test_refusals_are_json(server, method, path, data, headers, status, message):
    found, content = ask(server, method, path, data, headers)
    assert found == status
    assert message in content["error"]["message"]
    assert set(content["error"]) == {"message", "type", "param", "code"}
    assert post(server, "next")[0] == 200


def test_a_failure_inside_is_said_and_logged(server, caplog):
    status, content = post(server, "fail")
    assert status == 500 and content["error"]["type"] == "server_error"
    assert content["error"]["message"] == "the engine failed: MemoryError: no room"
    assert "no room" in caplog.text
    assert post(server, "next")[0] == 200


def test_a_stream_is_one_event_and_an_end(server):
    connection = connect(server)
    connection.request("POST", CHAT, '"stream"')
    reply = connection.getresponse()
    assert reply.getheader("Content-Type") == "text/event-stream"
    event, end, rest = reply.read().decode().split("\n\n")
    assert json.loads(event.removeprefix("data: "))["body"] == "stream"
    assert (end, rest) == ("data: [DONE]", "")


def test_who_stalls_or_leaves_holds_up_nobody(server, caplog):
    head = f"POST {CHAT} HTTP/1.1\r\nContent-Length: 50\r\n\r\n{{".encode()
    stalled = [socket.create_connection(server.server_address[:2]) for _ in range(3)]
    stalled[0].sendall(head)
    stalled[1].sendall(b"POST /v1")
    server.api.may_go.clear()
    gone = socket.create_connection(server.server_address[:2])
    gone.sendall(head.replace(b"50", b"3").replace(b"{", b'"a"'))
    assert server.api.asked.acquire(timeout=30)
    gone.close()
    server.api.may_go.set()
    assert post(server, "b")[0] == 200
    for each in stalled:
        each.settimeout(30)
        assert each.recv(100) == b""  # left after a second
        each.close()
    assert "Traceback" not in caplog.text


def test_closing_answers_what_was_asked(server):
    server.api.may_go.clear()
    idle, found = connect(server), []
    assert ask(server, "GET", "/health", connection=idle)[0] == 200
    asking = threading.Thread(target=lambda: found.append(post(server, "a")))
    asking.start()
    assert server.api.asked.acquire(timeout=30)
    closing = threading.Thread(target=server.close)
    closing.start()
    while not server.closing:
        pass
    assert post(server, "late", connection=idle)[0] == 503
    closing.join(0.3)
    assert closing.is_alive() and not found
    server.api.may_go.set()
    closing.join(30)
    asking.join(30)
    assert found == [(200, {"object": "chat.completion", "body": "a"})]
    with pytest.raises(ConnectionRefusedError):
        post(server, "b")


def test_a_taken_port_is_one_clear_error(server):
    port = server.server_address[1]
    with pytest.raises(ValueError, match=f"cannot listen at 127.0.0.1:{port}"):
        Server("127.0.0.1", port, body_bytes=1, timeout_s=1)
    with pytest.raises(ValueError, match=r"or --config\.host"):
        Server("203.0.113.1", 0, body_bytes=1, timeout_s=1)


def test_errors_have_words_for_programs():
    assert ApiError(404, "no").content()["error"]["code"] == "not_found"
    assert bad("n", "no").content()["error"]["code"] == "invalid_value"
