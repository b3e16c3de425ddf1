"""One OpenAI-compatible server over HTTP: a request, its reply, and what an error means."""

import contextlib
import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

from vade_jax.rollout.vllm_client import Refused
from vade_jax.rollout.vllm_requests import Fault

_CONNECT_S = 10.0
_SHOWN = 300  # characters of a server's error
_AGAIN = (408, 409, 425, 429)  # and all from 500 on


class Busy(Fault):
    """An error that may pass. `seconds`: the server's wish for a pause, 0 for none."""

    def __init__(self, message: str, seconds: float):
        super().__init__(message)
        self.seconds = seconds


class Endpoint:
    """A model behind the chat API.

    Args:
        url: of the API, http://host:8000 (then /v1 is meant) or with its path, https://host/api/v1.
        model: the name it is served under.
        api_key: goes into the headers of requests and nowhere else; "" for none.
        timeout_s: the longest wait for a reply.

    Attributes:
        url: with its path.
        model: as given.

    Raises:
        ValueError: the URL is none.
    """

    def __init__(
        self, url: str, model: str, *, api_key: str = "", timeout_s: float = 300.0
    ):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"server {url!r} is no URL: write http://host:port")
        path = parts.path.rstrip("/") or "/v1"
        self.url = f"{parts.scheme}://{parts.netloc}{path}"
        self.model = model
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._open: set[socket.socket] = set()
        self._lock, self._aborted = threading.Lock(), False

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the raw reply to a chat; `text` reads it.

        Raises:
            Fault: no connection, no reply in time, an error inside the server, or a reply that is
                no chat completion: asking again may help.
            Refused: it will not answer this.
        """
        reply = self._exchange("POST", "/chat/completions", body)
        text(reply)
        return reply

    def check(self) -> None:
        """Asks one short question.

        Raises:
            ValueError: there is no such server, key or model; says which.
        """
        hello = [{"role": "user", "content": "Reply with the word yes."}]
        try:
            self.complete({"model": self.model, "messages": hello})
        except Fault as fault:
            raise ValueError(
                f"server {self.url} does not answer ({fault}): start it, or correct its URL"
            ) from fault
        except Refused as error:
            raise ValueError(f"server {self.url} {self._meaning(error)}") from error

    def abort(self) -> None:
        """Ends every request in flight, from any thread, and those to come."""
        with self._lock:
            self._aborted = True
            for sock in self._open:
                with contextlib.suppress(OSError):  # it has just ended
                    sock.shutdown(socket.SHUT_RDWR)

    def _meaning(self, error):
        """What the refusal of a short question means."""
        if error.status in (401, 403):
            given = "the API key" if "Authorization" in self._headers else "no API key"
            return f"does not accept {given} that it was sent ({error}): give another"
        if error.status != 404:
            return f"refuses a plain question ({error})"
        try:
            known = [card["id"] for card in self._exchange("GET", "/models")["data"]]
        except (Fault, Refused, KeyError, TypeError):
            return f"has no chat there ({error}): give the URL that ends in /v1"
        names = ", ".join(map(str, known[:20]))
        return f"serves {names}, not {self.model!r} ({error}): name one of them"

    # ------------------------------------------------------------------------- HTTP
    def _exchange(self, method, path, body=None):
        """Returns the JSON of a reply."""
        url = urllib.parse.urlsplit(self.url)
        secure = url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        end = time.monotonic() + self._timeout_s
        connection = kind(url.netloc, timeout=_CONNECT_S)
        try:
            connection.connect()
            with self._abortable(connection.sock):
                connection.sock.settimeout(self._timeout_s)
                data = None if body is None else json.dumps(body).encode()
                connection.request(method, url.path + path, data, self._headers)
                reply = connection.getresponse()
                return _content(reply, _read(reply, end))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Fault(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        finally:
            connection.close()

    @contextlib.contextmanager
    def _abortable(self, sock):
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("the work was ended")
            self._open.add(sock)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(sock)


def text(reply: Any) -> str:
    """Returns what a reply says, "" for nothing.

    Raises:
        Fault: it is no chat completion.
    """
    try:
        said = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        shown = json.dumps(reply)[:_SHOWN]
        raise Fault(f"a reply that is no chat completion: {shown}") from error
    if not isinstance(said, str | None):
        raise Fault(f"a reply whose content is no text: {json.dumps(said)[:_SHOWN]}")
    return said or ""


def finished(reply: Any) -> bool | None:
    """Returns whether what a reply says came to its end; None where it does not say."""
    reason = reply["choices"][0].get("finish_reason")
    return reason == "stop" if reason in ("stop", "length") else None


def num_tokens(reply: Any) -> int | None:
    """Returns how many tokens a reply says; None where it does not say."""
    usage = reply.get("usage")
    number = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return number if isinstance(number, int) else None


def _read(reply, end):
    """Returns all of a reply; one that trickles in for ever counts as a stall."""
    parts = []
    while part := reply.read1(1 << 16):
        parts.append(part)
        if time.monotonic() > end:
            raise TimeoutError("the reply does not end")
    return b"".join(parts)


def _content(reply, data):
    if reply.status in _AGAIN or reply.status >= 500:
        message = f"HTTP {reply.status}: {_message(data)}"
        raise Busy(message, _seconds(reply.getheader("Retry-After")))
    if reply.status >= 300:
        raise Refused(reply.status, _message(data))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        shown = data[:_SHOWN].decode(errors="replace")
        raise Fault(f"a reply that is no JSON: {shown!r}") from error


def _seconds(header):
    """What Retry-After says; a date is left to the backoff."""
    return float(header) if header and header.isdecimal() else 0.0


def _message(data):
    """The server's words about an error, or the start of what it sent."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(data)["error"]["message"])[:_SHOWN]
    return data[:_SHOWN].decode(errors="replace").strip()
