"""HTTP of one connection: paths, sizes, timeouts, replies and errors as JSON."""

import contextlib
import http.server
import json
import re
import time

from absl import logging

from experiments.serving.api_error import ApiError

_PIECE = 1 << 16  # bytes read at once
_SIZE = re.compile("[0-9]{1,15}")


class _ClientGone(Exception):  # noqa: N818 (says what happened)
    """There is nobody to answer."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of one connection; `server` is an `http_server.Server`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        self.timeout = self.server.timeout_s
        super().setup()

    def do_GET(self):
        self._answer("GET")

    def do_POST(self):
        self._answer("POST")

    def _answer(self, method):
        with self.server.in_flight():
            try:
                content = self._route(method, self._body())
            except ApiError as error:
                self._send(error.status, error.content())
            except _ClientGone:
                self.close_connection = True
            except Exception as error:
                logging.exception("a request failed")
                message = f"the engine failed: {type(error).__name__}: {error}"
                self._send(500, ApiError(500, message).content())
            else:
                self._send(200, content)

    def _route(self, method, data):
        """Returns what a call has to say."""
        path = self.path.partition("?")[0]
        api = self.server.api
        calls = {
            "/health": ("GET", lambda: {"status": "ok"}),
            "/v1/models": ("GET", api.models),
            "/v1/chat/completions": ("POST", lambda: api.chat(_parsed(data))),
        }
        if self.server.closing:
            self.close_connection = True
            raise ApiError(503, "the server is stopping")
        if path not in calls:
            raise ApiError(404, f"no {path:.100} here: {', '.join(calls)}")
        wanted, call = calls[path]
        if method != wanted:
            raise ApiError(405, f"{path} takes {wanted}")
        return call()

    def _body(self) -> bytes:
        """Returns the body of a request; one that is too large is read and forgotten.

        Raises:
          ApiError: it has no length, or is too large.
          _ClientGone: it does not come to its end.
        """
        size = self.headers.get("Content-Length", "0")
        if not _SIZE.fullmatch(size) or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise ApiError(411, "send the length of the body in Content-Length")
        size, limit = int(size), self.server.body_bytes
        parts = [part if size <= limit else b"" for part in self._pieces(size)]
        if size > limit:
            message = f"the request has {size} bytes, the limit is {limit:.0f}"
            raise ApiError(413, f"{message}: send fewer or smaller pictures")
        return b"".join(parts)

    def _pieces(self, size):
        """Yields the body as it comes."""
        end = time.monotonic() + self.server.timeout_s
        while size:
            try:
                part = self.rfile.read1(min(size, _PIECE))
            except OSError as error:
                raise _ClientGone from error
            if not part or time.monotonic() > end:
                raise _ClientGone
            size -= len(part)
            yield part

    # ------------------------------------------------------------------------- replies
    def send_error(self, code, message=None, explain=None):
        """Says what the library finds wrong with a request, as JSON."""
        self.close_connection = True
        self._send(int(code), ApiError(int(code), message or "bad request").content())

    def _send(self, status, content):
        stream = content.get("object") == "chat.completion.chunk"
        data = json.dumps(content).encode()
        data = b"data: " + data + b"\n\ndata: [DONE]\n\n" if stream else data
        self.server.count(status)
        with contextlib.suppress(OSError):  # the client has gone
            self.send_response(status)
            kind = "text/event-stream" if stream else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            return
        self.close_connection = True

    def log_message(self, *args):
        """Keeps quiet about requests that are answered."""


def _parsed(data):
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        message = f"the body is no JSON: {error}"
        raise ApiError(400, message, code="invalid_json") from error
