"""Asks a server many questions, a bounded number at a time, with retries and a memory of replies.

It serves bulk work outside training: benchmarks, verdicts on answers, other wordings of questions. Every
reply is saved on disk, so interrupted work continues where it stopped.
"""

import collections
import hashlib
import io
import json
import os
import pathlib
import threading
import urllib.parse
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeVar

from experiments.evals.settings import Server
from vade_jax import http
from vade_jax.http import RefusedError, TransientError

S = TypeVar("S")
T = TypeVar("T")
COUNTS = (
    "asked",  # questions that went to the server
    "remembered",  # questions with a saved reply
    "retries",  # requests made again
    "unanswered",  # questions without a reply in the end
)
_SHOWN = 300  # characters of a reply in an error
_LONGEST = 200  # characters of a data URL that is kept as it is


class Unanswered(Exception):  # noqa: N818 (says what happened)
    """A question has no reply: all tries failed, or the server refused it."""


class ServerLost(RuntimeError):  # noqa: N818 (says what happened)
    """The server no longer answers; the replies so far are saved."""


def connect(server: Server, memory: str | os.PathLike, *, asks: bool = True) -> "Chat":
    """Returns the `Chat` with a server that has replied to a first question.

    Without `asks` the first question is put before the first one that has no saved reply.

    Raises:
        ValueError: the variable of the key is not set, or the server, model or key is wrong.
    """
    chat = Chat(server, memory)
    if chat.replies.damaged:
        print(f"{chat.replies.damaged} replies of before cannot be read and are asked again")
    if asks:
        chat.check()
    else:
        chat.checks_later()
    return chat


class Chat:
    """Asks a server that speaks OpenAI's chat API, from any thread.

    Args:
        server: its settings. A URL without a path means /v1. Its fields override the caller's. The API key is
            only put into the headers of requests.
        memory: path of the saved replies; a question with a saved reply is not asked.
        backoff_s: the first pause before a retry (see `http.retrying`).

    Raises:
        ValueError: the URL is not valid, or the variable of the key is not set.
    """

    def __init__(self, server: Server, memory: str | os.PathLike, *, backoff_s: float = 1.0):
        headers = http.bearer(server.api_key_env, f"{server.path}api_key_env")
        url = server.url.rstrip("/")
        url += "" if urllib.parse.urlsplit(url).path else "/v1"
        self._http = http.Client(url, timeout_s=server.timeout_s, headers=headers, by_proxy=True)
        self._server, self._fields = server, server.request_fields()
        self.url, self.replies = url, Replies(memory)
        self._tries, self._backoff_s = server.retries + 1, backoff_s
        # Limits the requests in flight, including those that wait for their next try.
        self._slots = threading.Semaphore(server.concurrency)
        self._lock = threading.Lock()
        self._lock_of = collections.defaultdict(threading.Lock)  # by a question's key
        self._counts: collections.Counter[str] = collections.Counter()
        self._failed = 0  # questions without a reply in a row
        self._lost: str | None = None  # why no more questions are sent
        self._checks_later = False
        self._check_lock = threading.Lock()
        self._closed = threading.Event()

    # ------------------------------------------------------------------------- asking
    def ask(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        """Returns the text of what `reply` returns, "" if it has none."""
        return text(self.reply(messages, **fields))

    def reply(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Any:
        """Returns the raw reply, a chat completion.

        Args:
            messages: of the conversation, as the API has them.
            **fields: more of the request, such as temperature, max_tokens or seed. Two questions are
                one if all of this and the model's name are the same.

        Raises:
            Unanswered: this question gets no reply.
            ServerLost: no question gets a reply any more.
        """
        body = {"model": self._server.model, "messages": list(messages)} | fields | self._fields
        body = {name: value for name, value in body.items() if value is not None}
        key = request_key(body)
        with self._lock:
            lock = self._lock_of[key]
        # The same question from another thread waits here and then finds the reply.
        with lock:
            reply = self.replies.get(key)
            if reply is None:
                with self._slots:
                    reply = self._persist(body)
                self.replies.put(key, body, reply)
            else:
                self._count("remembered")
        return reply

    def map(self, function: Callable[[S], T], inputs: Iterable[S]) -> Generator[T]:
        """Yields `function(x)` in order, made in as many threads as requests may be in flight.

        If an error or the caller ends it early, requests in flight are cancelled.
        """
        with futures.ThreadPoolExecutor(self._server.concurrency) as threads:
            try:
                yield from threads.map(function, inputs)
            except BaseException:
                self.close()
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def counts(self) -> dict[str, int]:
        """Returns `COUNTS` so far."""
        with self._lock:
            return {name: self._counts[name] for name in COUNTS}

    def close(self) -> None:
        """Cancels requests in flight; afterwards nothing can be asked."""
        self._closed.set()
        self._http.close()

    # ------------------------------------------------------------------------- failures
    def _complete(self, body: Mapping[str, Any]) -> Any:
        """Returns the reply to one request; raises TransientError if it is not a chat completion."""
        reply = self._http.ask("POST", "/chat/completions", body)
        text(reply)
        return reply

    def _persist(self, body: Mapping[str, Any]) -> Any:
        """Returns the first good reply, within the allowed number of tries.

        After many unanswered questions in a row no more are sent. Refused questions do not count, because a
        server that refuses is alive.
        """
        self._check_open()
        self._check_if_due()
        self._count("asked")

        def attempt() -> Any:
            self._check_open()  # while this one paused, it may have ended
            return self._complete(body)

        retrying = http.retrying(
            self._tries,
            self._backoff_s,
            on_retry=lambda: self._count("retries"),
            ended=self._closed,
        )
        try:
            reply = retrying(attempt)
        except RefusedError as error:
            self._count("unanswered")
            if error.status in http.HOPELESS:
                with self._lock:
                    self._lost = self._lost or str(error)
            self._check_open()
            raise Unanswered(f"refused: {error}") from error
        except TransientError as error:
            self._check_open()
            self._count("unanswered")
            with self._lock:
                self._failed += 1
                if self._failed > 2 * self._server.concurrency and not self._lost:
                    self._lost = f"{self._failed} questions in a row failed: {error}"
            message = f"no reply in {self._tries} tries; the last: {error}"
            raise Unanswered(message) from error
        with self._lock:
            self._failed = 0
        return reply

    def _check_open(self) -> None:
        if self._lost:
            raise ServerLost(f"server {self.url} is given up: {self._lost}")
        if self._closed.is_set():
            raise ServerLost("the work was ended")

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    # ------------------------------------------------------------------------- a first word
    def check(self) -> None:
        """Asks one short question.

        Raises:
            ValueError: there is no such server, key or model; says which.
        """
        hello = [{"role": "user", "content": "Reply with the word yes."}]
        try:
            self._complete({"model": self._server.model, "messages": hello})
        except TransientError as error:
            raise ValueError(
                f"server {self.url} does not answer ({error}): start it, or correct its URL"
            ) from error
        except RefusedError as error:
            raise ValueError(f"server {self.url} {self._explain(error)}") from error

    def checks_later(self) -> None:
        """Makes the first question without a saved reply wait for `check`; ServerLost if that fails."""
        self._checks_later = True

    def _check_if_due(self) -> None:
        with self._check_lock:
            if self._checks_later:
                try:
                    self.check()
                except ValueError as error:
                    raise ServerLost(str(error)) from error
                self._checks_later = False

    def _explain(self, error: RefusedError) -> str:
        """Returns the likely reason why a short question is refused, and the fix."""
        if error.status in (401, 403):
            given = "the API key" if self._server.api_key_env else "no API key"
            return f"does not accept {given} that it was sent ({error}): give another"
        if error.status != 404:
            return f"refuses a plain question ({error})"
        try:
            known = [card["id"] for card in self._http.ask("GET", "/models")["data"]]
        except (TransientError, RefusedError, KeyError, TypeError):
            return f"has no chat there ({error}): give the URL that ends in /v1"
        names = ", ".join(map(str, known[:20]))
        return f"serves {names}, not {self._server.model!r} ({error}): name one of them"


# ------------------------------------------------------------------------------ what a reply says
def text(reply: Any) -> str:
    """Returns the text of a reply, "" if it has none.

    Raises:
        TransientError: it is no chat completion.
    """
    try:
        said = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        shown = json.dumps(reply)[:_SHOWN]
        raise TransientError(f"a reply that is no chat completion: {shown}") from error
    if not isinstance(said, str | None):
        raise TransientError(f"a reply whose content is no text: {json.dumps(said)[:_SHOWN]}")
    return said or ""


def finished(reply: Any) -> bool | None:
    """Returns whether a reply came to its end, False if it was cut; None if it does not say."""
    reason = reply["choices"][0].get("finish_reason")
    return reason == "stop" if reason in ("stop", "length") else None


def num_tokens(reply: Any) -> int | None:
    """Returns how many tokens a reply has; None if it does not say."""
    usage = reply.get("usage")
    number = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return number if isinstance(number, int) else None


# ------------------------------------------------------------------------------ memory
class Replies:
    """Raw replies in a file, one JSON line each: {"key", "request", "reply"}.

    A line is appended at once, so a process that is killed has lost at most the one it was writing.
    Images inside requests are replaced by their hash. Threads may share it.

    Attributes:
        damaged: lines that cannot be read; what they answered is asked again.
    """

    def __init__(self, path: str | os.PathLike):
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._lock = threading.Lock()
        self._place: dict[str, tuple[int, int]] = {}  # of each key's line: where, how long
        self.damaged = 0
        start, line = self._file.seek(0), b"\n"
        for line in self._file:
            try:
                row = json.loads(line)
                _, self._place[row["key"]] = row["reply"], (start, len(line))
            except (ValueError, KeyError, TypeError):
                self.damaged += 1
            start += len(line)
        if not line.endswith(b"\n"):  # cut off: what follows starts a new line
            self._file.write(b"\n")
            self._file.flush()

    def __len__(self) -> int:
        return len(self._place)

    def get(self, key: str) -> Any:
        """Returns the reply to the request of `key`, None if there is none."""
        if key not in self._place:
            return None
        start, size = self._place[key]
        return json.loads(os.pread(self._file.fileno(), size, start))["reply"]

    def put(self, key: str, request: Mapping[str, Any], reply: Any) -> None:
        """Appends a reply."""
        row = {"key": key, "request": _short(request), "reply": reply}
        line = json.dumps(row).encode() + b"\n"
        with self._lock:
            start = self._file.seek(0, io.SEEK_END)
            self._file.write(line)
            self._file.flush()
            self._place[key] = (start, len(line))


def request_key(request: Mapping[str, Any]) -> str:
    """Returns the hash of a request's content, whatever the order of its fields."""
    content = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _short(value: Any) -> Any:
    """Returns JSON data with the hash of every image instead of the image."""
    if isinstance(value, Mapping):
        return {name: _short(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_short(x) for x in value]
    if isinstance(value, str) and value.startswith("data:") and len(value) > _LONGEST:
        kind = value.partition(",")[0]
        return f"{kind},sha256={hashlib.sha256(value.encode()).hexdigest()}"
    return value
