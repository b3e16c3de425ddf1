"""The state that the steps of a run change, and when a run measures, validates and ends."""

import dataclasses
import math

import numpy as np

from vade_jax import samplers, settings
from vade_jax.trainer.collect import StepData
from vade_jax.types import Feedback, Metrics, TrainState

Known = frozenset[str]  # questions of the validation that were once answered only right


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What is due after a number of steps.

    Attributes:
        num_steps: RL steps in all, including those already done.
        eval_every: steps between validations, of which the first is before any step; 0: one, at the end.
        max_rollouts: the budget of answers, including those of passes; 0: no budget. A step that has begun is
            completed, so its last rounds may exceed the budget; a pass that would exceed it does not begin.
        measure: passes over all items: how often, and how many answers to each.
        measures_first: whether there is a pass before the first step, whatever `measure` says.
        num_items: items of a pass.
    """

    num_steps: int
    eval_every: int = 0
    max_rollouts: int = 0
    measure: settings.Measure = settings.Measure()  # noqa: RUF009 (frozen)
    measures_first: bool = False
    num_items: int = 0

    def measures(self, step: int) -> bool:
        """Returns whether a pass over all items follows `step` steps."""
        every = self.measure.every
        return (every > 0 and step % every == 0) or (step == 0 and self.measures_first)

    def measured(self, step: int) -> int:
        """Returns the number of answers of all passes before `step`, which is at least 1."""
        every = self.measure.every
        number = 1 + (step - 1) // every if every else int(self.measures_first)
        return number * self.num_items * self.measure.num_rollouts

    def is_over(self, step: int, rollouts_total: int) -> bool:
        """Returns whether a run ends after `step`, with this many answers paid for.

        It also ends before a pass whose answers would use up the budget: no step could follow.
        """
        of_pass = self.measures(step) * self.num_items * self.measure.num_rollouts
        return step >= self.num_steps or 0 < self.max_rollouts <= rollouts_total + of_pass

    def validates(self, step: int, rollouts_total: int) -> bool:
        """Returns whether the policy is validated after `step`."""
        is_due = self.eval_every > 0 and step % self.eval_every == 0
        return is_due or self.is_over(step, rollouts_total)


@dataclasses.dataclass(frozen=True)
class Progress:
    """Everything that a step changes and a checkpoint holds."""

    state: TrainState
    posterior: samplers.State  # the selector's state, after the last batch that was made
    visited_I: np.ndarray  # int32, the step of the latest visit to each item, 0 before any
    step: int = 0  # RL steps done; also the version of the weights
    rollouts_total: int = 0
    tokens_total: int = 0
    known: Known = frozenset()
    validated: int = 0  # the latest validated step
    skipped_updates: int = 0  # steps that had nothing to learn from
    visits: int = 0  # items visited, in all rounds; variants of one item in a batch are one visit
    waiting: StepData | None = None  # the batch of the next step, if it is made already

    def measured(self, feedback: Feedback, posterior: samplers.State) -> "Progress":
        """Returns the progress after a pass over all items, which updated the posterior."""
        return dataclasses.replace(self._paid_for(feedback), posterior=posterior)

    def with_batch(self, batch: StepData, posterior: samplers.State) -> "Progress":
        """Returns the progress with a batch that waits, and the posterior updated by it."""
        return dataclasses.replace(self, posterior=posterior, waiting=batch)

    def learned(self, state: TrainState, *, is_updated: bool) -> "Progress":
        """Returns the progress after the next step has learned from the batch that waits."""
        assert self.waiting is not None
        feedback, step = self.waiting.feedback, self.step + 1
        index_M, visited_I = np.unique(feedback.index_M), self.visited_I.copy()
        visited_I[index_M] = step
        return dataclasses.replace(
            self._paid_for(feedback),
            state=state,
            step=step,
            visited_I=visited_I,
            visits=self.visits + len(index_M),
            skipped_updates=self.skipped_updates + (not is_updated),
            waiting=None,
        )

    def _paid_for(self, feedback: Feedback) -> "Progress":
        return dataclasses.replace(
            self,
            rollouts_total=self.rollouts_total + len(feedback.length_N),
            tokens_total=self.tokens_total + int(feedback.length_N.sum()),
        )

    def metrics(self) -> Metrics:
        """Returns the totals; after a step also the epochs, and how much of the last one was visited.

        An epoch is a visit to as many items as there are, in all rounds. `vade/coverage` is the share of the
        items visited in the steps of the last epoch.
        """
        totals = {
            "vade/rollouts_total": self.rollouts_total,
            "vade/tokens_total": self.tokens_total,
            "vade/unique_selected": int(np.count_nonzero(self.visited_I)),
            "vade/skipped_updates": self.skipped_updates,
        }
        if not self.step:
            return totals
        num_items = len(self.visited_I)
        steps_per_epoch = math.ceil(num_items * self.step / self.visits)
        # An item that was never visited has step 0.
        recent = np.count_nonzero(self.visited_I > max(0, self.step - steps_per_epoch))
        return totals | {
            "vade/epochs": self.visits / num_items,
            "vade/coverage": int(recent) / num_items,
        }
