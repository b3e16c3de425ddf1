"""Everything that the steps of a run change, and when a run is over."""

import dataclasses
import math

import numpy as np

from vade_jax import samplers
from vade_jax.trainer.collect import StepData
from vade_jax.types import Feedback, Metrics, TrainState

Known = frozenset[str]  # questions of the validation that were once answered only right


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
    validated: int = 0  # the latest step whose policy was validated
    skipped_updates: int = 0  # steps that had nothing to learn from
    visits: int = 0  # items visited, in all rounds; variants of one item in a batch are one visit
    waiting: StepData | None = None  # the batch of the next step, with a lag

    @property
    def made(self) -> int:
        """The step that the last batch ever made is for."""
        return self.step + (self.waiting is not None)

    @property
    def rollouts_made(self) -> int:
        """Answers ever made, those of passes and of the batch that waits included."""
        return self.rollouts_total + (len(self.waiting.scored) if self.waiting else 0)

    def with_batch(self, data: StepData, posterior: samplers.State) -> "Progress":
        """Returns the progress with a batch that waits, and the posterior updated by it."""
        return dataclasses.replace(self, posterior=posterior, waiting=data)

    def measured(self, feedback: Feedback, posterior: samplers.State) -> "Progress":
        """Returns the progress after a pass over all items, which updated the posterior."""
        return dataclasses.replace(self._paid_for(feedback), posterior=posterior)

    def learned(self, state: TrainState, feedback: Feedback, *, is_updated: bool) -> "Progress":
        """Returns the progress after the next step has learned from the batch that waits."""
        step, index_M = self.step + 1, np.unique(feedback.index_M)
        visited_I = self.visited_I.copy()
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


def is_over(
    step: int, rollouts_total: int, *, num_steps: int, max_rollouts: int, next_pass: int = 0
) -> bool:
    """Returns whether a run ends after `step`, with `rollouts_total` answers paid for.

    It also ends before a pass over all items whose `next_pass` answers would use up the budget: no step could
    follow.
    """
    return step >= num_steps or 0 < max_rollouts <= rollouts_total + next_pass
