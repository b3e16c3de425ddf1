"""Code that the plug-ins share: a selector for another trainer's rows, and its choices one at a time."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import samplers
from vade_jax.selector import Selector

LACKS = ("uneven", "weights")  # what other trainers cannot give a selector
TRIES = 4  # selections of a batch before a larger one is made to get free ids
PATIENCE = 64  # batches without any reward after which the run stops


def make_selector(
    ids: Sequence[Any],
    name: str,
    *,
    seed: int,
    num_rollouts: int,
    options: Mapping[str, Any] | None = None,
    by_step: bool = True,
) -> Selector:
    """Returns a selector for a trainer that rolls out `num_rollouts` answers to each row.

    Args:
        ids: the id of every row, the same in every run.
        name: name of the selector, a key of `samplers.SAMPLERS` or a user's own (path/to/file.py:NAME).
        seed: seed of the draws, unless `options` has one.
        num_rollouts: answers to each row.
        options: further arguments of `Selector`, such as `decay_rest` or `arrays`.
        by_step: whether the trainer observes the groups of each step all together.

    Raises:
        ValueError: as `Selector`, or the selector cannot work here.
    """
    arguments: dict[str, Any] = {"seed": seed, **(options or {})}
    selector = Selector(ids, name, num_rollouts=num_rollouts, **arguments)
    # Another trainer only asks for rows. If groups come back one by one, selectors cannot work that take
    # their number as the batch size, or that need passes over all items.
    arrays = arguments.get("arrays", ())
    samplers.require(name, selector.needs, arrays=arrays, passes=not by_step, lacks=LACKS)
    return selector


class Stream:
    """The ids that a selector chooses, one at a time, while groups of earlier ones are still out.

    The selector proposes `num_prompts` ids at once, and `next` returns them one by one. An id that is out is
    not proposed again before the selector has learned from its group.

    Groups come back one at a time, in any order. To a selector each observation is a step, in which all
    other items decay. So the answers to `num_prompts` ids are observed together, and the rest of a proposal
    is then replaced by a new one. Fewer are observed when nothing is out and the proposal is used up, or when
    every id is out or waits to be learned from.

    A group may never come back. Its id counts as lost after `lost_after` further proposals, the oldest ids
    also earlier if no other id is left. A lost id may be chosen again. If its group does come back, it is
    counted, and the id is no longer out, even if it was chosen again.

    Ids that are out when the state is saved come first after it is loaded, since their answers are lost.
    Groups that came back are part of the state and learned from once. Any thread may call any method.

    Args:
        selector: chooses the ids.
        num_prompts: ids to propose, and to learn from, at once: about the groups of a training step.
        lost_after: above the proposals whose groups may be out at the same time.
    """

    def __init__(self, selector: Selector, num_prompts: int, lost_after: float = 16):
        self.selector = selector
        self.num_prompts, self._lost_after = num_prompts, lost_after
        self.out: dict[Any, int] = {}  # returned ids, oldest first -> the latest batch at that time
        self._queue: list[Any] = []  # proposed, not yet returned
        self._answers: list[
            tuple[Any, float]
        ] = []  # not learned from yet: the id, and whether right
        self._batches, self._heard, self._lost = 0, 0, 0
        self._metrics: dict[str, float] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Any:
        """Returns the next id; RuntimeError if no group has come back for 64 proposals."""
        with self._lock:
            if not self._queue:
                self._give_up()
                if len(self._taken()) == self.selector.num_items:
                    self._learn(least=1)
                self._queue = self._choose()
                self._batches += 1
            name = self._queue.pop(0)
            self.out[name] = self._batches
            return name

    def answer(self, name: Any, right_N: Sequence[float] | np.ndarray) -> None:
        """Takes the verdicts on the answers to an id, as `selector.right_answers` gives them."""
        with self._lock:
            self._heard = self._batches
            self.out.pop(name, None)
            # A group without verdicts is also an observation: "uniform" counts it as a visit.
            self._answers += [(name, float(right)) for right in right_N] or [(name, np.nan)]
            self._learn(least=self.num_prompts)
            if not self.out and not self._queue:
                self._learn(least=1)

    def state_dict(self) -> dict[str, Any]:
        """Returns the selector's state, the ids proposed and out, and the answers not learned from."""
        with self._lock:
            return {
                "selector": self.selector.state_dict(),
                "queue": list(self._queue),
                "out": list(self.out),
                "answers": list(self._answers),
            }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned; the ids that were out come first."""
        with self._lock:
            self.selector.load_state_dict(saved["selector"])
            self._queue = [*saved["out"], *saved["queue"]]
            self.out, self._answers = {}, [(name, right) for name, right in saved["answers"]]
            self._batches, self._heard, self._lost, self._metrics = 0, 0, 0, {}

    def metrics(self) -> dict[str, float]:
        """Returns ids out and given up, and the share of mixed groups in the latest observation."""
        return {"in_flight": float(len(self.out)), "lost": float(self._lost), **self._metrics}

    def _learn(self, *, least: int) -> None:
        """Tells the selector the answers to `num_prompts` ids at a time, while there are `least` ids."""
        while len(names := dict.fromkeys(name for name, _ in self._answers)) >= least:
            step = set(list(names)[: self.num_prompts])
            names_N, right_N = zip(*(x for x in self._answers if x[0] in step), strict=True)
            mixed = self.selector.observe(names_N, rewards=right_N, threshold=np.asarray)
            self._answers = [x for x in self._answers if x[0] not in step]
            self._metrics = {"effective_ratio_correct": mixed}
            self._queue = []

    def _give_up(self) -> None:
        """Marks ids that are out for too long as lost, or the oldest ones if all are out."""
        if self._batches - self._heard == PATIENCE:
            raise RuntimeError(
                f"{PATIENCE} batches were chosen and no reward came back: is the plug-in set up as docs/plugins.md "
                "says?"
            )
        latest = self._batches - self._lost_after
        old = [name for name, batch in self.out.items() if batch <= latest]
        if not old and len(self.out) == self.selector.num_items:
            old = list(self.out)[: self.num_prompts]
        self._lost += len(old)
        for name in old:
            del self.out[name]

    def _taken(self) -> set[Any]:
        """Returns the ids that are out, and those whose answers were not learned yet."""
        return {*self.out, *(name for name, _ in self._answers)}

    def _choose(self) -> list[Any]:
        """Returns ids that are not taken: `num_prompts` if there are so many, at least one."""
        taken, num_items = self._taken(), self.selector.num_items
        size = min(self.num_prompts, num_items - len(taken))
        free: dict[Any, None] = {}
        for attempt in range(TRIES + 1):
            # The last, larger selection has enough ids, but not in order of their scores. Its size is a
            # multiple of the batch's, because every new size compiles.
            times = 1 + (len(taken) // self.num_prompts + 1) * (attempt == TRIES)
            chosen = self.selector.select(min(times * self.num_prompts, num_items))
            free |= dict.fromkeys(name for name in chosen if name not in taken)
            if len(free) >= size:
                break
        return list(free)[:size]
