"""The HTTP client of everything that asks a server: rollouts, judges, evaluations.

A request fails in one of two ways. `TransientError`: asking again may help (no connection, a
time-out, an error inside the server, a reply that was cut off). `RefusedError`: the request is wrong
and stays wrong. `retrying` asks again after the first and lets the second pass.
"""

import contextlib
import ipaddress
import json
import logging
import os
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
# Idle connections are kept for less than the 5 s after which uvicorn, vLLM's server, hangs up: a
# request that meets the hang-up half-way fails, and would count as a retry.
KEEPALIVE_S = 2.0
LONGEST_PAUSE_S = 30.0
MOST_BYTES = 1 << 29  # of a reply, unpacked: the tokens of a large batch are a tenth of it
MAX_RETRY_AFTER_S = 120.0  # that a server's Retry-After is granted
# Of refused requests, those after which no other is answered: a wrong key, model or path.
HOPELESS = (401, 403, 404)
_TRANSIENT = (408, 409, 425, 429)  # and every status from 500 on
_SHOWN = 500  # characters of a server's error

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request as INFO


class TransientError(Exception):
    """A request failed in a way that asking again may mend.

    Attributes:
        pause_s: the pause that the server asks for (Retry-After), 0 if it does not.
    """

    def __init__(self, message: str, pause_s: float = 0.0):
        super().__init__(message)
        self.pause_s = pause_s


class RefusedError(Exception):
    """The server will not do this, however often it is asked."""

    def __init__(self, status: int, detail: str):
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status


def _is_on_the_internet(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host


class Client:
    """JSON requests to one server over kept connections, from any thread.

    The number of connections is not limited here: the callers' threads limit it.

    Args:
        url: http(s)://host[:port][/path]; the paths of requests are put behind it.
        timeout_s: the longest wait for a whole reply, unless a request says otherwise.
        headers: of every request.
        by_proxy: a server on the internet is reached as the environment says (HTTPS_PROXY, NO_PROXY).
            Others, told by a name without a dot or a private address, never are.

    Raises:
        ValueError: `url` is not a URL.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = {},
        by_proxy: bool = False,
    ):
        try:
            parsed = httpx.URL(url)
            is_url = parsed.scheme in ("http", "https") and parsed.host
        except httpx.InvalidURL:
            is_url = False
        if not is_url:
            raise ValueError(f"server {url!r} is no URL: write http://host:port")
        fields.check_no_secret("the server", url=url)
        self.url = url.rstrip("/")
        # A server may repeat the key that it was given, in an error for one, and so may httpx: nobody
        # is to see it.
        key = headers.get("Authorization", "").removeprefix("Bearer ").strip()
        self._secret = key if len(key) > 3 else None
        self._timeout_s = timeout_s
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Content-Type": "application/json", **headers},
            limits=httpx.Limits(keepalive_expiry=KEEPALIVE_S),
            verify=ssl.create_default_context(),
            trust_env=by_proxy and _is_on_the_internet(parsed.host),
        )
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock, self._closed = threading.Lock(), False

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float | None = None) -> Any:
        """Returns the JSON of a reply, None for an empty one.

        Raises:
            TransientError: no connection, no whole reply in time, a reply that is no JSON, an error
                inside the server, or the request was ended by `abort` or `close`.
            RefusedError: the server says that the request is wrong.
        """
        if self._closed:
            raise TransientError("the work was ended")
        timeout_s = timeout_s or self._timeout_s
        end = time.monotonic() + timeout_s
        # Not httpx's `json=`: it fails on the lone surrogates that models sometimes write.
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
            if self._secret and self._secret in message:
                raise TransientError(message.replace(self._secret, "***")) from None
            raise TransientError(message) from error
        return _content(
            response, data.replace(self._secret.encode(), b"***") if self._secret else data
        )

    def abort(self) -> None:
        """Ends every request in flight, from any thread; the server drops their answers."""
        with self._lock:
            for sock in self._sockets:
                # Closing would not wake a thread that waits for the socket; this does. Idle
                # connections die too: httpx notices and opens others.
                with contextlib.suppress(OSError):  # it has just been closed
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends every request in flight, and those to come."""
        self._closed = True
        self.abort()

    def _register(self, event: str, info: Mapping[str, Any]) -> None:
        """Remembers the sockets of new connections, while httpx has them, for `abort`."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            sock = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._sockets.add(sock)
            if self._closed:  # after `close` had looked through the sockets
                self.abort()


def bearer(variable: str, setting: str = "api_key_env") -> dict[str, str]:
    """Returns the header with the key that an environment variable holds, none for no variable.

    White space around the key, such as the end of a line that a file of secrets has, is no part of it.

    Raises:
        ValueError: there is no such variable, or no header can hold its value, which is not shown.
    """
    fields.check_no_secret(setting, variable=variable)
    if not variable:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(
            f"{setting}={variable!r}: there is no such variable in the environment: export "
            f"{variable}=KEY"
        )
    if not (key.isascii() and key.isprintable()):
        raise ValueError(
            f"{setting}={variable!r}: the value of this variable has characters that are not printable "
            f"ASCII, so it is no key: export {variable}=KEY again"
        )
    return {"Authorization": f"Bearer {key}"}


def retrying(
    tries: int,
    backoff_s: float,
    *,
    on_retry: Callable[[], Any] = lambda: None,
    ended: threading.Event | None = None,
) -> tenacity.Retrying:
    """Returns what calls a function until it raises no `TransientError`, or `tries` times.

    The last error passes. Pauses double from `backoff_s` to 30 s, less a random part of at most
    half, so that requests that failed together do not come back together; a server's own wish for
    a longer pause is granted.

    Args:
        tries: calls, the first included.
        backoff_s: the longest first pause.
        on_retry: is called before each pause.
        ended: when it is set pauses end, and no other try is made.
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
    """Yields a reply's bytes; one that trickles in for ever is a stall, as is one without end."""
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
        pause_s = float(wish) if wish.isdecimal() else 0.0  # a date is left to us
        raise TransientError(f"HTTP {status}: {_message(data)}", pause_s)
    if status >= 300:
        raise RefusedError(status, _message(data))
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        shown = data[:_SHOWN].decode(errors="replace")
        raise TransientError(f"a reply that is no JSON: {shown!r}") from error


def _message(data: bytes) -> str:
    """Returns the server's words about an error, or the start of what it sent, fit for a terminal."""
    said = data[:_SHOWN].decode(errors="replace")
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        said = str(json.loads(data)["error"]["message"])[:_SHOWN]
    return "".join(x if x.isprintable() else " " for x in said).strip()
