"""Many questions to a server: a bounded number at a time, repeated when they fail, never asked twice.

For what is asked in bulk beside training: benchmarks, verdicts on answers, other wordings of
questions. Every reply is kept on disk, so work that was cut off continues where it was.
"""

import collections
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeVar

from vade_jax import http
from vade_jax.evals import replies
from vade_jax.evals.endpoint import Endpoint, text
from vade_jax.http import RefusedError, TransientError

S = TypeVar("S")
T = TypeVar("T")
COUNTS = (
    "asked",  # questions that went to the server
    "remembered",  # questions whose reply was there
    "retries",  # requests made again
    "unanswered",  # questions without a reply in the end
)
_HOPELESS = (401, 404)  # a wrong key or model: no other question will be answered


class Unanswered(Exception):  # noqa: N818 (says what happened)
    """One question has no reply: all tries failed, or the server refused it."""


class ServerLost(RuntimeError):  # noqa: N818 (says what happened)
    """No question gets a reply any more; the replies so far are kept."""


class Chat:
    """Asks a server, from any thread.

    Args:
        endpoint: the server.
        memory: replies so far; a question whose reply is there is not asked.
        fields: put into every request, and win over what the caller asks for; None takes a field
            out, such as {"max_tokens": None, "max_completion_tokens": 2048}.
        concurrency: requests in flight at once, those that wait for their next try included.
        retries: of each question, after its first try.
        backoff_s: the first pause before a retry (see `http.retrying`).

    Raises:
        ValueError: concurrency or retries are out of their range.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        memory: replies.Replies,
        *,
        fields: Mapping[str, Any] | None = None,
        concurrency: int = 16,
        retries: int = 5,
        backoff_s: float = 1.0,
    ):
        if concurrency < 1 or retries < 0:
            raise ValueError(
                f"concurrency={concurrency} must be at least 1, retries={retries} at least 0"
            )
        self._endpoint, self._memory = endpoint, memory
        self._fields = dict(fields or {})
        self._concurrency, self._tries = concurrency, retries + 1
        self._backoff_s = backoff_s
        self._slots = threading.Semaphore(concurrency)
        self._lock = threading.Lock()
        self._lock_of = collections.defaultdict(threading.Lock)  # by a question's key
        self._counts: collections.Counter[str] = collections.Counter()
        self._failed = 0  # questions without a reply in a row
        self._lost: str | None = None  # why the server is given up
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
            Unanswered: there is no reply to this question.
            ServerLost: nor to any other.
        """
        body = {"model": self._endpoint.model, "messages": list(messages)}
        body |= fields | self._fields
        body = {name: value for name, value in body.items() if value is not None}
        key = replies.key(body)
        with self._lock:
            lock = self._lock_of[key]
        # The same question in another thread waits here, and then finds the reply.
        with lock:
            reply = self._memory.get(key)
            if reply is None:
                with self._slots:
                    reply = self._persist(body)
                self._memory.put(key, body, reply)
            else:
                self._count("remembered")
        return reply

    def map(self, function: Callable[[S], T], inputs: Iterable[S]) -> Iterator[T]:
        """Yields `function(x)` in order, made in as many threads as requests may be in flight.

        When it is left early, by an error or by its caller, what is in flight is cut off.
        """
        with futures.ThreadPoolExecutor(self._concurrency) as threads:
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
        """Cuts off what is in flight; nothing can be asked any more."""
        self._closed.set()
        self._endpoint.close()

    # ------------------------------------------------------------------------- failures
    def _persist(self, body: Mapping[str, Any]) -> Any:
        """Returns the first good reply, in as many tries as it may take.

        After many questions in a row without one the server is given up. Questions that it refuses
        do not count: it is there.
        """
        self._check_open()
        self._count("asked")

        def attempt() -> Any:
            self._check_open()  # while this one paused, it may have ended
            return self._endpoint.complete(body)

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
            if error.status in _HOPELESS:
                with self._lock:
                    self._lost = self._lost or str(error)
            self._check_open()
            raise Unanswered(f"refused: {error}") from error
        except TransientError as error:
            self._check_open()
            self._count("unanswered")
            with self._lock:
                self._failed += 1
                if self._failed > 2 * self._concurrency and not self._lost:
                    self._lost = f"{self._failed} questions in a row failed: {error}"
            message = f"no reply in {self._tries} tries; the last: {error}"
            raise Unanswered(message) from error
        with self._lock:
            self._failed = 0
        return reply

    def _check_open(self) -> None:
        if self._lost:
            raise ServerLost(f"server {self._endpoint.url} is given up: {self._lost}")
        if self._closed.is_set():
            raise ServerLost("the work was ended")

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
