"""Asks a model behind a server many questions, and saves every reply.

It is for bulk work outside training: benchmarks, verdicts on answers, paraphrases. Replies are saved on disk
immediately, so interrupted work continues where it stopped.
"""

import collections
import hashlib
import json
import operator
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeVar

from experiments.evals import answers
from experiments.evals.settings import Server
from vade_jax import client

S = TypeVar("S")
T = TypeVar("T")
# Questions that went to the server, had a saved reply, and got no reply in the end
COUNTS = ("asked", "remembered", "unanswered")


class Unanswered(Exception):  # noqa: N818 (says what happened)
    """A question has no reply: all tries failed, or the server refused it."""


class ServerLost(RuntimeError):  # noqa: N818 (says what happened)
    """The server no longer answers; the replies so far are saved."""


class Chat:
    """Asks a server that speaks OpenAI's chat API, from any thread.

    Args:
        server: its settings. A URL without a path means /v1. Its fields override the caller's.
        memory: path of the saved replies; a question with a saved reply is not asked.

    Raises:
        ValueError: the URL is not valid, the variable of the key is not set, or a saved reply is damaged.
    """

    def __init__(self, server: Server, memory: str | os.PathLike):
        self._client = client.Client(
            client.chat_url(server.url),
            api_key_env=server.api_key_env,
            concurrency=server.concurrency,
            retries=server.retries,
            timeout_s=server.timeout_s,
        )
        self.server, self._fields = server, server.request_fields()
        self.replies = answers.Store(memory, operator.itemgetter("key", "reply"))
        self._lock, self._lock_of = threading.Lock(), collections.defaultdict(threading.Lock)
        self._counts: collections.Counter[str] = collections.Counter()
        self._failed = 0  # questions without a reply in a row
        self._lost = ""  # why no more questions are sent
        self._is_checked, self._checking = False, threading.Lock()

    def ask(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        """Returns the text of what `reply` returns, "" if it has none."""
        return client.text_of(self.reply(messages, **fields))

    def reply(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Any:
        """Returns the raw reply, a chat completion.

        Args:
            messages: of the conversation, as the API has them.
            **fields: more of the request, such as temperature, max_tokens or seed. Questions are identical if
                all of this and the model's name are.

        Raises:
            Unanswered: this question gets no reply.
            ServerLost: no question gets a reply any more.
        """
        body = {"model": self.server.model, "messages": list(messages)} | fields | self._fields
        body = {name: value for name, value in body.items() if value is not None}
        # Of the content, independent of the order of its fields
        content = json.dumps(body, sort_keys=True, separators=(",", ":"))
        key = hashlib.sha256(content.encode()).hexdigest()
        with self._lock:
            lock = self._lock_of[key]
        with lock:  # the same question from another thread waits here, and then has a saved reply
            if (reply := self.replies.get(key)) is not None:
                self._count("remembered")
                return reply
            reply = self._asked(body)
            self.replies.add([{"key": key, "reply": reply}])
        return reply

    def check(self) -> None:
        """Asks one short question, unless it was asked before; raises ValueError if it gets no reply."""
        hello = [{"role": "user", "content": "Reply with the word yes."}]
        with self._checking:
            if not self._is_checked:
                reply = self._sent({"model": self.server.model, "messages": hello})
                if isinstance(reply, client.Failure):
                    raise ValueError(
                        f"server {self._client.url} does not answer a plain question ({reply.why}): start "
                        f"it, or correct its URL, the model's name {self.server.model!r} or the API key"
                    )
                self._is_checked = True

    def map(self, function: Callable[[S], T], inputs: Iterable[S]) -> Generator[T]:
        """Yields `function(x)` in order, computed in one thread per request in flight.

        If an error or the caller ends it early, requests in flight are cancelled.
        """
        with futures.ThreadPoolExecutor(self.server.concurrency) as threads:
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
        self._lost = self._lost or "the work was ended"
        self._client.close()

    def _sent(self, body: Mapping[str, Any]) -> Any:
        """Returns the reply to a request, or a `client.Failure`."""
        try:
            return self._client.submit("/chat/completions", body, _checked).result()
        except futures.CancelledError:
            return client.Failure("the work was ended")

    def _asked(self, body: Mapping[str, Any]) -> Any:
        """Returns the reply to a question.

        After many consecutive questions without a reply no more are sent. Refused ones do not count, because
        a server that refuses is alive.
        """
        self._check_open()
        try:
            self.check()
        except ValueError as error:
            raise ServerLost(str(error)) from error
        self._count("asked")
        reply = self._sent(body)
        is_failure = isinstance(reply, client.Failure)
        with self._lock:
            self._failed = self._failed + 1 if is_failure and not reply.status else 0
            if is_failure and reply.is_final:
                self._lost = self._lost or reply.why
            elif self._failed > 2 * self.server.concurrency:
                self._lost = self._lost or f"{self._failed} questions in a row failed: {reply.why}"
        if is_failure:
            self._count("unanswered")
            self._check_open()
            raise Unanswered(reply.why)
        return reply

    def _check_open(self) -> None:
        if self._lost:
            raise ServerLost(f"server {self._client.url} is given up: {self._lost}")

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


def _checked(reply: Any) -> Any:
    """Returns a reply that is a chat completion; raises otherwise."""
    client.text_of(reply)
    return reply
