"""The HTTP client for rollouts.

A request fails in one of two ways. `TransientError`: a retry may help (no connection, a timeout, an
error inside the server, a reply that was cut off). `RefusedError`: the request itself is wrong, and a
retry fails too. `retrying` retries after the first and lets the second pass.
"""

import contextlib
import json
import logging
import random
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import tenacity

from vade_jax import fields

CONNECT_S = 10.0
# uvicorn, vLLM's server, closes idle connections after 5 s. A request sent at that moment would fail and
# count as a retry, so connections are dropped here earlier.
KEEPALIVE_S = 2.0
LONGEST_PAUSE_S = 30.0
MOST_BYTES = 1 << 29  # largest reply, decompressed; the tokens of a large batch take a tenth of it
MAX_RETRY_AFTER_S = 120.0  # longest pause that a server can ask for with Retry-After
_TRANSIENT = (408, 409, 425, 429)  # and every status from 500 on
_SHOWN = 500  # characters of a server's reply that an error message shows

logging.getLogger("httpx").setLevel(logging.WARNING)  # at INFO it logs every request


class TransientError(Exception):
    """A request failed, and a retry may succeed.

    Attributes:
        pause_s: the pause that the server asks for (Retry-After), in seconds; 0 if it asks for none.
    """

    def __init__(self, message: str, pause_s: float = 0.0):
        super().__init__(message)
        self.pause_s = pause_s


class RefusedError(Exception):
    """The server refused a request, and would refuse a retry too."""

    def __init__(self, status: int, detail: str):
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status


class Client:
    """Sends JSON requests to one server over persistent connections, from any thread.

    The client does not limit the number of connections: the number of calling threads does.

    Args:
        url: http(s)://host[:port][/path]; the path of each request is appended to it.
        timeout_s: the longest wait for a whole reply in seconds, unless a request sets its own.

    Raises:
        ValueError: `url` is not a URL.
    """

    def __init__(self, url: str, *, timeout_s: float):
        try:
            parsed = httpx.URL(url)
            is_url = parsed.scheme in ("http", "https") and parsed.host
        except httpx.InvalidURL:
            is_url = False
        if not is_url:
            raise ValueError(f"server {url!r} is no URL: write http://host:port")
        fields.check_no_secret("the server", url=url)
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Content-Type": "application/json"},
            limits=httpx.Limits(keepalive_expiry=KEEPALIVE_S),
            verify=ssl.create_default_context(),
            trust_env=False,
        )
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock, self._closed = threading.Lock(), False

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float | None = None) -> Any:
        """Sends a request and returns the JSON of the reply, or None if the reply is empty.

        Raises:
            TransientError: no connection, no whole reply in time, a reply that is not JSON, an error
                inside the server, or `abort` or `close` ended the request.
            RefusedError: the server says that the request is wrong.
        """
        if self._closed:
            raise TransientError("the work was ended")
        timeout_s = timeout_s or self._timeout_s
        end = time.monotonic() + timeout_s
        # httpx's own `json=` fails on lone surrogates, which models sometimes write.
        content = None if body is None else json.dumps(body).encode()
        stream = self._client.stream(
            method,
            path,
            content=content,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S, pool=None),
            extensions={"trace": self._register},
        )
        try:
            with stream as response:
                data = b"".join(_until(end, response))
        except httpx.HTTPError as error:
            message = f"{method} {path}: {type(error).__name__}: {error}".rstrip(": ")
            raise TransientError(message) from error
        return _content(response, data)

    def abort(self) -> None:
        """Ends every request in flight, from any thread; the server drops their answers."""
        with self._lock:
            for sock in self._sockets:
                # Unlike `close`, `shutdown` wakes a thread that waits for the socket. It also ends idle
                # connections; httpx notices that and opens new ones.
                with contextlib.suppress(OSError):  # already closed
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends every request in flight and makes all later ones fail."""
        self._closed = True
        self.abort()

    def _register(self, event: str, info: Mapping[str, Any]) -> None:
        """Remembers the sockets of new connections for `abort`, as long as httpx holds them."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            sock = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._sockets.add(sock)
            if self._closed:  # `close` ran before this socket was registered
                self.abort()


def retrying(
    tries: int,
    backoff_s: float,
    *,
    on_retry: Callable[[], Any] = lambda: None,
    ended: threading.Event | None = None,
) -> tenacity.Retrying:
    """Returns a caller that repeats a function after each `TransientError`, up to `tries` calls.

    The error of the last call passes. Pauses double from `backoff_s` up to 30 s. Each is shortened by a
    random part of up to half, so that requests that failed together do not return together. If the
    server asks for a longer pause, it gets it, up to MAX_RETRY_AFTER_S.

    Args:
        tries: number of calls, the first included.
        backoff_s: longest first pause, in seconds.
        on_retry: called before each pause.
        ended: an event that, once set, ends a pause and prevents further calls.
    """

    def pause(state: tenacity.RetryCallState) -> float:
        seconds = min(backoff_s * 2 ** (state.attempt_number - 1), LONGEST_PAUSE_S)
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, TransientError)
        wish = min(error.pause_s, MAX_RETRY_AFTER_S)
        return max(seconds * random.uniform(0.5, 1), wish)

    ended = ended or threading.Event()
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        stop=tenacity.stop_after_attempt(tries) | tenacity.stop_when_event_set(ended),
        wait=pause,
        sleep=tenacity.sleep_using_event(ended),
        before_sleep=lambda _: on_retry(),
        reraise=True,
    )


def _until(end: float, response: httpx.Response):
    """Yields the bytes of a reply. Raises a timeout at time `end`, or if the reply is too long."""
    left = MOST_BYTES
    for part in response.iter_bytes():
        yield part
        left -= len(part)
        if time.monotonic() > end or left < 0:
            raise httpx.ReadTimeout("the reply does not end")


def _content(response: httpx.Response, data: bytes) -> Any:
    status = response.status_code
    if status in _TRANSIENT or status >= 500:
        wish = response.headers.get("Retry-After", "")
        pause_s = float(wish) if wish.isdecimal() else 0.0  # Retry-After may be a date: ignored
        raise TransientError(f"HTTP {status}: {_message(data)}", pause_s)
    if status >= 300:
        raise RefusedError(status, _message(data))
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        shown = data[:_SHOWN].decode(errors="replace")
        raise TransientError(f"a reply that is no JSON: {shown!r}") from error


def _message(data: bytes) -> str:
    """Returns the message in a server's error, or else the start of its reply, in printable characters."""
    said = data[:_SHOWN].decode(errors="replace")
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        said = str(json.loads(data)["error"]["message"])[:_SHOWN]
    return "".join(x if x.isprintable() else " " for x in said).strip()
