"""Several vLLM servers as one: the least busy is asked; what fails is mended and asked again.

Every request runs in a thread of the caller. The first thread that sees a server fail mends it, while
the others go on at other servers or wait: the server is waited for or, if this run launched it,
started again, and it gets the newest weights. Answers count only if the server held those weights
from the request to the reply.
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
COUNTS = (
    "rollout/retries",  # requests of any kind that were made again
    "rollout/server_restarts",
    "rollout/resyncs",  # weights given again to a server that had lost them
    "rollout/discarded_answers",  # of other weights than those asked for
)


class _Health(enum.Enum):
    READY = "ready"
    DOWN = "down"  # a thread mends it
    LOST = "lost"  # it could not be mended; the next weights are offered to it again


@dataclasses.dataclass
class _Member:
    server: VllmClient
    health: _Health = _Health.READY
    outstanding: int = 0  # requests that it has now
    num_loads: int = 0  # how often it was given weights
    tag: str | None = None  # of the last weights it took
    why_lost: str = ""


class ServerPool:
    """Servers that hold the same weights; the arguments are those of `VllmServerEngine`.

    One lock, `_changed`, guards all that threads share. It is never held while a server is asked.
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
        """Gives every server new weights, also those that were lost and are back.

        `tag` is the name of these weights; no two loads share one.

        Raises:
            EngineFailure: no server took them.
        """
        with self._changed:
            self._directory, self._tag = directory, tag
        for member in self._members:  # no other thread is here: nothing is asked meanwhile
            if member.health is _Health.LOST and member.server.responds():
                member.health = _Health.READY
        self.refresh()

    def refresh(self) -> None:
        """Returns when every server that is not lost is awake and holds the newest weights.

        Raises:
            EngineFailure: none is left.
        """
        self._for_all_ready(self._mend)
        with self._changed:
            self._check_any_left()

    def sleep(self) -> None:
        """Sends every server to sleep.

        Raises:
            EngineFailure: one does not.
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
        """Returns `call(server)` of the least busy server, made with the newest weights.

        An error says that `what` was asked for. `size` answers were, and once `ended` is set nobody
        waits for them any more.

        Raises:
            EngineFailure: all tries failed, a server refused, or none is left.
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
            # Whatever went wrong: a server that is well is left as it is.
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
        """Returns the least busy server, and how often it has been given weights by now.

        If there is a choice, not the one that has just failed. While all that are left are being
        mended, it waits.
        """
        with self._changed:
            while not ended.is_set():
                ready = [m for m in self._members if m.health is _Health.READY]
                if ready:
                    # Counted by requests, not answers: prompts have about as many each.
                    member = min(ready, key=lambda m: (m is failed, m.outstanding))
                    member.outstanding += 1
                    return member, member.num_loads
                self._check_any_left()
                self._changed.wait()
        raise EngineFailure("the call was ended")

    def _check_fresh(self, member: _Member, num_loads: int, size: int) -> None:
        """Raises TransientError unless the server has held the newest weights all the while.

        The tag alone does not say so: a server may have restarted during the request, answered
        with its first weights and been given the newest by another thread before this check.
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

    # ------------------------------------------------------------------------- mending
    def _mend(self, member: _Member, ended: threading.Event | None = None) -> None:
        """Makes a server ready or lost, unless another thread is at it.

        Once `ended` is set it is left as it is, and the next call finds out.
        """
        ended = ended or threading.Event()  # never set
        with self._changed:
            if member.health is not _Health.READY:
                return  # `_borrow` makes this thread's next try wait, or go elsewhere
            member.health = _Health.DOWN  # from here on nobody borrows it
        health = _Health.LOST  # also if what follows raises something unforeseen
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
                self._changed.notify_all()  # all that wait in `_borrow`

    def _restore(self, member: _Member, ended: threading.Event) -> None:
        """Revives a server if it is dead, wakes it, and gives it the weights if it lacks them."""
        server = member.server
        if not server.responds():
            self._revive(server, ended)
        if self._sleep:
            server.wake()
        if server.weights_tag() == self._tag:
            return  # the fault was of one request
        if member.tag == self._tag:  # it had them, and has restarted since
            self._count("rollout/resyncs")
        with self._changed:
            member.num_loads += 1  # before: requests in flight see both weights
        server.load(self._directory, self._tag, self._timeout_s)
        member.tag = self._tag

    def _revive(self, server: VllmClient, ended: threading.Event) -> None:
        if ended.is_set():  # `abort` may be why it does not respond
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
        """Does `action` until it works, or `ended` is set.

        Raises:
            EngineFailure: it does not in all tries.
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
        """Ends every request in flight, and every wait of a call whose `ended` is set."""
        for member in self._members:
            member.server.abort()
        with self._changed:
            self._changed.notify_all()

    def counts(self) -> dict[str, int]:
        """Returns `COUNTS` since the last call, and the servers that are lost now."""
        with self._changed:
            counts = {name: self._counts[name] for name in COUNTS}
            self._counts.clear()
            lost = sum(member.health is _Health.LOST for member in self._members)
        return counts | {"rollout/servers_lost": lost}

    def close(self) -> None:
        """Ends requests, and stops the servers that this run launched."""
        self.abort()
        for member in self._members:
            if member.server.launched:
                member.server.launched.stop()

    def _count(self, name: str, number: int = 1) -> None:
        with self._changed:
            self._counts[name] += number
