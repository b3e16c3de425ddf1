"""Makes several vLLM servers look like one: picks the least busy, retries, and repairs failed servers.

Every request runs in a thread of the caller. The first thread that sees a server fail repairs it, while
the other threads use other servers or wait. To repair a server, the thread waits until it is back or, if
this run launched it, restarts it; then the server gets the newest weights. Answers count only if the
server held the newest weights from the request to the reply.
"""

import collections
import dataclasses
import enum
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import TypeVar

from vade_jax import http
from vade_jax.http import RefusedError, TransientError
from vade_jax.rollout.engine import EngineFailure
from vade_jax.rollout.vllm.client import VllmClient

T = TypeVar("T")
S = TypeVar("S")
COUNTS = (
    "rollout/retries",  # of requests of any kind
    "rollout/server_restarts",
    "rollout/resyncs",  # loads of weights into a server that had lost them
    "rollout/discarded_answers",  # answers made with the wrong weights
)


class _Health(enum.Enum):
    READY = "ready"
    DOWN = "down"  # a thread is repairing it
    LOST = "lost"  # the repair failed; `load` tries the server again


@dataclasses.dataclass
class _Member:
    server: VllmClient
    health: _Health = _Health.READY
    outstanding: int = 0  # requests that it is working on
    num_loads: int = 0  # how many times it was given weights
    tag: str | None = None  # tag of the last weights that it loaded
    why_lost: str = ""


class ServerPool:
    """Servers that hold the same weights; the arguments are those of `VllmServerEngine`.

    One lock, `_changed`, guards all state that threads share. It is never held during a request.
    """

    def __init__(
        self,
        servers: Sequence[VllmClient],
        *,
        wait_s: float,
        timeout_s: float,
        max_retries: int,
        backoff_s: float,
        sleep: bool,
    ):
        self._members = [_Member(server) for server in servers]
        self._wait_s, self._timeout_s, self._sleep = wait_s, timeout_s, sleep
        self._tries, self._backoff_s = max_retries + 1, backoff_s
        self._directory = self._tag = ""  # of the newest weights
        self._counts: collections.Counter[str] = collections.Counter()
        self._changed = threading.Condition()

    # ------------------------------------------------------------------------- weights
    def load(self, directory: str, tag: str) -> None:
        """Gives every server new weights, including lost servers that answer again.

        `tag` names these weights; every load must have a new one.

        Raises:
            EngineFailure: no server loaded them.
        """
        with self._changed:
            self._directory, self._tag = directory, tag
        for member in self._members:  # without the lock: no requests are made during a load
            if member.health is _Health.LOST and member.server.responds():
                member.health = _Health.READY
        self.refresh()

    def refresh(self) -> None:
        """Makes every server that is not lost awake and loaded with the newest weights.

        Raises:
            EngineFailure: all servers are lost.
        """
        self._for_all_ready(self._mend)
        with self._changed:
            self._check_any_left()

    def sleep(self) -> None:
        """Puts every ready server to sleep.

        Raises:
            EngineFailure: a server failed to.
        """
        self._for_all_ready(lambda m: self._persist(m.server, m.server.sleep))

    def _for_all_ready(self, action: Callable[[_Member], None]) -> None:
        ready = [m for m in self._members if m.health is _Health.READY]
        with futures.ThreadPoolExecutor(max(1, len(ready))) as threads:
            for done in [threads.submit(action, member) for member in ready]:
                done.result()

    # ------------------------------------------------------------------------- answers
    def ask(
        self,
        call: Callable[[VllmClient], T],
        what: str,
        size: int,
        ended: threading.Event,
    ) -> T:
        """Returns `call(server)` from the least busy server, made with the newest weights.

        Args:
            call: makes the request.
            what: the subject of the request, for error messages.
            size: the number of answers that the request asks for, for the metrics.
            ended: once set, nobody needs the answers any more, and the call gives up.

        Raises:
            EngineFailure: all tries failed, a server refused the request, or all servers are lost.
        """
        member: _Member | None = None

        def attempt() -> T:
            nonlocal member
            member, num_loads = self._borrow(ended, member)
            try:
                result = call(member.server)
                self._check_fresh(member, num_loads, size)
                return result
            finally:
                with self._changed:
                    member.outstanding -= 1

        def mend():
            # After any failure: it leaves a healthy server with the newest weights unchanged.
            assert member is not None
            self._mend(member, ended)
            self._count("rollout/retries")

        try:
            return self._retrying(mend, ended)(attempt)
        except RefusedError as error:
            assert member is not None
            raise EngineFailure(f"{what}: {member.server} refuses: {error}") from error
        except TransientError as error:
            assert member is not None
            raise EngineFailure(
                f"{what}: no answer in {self._tries} tries; the last error of "
                f"{member.server}: {error}"
            ) from error

    def _borrow(self, ended: threading.Event, failed: _Member | None) -> tuple[_Member, int]:
        """Returns the least busy server, and how many times it was given weights so far.

        The server that has just failed comes last. The call waits while no server is ready and at least
        one is being repaired.
        """
        with self._changed:
            while not ended.is_set():
                ready = [m for m in self._members if m.health is _Health.READY]
                if ready:
                    # Requests are counted, not answers: most prompts ask for similar numbers of answers.
                    member = min(ready, key=lambda m: (m is failed, m.outstanding))
                    member.outstanding += 1
                    return member, member.num_loads
                self._check_any_left()
                self._changed.wait()
        raise EngineFailure("the call was ended")

    def _check_fresh(self, member: _Member, num_loads: int, size: int) -> None:
        """Raises TransientError unless the server held the newest weights during the whole request.

        The tag alone does not prove that. The server may have restarted during the request, answered
        with the checkpoint's weights, and got the newest ones from another thread before this check.
        """
        try:
            tag = member.server.weights_tag()
        except (TransientError, RefusedError) as error:
            tag = f"unknown ({error})"
        if (tag, member.num_loads) != (self._tag, num_loads):
            self._count("rollout/discarded_answers", size)
            raise TransientError(f"answers of weights {tag}, not of {self._tag}")

    def _check_any_left(self) -> None:
        if all(member.health is _Health.LOST for member in self._members):
            why = "; ".join(member.why_lost for member in self._members)
            raise EngineFailure(f"no vLLM server is left: {why}")

    # ------------------------------------------------------------------------- repairs
    def _mend(self, member: _Member, ended: threading.Event | None = None) -> None:
        """Repairs a ready server that may have failed; afterwards it is ready or lost.

        Does nothing if the server is not ready: then another thread repairs it, or it is lost already.
        If `ended` is set meanwhile, the repair stops and the server counts as ready; the next call finds
        out whether it is.
        """
        ended = ended or threading.Event()  # never set
        with self._changed:
            if member.health is not _Health.READY:
                return  # in this thread's next try, `_borrow` waits or picks another server
            member.health = _Health.DOWN  # from here on `_borrow` does not pick it
        health = _Health.LOST  # also after an unexpected exception
        try:
            self._persist(member.server, lambda: self._restore(member, ended), ended)
            health = _Health.READY
        except EngineFailure as error:
            if ended.is_set():
                health = _Health.READY
                return
            member.why_lost = str(error)
            logging.warning("a vLLM server is given up: %s", error)
        finally:
            with self._changed:
                member.health = health
                self._changed.notify_all()  # wakes the threads that wait in `_borrow`

    def _restore(self, member: _Member, ended: threading.Event) -> None:
        """Revives a server that does not respond, wakes it, and loads the newest weights if needed."""
        server = member.server
        if not server.responds():
            self._revive(server, ended)
        if self._sleep:
            server.wake()
        if server.weights_tag() == self._tag:
            return  # only one request failed
        if member.tag == self._tag:  # it had loaded them before, and has restarted since
            self._count("rollout/resyncs")
        with self._changed:
            # Counted before the load: requests that are in flight now may see old and new weights.
            member.num_loads += 1
        server.load(self._directory, self._tag, self._timeout_s)
        member.tag = self._tag

    def _revive(self, server: VllmClient, ended: threading.Event) -> None:
        if ended.is_set():  # then `abort` may be the reason why the server does not respond
            raise TransientError("the work was ended")
        if server.launched:
            self._count("rollout/server_restarts")
            logging.warning("%s does not answer: it is started again", server)
            server.launched.restart(ended)
            return
        logging.warning("%s does not answer: waiting %.0f s", server, self._wait_s)
        try:
            server.wait(self._wait_s, ended)
        except TransientError as error:
            raise EngineFailure(f"{server} did not come back: {error}") from error

    def _persist(
        self,
        server: VllmClient,
        action: Callable[[], None],
        ended: threading.Event | None = None,
    ) -> None:
        """Retries `action` until it succeeds.

        Raises:
            EngineFailure: all tries failed, or one failed and `ended` is set, or the server refused.
        """
        try:
            self._retrying(lambda: self._count("rollout/retries"), ended)(action)
        except RefusedError as error:
            raise EngineFailure(f"{server} refuses: {error}") from error
        except TransientError as error:
            message = f"{server}: {error}, in {self._tries} tries"
            raise EngineFailure(message) from error

    def _retrying(self, on_retry, ended=None):
        return http.retrying(self._tries, self._backoff_s, on_retry=on_retry, ended=ended)

    # ------------------------------------------------------------------------- the rest
    def abort(self) -> None:
        """Ends every request in flight, and wakes waiting calls so that they see their `ended`."""
        for member in self._members:
            member.server.abort()
        with self._changed:
            self._changed.notify_all()

    def counts(self) -> dict[str, int]:
        """Returns `COUNTS` since the last call, and the number of servers that are lost now."""
        with self._changed:
            counts = {name: self._counts[name] for name in COUNTS}
            self._counts.clear()
            lost = sum(member.health is _Health.LOST for member in self._members)
        return counts | {"rollout/servers_lost": lost}

    def close(self) -> None:
        """Ends all requests, and stops the servers that this run launched."""
        self.abort()
        for member in self._members:
            if member.server.launched:
                member.server.launched.stop()

    def _count(self, name: str, number: int = 1) -> None:
        with self._changed:
            self._counts[name] += number


def at_once(function: Callable[[S], T], inputs: Sequence[S], ended: threading.Event) -> list[T]:
    """Returns `function` of each input, each called in a thread of its own.

    The error that comes first is raised. It sets `ended`, as does Ctrl-C: the other calls should then return
    soon, because they are waited for.
    """
    with futures.ThreadPoolExecutor(len(inputs)) as threads:
        try:
            calls = [threads.submit(function, x) for x in inputs]
            done = futures.wait(calls, return_when=futures.FIRST_EXCEPTION).done
            for call in done:
                call.result()  # raises
        finally:
            ended.set()
    return [call.result() for call in calls]
