"""Everything that the steps of a run change, and when a run is over."""

import dataclasses
import math

import numpy as np

from vade_jax import samplers
from vade_jax.trainer.collect import StepData
from vade_jax.trainer.timing import Clock
from vade_jax.types import Feedback, Metrics, TrainState

Known = frozenset[str]  # questions of the validation that were once answered only right


@dataclasses.dataclass(frozen=True)
class Made:
    """A batch of rollouts for one step."""

    step: int  # that learns from it
    data: StepData
    clock: Clock  # of its making

    @property
    def num_answers(self) -> int:
        """The number of its answers, in all rounds."""
        return len(self.data.feedback.length_N)

    def metrics(self) -> Metrics:
        """Returns how many steps older its weights are than those that learn from it, by verl's name."""
        staleness = self.step - 1 - int(self.data.rollouts.params_version)
        return {"training/off_policy/trajectory_staleness/mean": staleness}


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
    # Visits to items beyond step x num_prompts. Rounds of refill add visits; variants of one item in a batch
    # are one visit, so this may be negative.
    extra_visits: int = 0
    queue: tuple[Made, ...] = ()  # batches that wait to be learned from, with a lag

    @property
    def made(self) -> int:
        """The step that the last batch ever made is for."""
        return self.step + len(self.queue)

    @property
    def rollouts_made(self) -> int:
        """Answers ever made, those of passes and of batches that wait included."""
        return self.rollouts_total + sum(one.num_answers for one in self.queue)

    def with_batch(self, one: Made, posterior: samplers.State) -> "Progress":
        """Returns the progress with one more batch that waits, and the posterior updated by it."""
        return dataclasses.replace(self, posterior=posterior, queue=(*self.queue, one))

    def without_batch(self) -> tuple[Made, "Progress"]:
        """Returns the batch that waits longest, and the progress without it."""
        return self.queue[0], dataclasses.replace(self, queue=self.queue[1:])

    def measured(self, feedback: Feedback, posterior: samplers.State) -> "Progress":
        """Returns the progress after a pass over all items."""
        return dataclasses.replace(self.paid_for(feedback), posterior=posterior)

    def paid_for(self, feedback: Feedback) -> "Progress":
        """Returns the progress with the answers of `feedback` added to its totals."""
        return dataclasses.replace(
            self,
            rollouts_total=self.rollouts_total + len(feedback.length_N),
            tokens_total=self.tokens_total + int(feedback.length_N.sum()),
        )

    def learned(
        self, state: TrainState, data: StepData, num_prompts: int, is_updated: bool
    ) -> "Progress":
        """Returns the progress after the next step, of `num_prompts` prompts, has learned from `data`."""
        step = self.step + 1
        visited_I = self.visited_I.copy()
        visited_I[data.feedback.index_M] = step
        num_visits = len(np.unique(data.feedback.index_M))
        return dataclasses.replace(
            self.paid_for(data.feedback),
            state=state,
            step=step,
            visited_I=visited_I,
            extra_visits=self.extra_visits + num_visits - num_prompts,
            skipped_updates=self.skipped_updates + (not is_updated),
        )

    def metrics(self) -> Metrics:
        """Returns the totals."""
        return {
            "vade/rollouts_total": self.rollouts_total,
            "vade/tokens_total": self.tokens_total,
            "vade/unique_selected": int(np.count_nonzero(self.visited_I)),
            "vade/skipped_updates": self.skipped_updates,
        }

    def coverage(self, num_prompts: int) -> Metrics:
        """Returns the epochs done, and the share of the items visited in the steps of the last epoch.

        An epoch is a visit to as many items as there are, in all rounds. Variants of an item in one batch are
        one visit.
        """
        num_items = len(self.visited_I)
        visits = self.step * num_prompts + self.extra_visits
        steps_per_epoch = math.ceil(num_items * self.step / visits)
        # An item that was never visited has step 0.
        recent = np.count_nonzero(self.visited_I > max(0, self.step - steps_per_epoch))
        return {"vade/epochs": visits / num_items, "vade/coverage": int(recent) / num_items}


def is_over(
    step: int, rollouts_total: int, *, num_steps: int, max_rollouts: int, next_pass: int = 0
) -> bool:
    """Returns whether a run ends after `step`, with `rollouts_total` answers paid for.

    It also ends before a pass over all items whose `next_pass` answers would use up the budget: no step could
    follow.
    """
    return step >= num_steps or 0 < max_rollouts <= rollouts_total + next_pass
