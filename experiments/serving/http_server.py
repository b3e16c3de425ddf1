"""The HTTP server: takes its port first, answers each connection in a thread, ends in order."""

import collections
import contextlib
import http.server
import socketserver
import sys
import threading
from collections.abc import Iterator
from typing import Any

from absl import logging

from experiments.serving.chat_api import ChatApi
from experiments.serving.http_handler import Handler


class Server(http.server.ThreadingHTTPServer):
    """Takes the port at once and answers from `start` to `close`, each connection in a thread.

    Args:
      host: the address to listen at.
      port: 0 takes any that is free.
      body_bytes: the largest request.
      timeout_s: a client that neither sends nor reads for so long is left.

    Attributes:
      api: what answers.
      counts: replies so far, by HTTP status.

    Raises:
      ValueError: the address cannot be had.
    """

    daemon_threads = True  # an idle connection does not hold up the end
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, *, body_bytes: float, timeout_s: float):
        self.api: ChatApi | None = None
        self.body_bytes, self.timeout_s = body_bytes, timeout_s
        self.counts: collections.Counter[int] = collections.Counter()
        self.closing = False
        self._changed, self._in_flight = threading.Condition(), 0
        super().__init__((host, port), Handler, bind_and_activate=False)
        with self._address_error(host, port):
            self.server_bind()

    @property
    def url(self) -> str:
        """The address with the port that it has."""
        return "http://{}:{}".format(*self.server_address[:2])

    def start(self, api: ChatApi) -> None:
        """Answers from now on; before, connections are refused."""
        self.api = api
        with self._address_error(*self.server_address[:2]):
            self.server_activate()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Refuses new connections and returns when all that was asked has its reply."""
        self.closing = True
        self.shutdown()
        self.server_close()
        with self._changed:
            self._changed.wait_for(lambda: not self._in_flight)

    @contextlib.contextmanager
    def in_flight(self) -> Iterator[None]:
        """Holds up `close`."""
        with self._changed:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify_all()

    def count(self, status: int) -> None:
        """Counts a reply."""
        with self._changed:
            self.counts[status] += 1

    def server_bind(self) -> None:
        """Takes the address; the library's own looks its name up, which may take long."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs what a handler did not expect; a client that has gone is none of it."""
        if not isinstance(sys.exception(), OSError):
            logging.exception("a connection failed")

    @contextlib.contextmanager
    def _address_error(self, host, port):
        try:
            yield
        except (OSError, OverflowError) as error:
            self.server_close()
            raise ValueError(
                f"cannot listen at {host}:{port} ({error}): give another --config.port "
                "(0: any that is free) or --config.host"
            ) from error
