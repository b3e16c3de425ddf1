"""An HTTP server in a thread: what the scripted stand-ins of real servers share."""

import http.server
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads a request, lets the server's `answer` reply to it, and prints nothing."""

    def do_GET(self):
        self.server.answer(self, "GET", self._body())

    def do_POST(self):
        self.server.answer(self, "POST", self._body())

    def reply(self, status: int, data: bytes = b"", headers: Mapping[str, str] = {}):
        """Sends a whole response."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass

    def _body(self):
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        return json.loads(data) if data else None


class Server(http.server.ThreadingHTTPServer):
    """Listens on `port`, 0 for any free one, until `end`.

    Args:
        answer: (handler, method, JSON body or None), called in a thread of each connection.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, answer: Callable[[Handler, str, Any], None], port: int = 0):
        super().__init__(("127.0.0.1", port), Handler)
        self.answer, self.port = answer, self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        poll = {"poll_interval": 0.01}
        threading.Thread(target=self.serve_forever, kwargs=poll, daemon=True).start()

    def end(self):
        """Refuses new connections; those that are open stay."""
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass  # the other side has hung up
