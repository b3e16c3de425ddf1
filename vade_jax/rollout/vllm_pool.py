"""Several vLLM servers as one: the least busy is asked; what fails is mended and asked again.

A server is mended by one thread while the others go on elsewhere: it is waited for or, if this run
launched it, started again, and it gets the newest weights. Answers count only if the server held
those weights all the while.
"""

import collections
import dataclasses
import enum
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import NamedTuple, TypeVar

from vade_jax.rollout.engine import EngineFailure
from vade_jax.rollout.vllm_client import Refused, Server
from vade_jax.rollout.vllm_requests import Fault

T = TypeVar("T")
Give = Callable[[Server, str], None]
COUNTS = (
    "rollout/retries",  # requests of any kind that were made again
    "rollout/server_restarts",
    "rollout/resyncs",  # weights given again to a server that had lost them
    "rollout/discarded_answers",  # of other weights than those asked for
)
_LONGEST_PAUSE = 30.0  # seconds between two tries


class _State(enum.Enum):
    READY = "ready"
    DOWN = "down"  # a thread mends it
    LOST = "lost"  # it could not be mended; the next weights are offered to it again


@dataclasses.dataclass
class _Member:
    server: Server
    state: _State = _State.READY
    outstanding: int = 0
    loads: int = 0
    tag: str | None = None  # of the last weights it took
    why: str = ""  # it was lost


class _Lease(NamedTuple):
    """A member, and how often it had taken weights when it was asked."""

    member: _Member
    loads: int


class Pool:
    """Servers that hold the same weights.

    Args:
        servers: at least one.
        timeout_s: the longest wait for answers, and for new weights.
        wait_s: the longest wait for a given URL that is down.
        max_retries: of each request, after its first try.
        backoff_s: the first pause between two tries; each is twice as long.
        sleep: wake servers before they are used.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        timeout_s: float,
        wait_s: float,
        max_retries: int,
        backoff_s: float,
        sleep: bool,
    ):
        self._members = [_Member(server) for server in servers]
        self._timeout_s, self._wait_s = timeout_s, wait_s
        self._tries, self._backoff_s = max_retries + 1, backoff_s
        self._sleep = sleep
        self._give, self._tag = None, ""
        self._counts: collections.Counter[str] = collections.Counter()
        self._changed = threading.Condition()

    # ------------------------------------------------------------------------- weights
    def load(self, give: Give, tag: str) -> None:
        """Gives every server new weights, also those that were lost and are back.

        Args:
            give: gives them to one server under a name, also again; raises Fault for what may
                be tried again.
            tag: the name.

        Raises:
            EngineFailure: no server took them.
        """
        with self._changed:
            self._give, self._tag = give, tag
            for member in self._members:
                if member.state is _State.LOST and member.server.responds():
                    member.state = _State.READY
        self.refresh()

    def refresh(self) -> None:
        """Returns when every server that is not lost is awake and holds the newest weights.

        Raises:
            EngineFailure: none is left.
        """
        self._each(self._mend)
        with self._changed:
            self._check_any_left()

    def sleep(self) -> None:
        """Sends every server to sleep.

        Raises:
            EngineFailure: one does not.
        """
        self._each(lambda member: self._persist(member.server, member.server.sleep))

    def _each(self, action):
        ready = [m for m in self._members if m.state is _State.READY]
        with futures.ThreadPoolExecutor(max(1, len(ready))) as threads:
            for done in [threads.submit(action, member) for member in ready]:
                done.result()

    # ------------------------------------------------------------------------- answers
    def ask(
        self, call: Callable[[Server], T], what: str, size: int, stop: threading.Event
    ) -> T:
        """Returns `call(server)` of the least busy server, made with the newest weights.

        Args:
            call: raises Fault for what may be tried again.
            what: is asked for, in an error's words.
            size: answers it makes.
            stop: set when nobody waits for it any more.

        Raises:
            EngineFailure: all tries failed, a server refused, or none is left.
        """
        lease = None
        for attempt in range(self._tries):
            lease = self._borrow(stop, lease)
            server = lease.member.server
            try:
                result = call(server)
                self._check_fresh(lease, size)
                return result
            except Refused as error:
                raise EngineFailure(f"{what}: {server} refuses: {error}") from error
            except Fault as fault:
                last = fault
            finally:
                self._give_back(lease)
            if not stop.is_set() and attempt + 1 < self._tries:
                self._mend(lease.member)
                self._count("rollout/retries")
                stop.wait(self._pause(attempt))
        raise EngineFailure(
            f"{what}: no answer in {self._tries} tries; the last error of {server}: {last}"
        )

    def _borrow(self, stop, failed=None):
        """Returns the least busy member, another than the one that has just failed."""
        order = lambda m: (bool(failed) and m is failed.member, m.outstanding)
        with self._changed:
            while not stop.is_set():
                ready = [m for m in self._members if m.state is _State.READY]
                if ready:
                    member = min(ready, key=order)
                    member.outstanding += 1
                    return _Lease(member, member.loads)
                self._check_any_left()
                self._changed.wait()
        raise EngineFailure("the call was ended")

    def _give_back(self, lease):
        with self._changed:
            lease.member.outstanding -= 1

    def _check_fresh(self, lease, size):
        """Raises Fault unless the server has held the newest weights since it was asked."""
        try:
            tag = lease.member.server.tag()
        except (Fault, Refused) as error:
            tag = f"unknown ({error})"
        if (tag, lease.member.loads) != (self._tag, lease.loads):
            self._count("rollout/discarded_answers", size)
            raise Fault(f"answers of weights {tag}, not of {self._tag}")

    def _check_any_left(self):
        if all(member.state is _State.LOST for member in self._members):
            why = "; ".join(member.why for member in self._members)
            raise EngineFailure(f"no vLLM server is left: {why}")

    # ------------------------------------------------------------------------- mending
    def _mend(self, member):
        """Makes a member ready or lost, unless another thread is at it."""
        with self._changed:
            if member.state is not _State.READY:
                return
            member.state = _State.DOWN
        state = _State.LOST
        try:
            self._persist(member.server, lambda: self._restore(member))
            state = _State.READY
        except EngineFailure as error:
            member.why = str(error)
            logging.warning("a vLLM server is given up: %s", error)
        finally:
            with self._changed:
                member.state = state
                self._changed.notify_all()

    def _restore(self, member):
        server = member.server
        if not server.responds():
            self._revive(server)
        if self._sleep:
            server.wake()
        if server.tag() == self._tag:
            return
        if member.tag == self._tag:
            self._count("rollout/resyncs")
        with self._changed:
            member.loads += 1
        self._give(server, self._tag)
        member.tag = self._tag

    def _revive(self, server):
        if server.launched:
            self._count("rollout/server_restarts")
            logging.warning("%s does not answer: it is started again", server)
            server.launched.restart()
            return
        logging.warning("%s does not answer: waiting %.0f s", server, self._wait_s)
        try:
            server.wait(self._wait_s)
        except Fault as error:
            raise EngineFailure(f"{server} did not come back: {error}") from error

    def _persist(self, server, action):
        """Does `action` until it works.

        Raises:
            EngineFailure: it does not in all tries.
        """
        for attempt in range(self._tries):
            try:
                return action()
            except Refused as error:
                raise EngineFailure(f"{server} refuses: {error}") from error
            except Fault as fault:
                last = fault
            if attempt + 1 < self._tries:
                self._count("rollout/retries")
                time.sleep(self._pause(attempt))
        raise EngineFailure(f"{server}: {last}, in {self._tries} tries")

    def _pause(self, attempt):
        return min(self._backoff_s * 2**attempt, _LONGEST_PAUSE)

    # ------------------------------------------------------------------------- the rest
    def abort(self) -> None:
        """Ends every request in flight, and every wait of a call whose `stop` is set."""
        for member in self._members:
            member.server.abort()
        with self._changed:
            self._changed.notify_all()

    def counts(self) -> dict[str, int]:
        """Returns `COUNTS` since the last call, and the servers that are lost now."""
        with self._changed:
            counts = {name: self._counts[name] for name in COUNTS}
            self._counts.clear()
            lost = sum(member.state is _State.LOST for member in self._members)
        return counts | {"rollout/servers_lost": lost}

    def close(self) -> None:
        """Ends requests, and stops the servers that this run launched."""
        self.abort()
        for member in self._members:
            if member.server.launched:
                member.server.launched.stop()

    def _count(self, name, number=1):
        with self._changed:
            self._counts[name] += number
