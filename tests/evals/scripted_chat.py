"""A stand-in for an OpenAI-compatible server: it says what a function says, and fails on demand."""

import contextlib
import json
import threading
import time

from tests import http_server

KEY = "secret-key"


class ScriptedChat:
    """Listens on a port of its own until `kill`.

    Args:
        answer: body of a request -> text of the reply.
        model: the name it is served under.
        seconds: a reply takes.
        needs_key: requests without `KEY` get 401.

    Attributes:
        faults: what happens to the next requests, oldest first: an HTTP status, "hang" (until
            killed), "drop", "html" (200 and no JSON), "other" (200 and other JSON), "null" (no text),
            "trickle" (a space now and then); None is no fault. `always` is for all of them.
        bodies: of the requests so far, without the questions of `Endpoint.check`.
    """

    def __init__(
        self, answer=lambda body: "yes", *, model="m", seconds=0.0, needs_key=False
    ):
        self.answer, self.model = answer, model
        self.seconds, self.needs_key = seconds, needs_key
        self.faults, self.always, self.retry_after = [], None, None
        self.bodies, self.times = [], []
        self.in_flight = self.most_in_flight = 0
        self._lock, self._killed = threading.Lock(), threading.Event()
        self._http = http_server.Server(self._handle)
        self.url = self._http.url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """Ends: new connections are refused."""
        if not self._killed.is_set():
            self._killed.set()
            self._http.end()

    def _handle(self, handler, method, body):
        if method == "GET" and handler.path == "/v1/models":
            return self._send(handler, 200, {"data": [{"id": self.model}]})
        if self.needs_key and handler.headers["Authorization"] != f"Bearer {KEY}":
            return self._error(handler, 401, "Incorrect API key provided")
        if handler.path != "/v1/chat/completions":
            return self._error(handler, 404, "Not Found")
        if body["model"] != self.model:
            return self._error(handler, 404, f"The model `{body['model']}` is unknown")
        if said(body).startswith("Reply with the word"):
            return self._say(handler, "yes")
        with self._lock:
            self.bodies.append(body)
            self.times.append(time.monotonic())
            fault = self.always or (self.faults.pop(0) if self.faults else None)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        time.sleep(self.seconds)
        with self._lock:  # before the reply: whoever has it may ask again
            self.in_flight -= 1
        return self._fail(handler, fault) if fault else self._answer(handler, body)

    def _answer(self, handler, body):
        return self._say(handler, self.answer(body))

    def _say(self, handler, text):
        message = {"role": "assistant", "content": text}
        self._send(handler, 200, {"choices": [{"index": 0, "message": message}]})

    def _fail(self, handler, fault):
        if isinstance(fault, int):
            return self._error(handler, fault, "out of luck")
        if fault == "html":
            return self._send(handler, 200, None, b"<html>gateway</html>")
        if fault == "other":
            return self._send(handler, 200, {"object": "list", "data": []})
        if fault == "null":
            return self._say(handler, None)
        if fault == "trickle":
            handler.send_response(200)
            handler.end_headers()
            while not self._killed.wait(0.05):
                handler.wfile.write(b" ")
        if fault == "hang":
            self._killed.wait(60)
        handler.close_connection = True
        return None

    def _error(self, handler, status, message):
        self._send(handler, status, {"error": {"message": message, "code": status}})

    def _send(self, handler, status, content, data=None):
        data = json.dumps(content).encode() if data is None else data
        waits = self.retry_after is not None and status == 429
        with contextlib.suppress(OSError):  # the other side has hung up
            handler.reply(
                status, data, {"Retry-After": self.retry_after} if waits else {}
            )


def said(body):
    """Returns the text of the last message of a request."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
