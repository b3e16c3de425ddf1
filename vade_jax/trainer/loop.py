"""Algorithm 1 of VADE (arXiv 2511.18902): the only training loop.

The loop is given its parts and knows no selector, model or engine by name. The random keys of a step depend
only on the run's key and the step's number (`rng`), so a resumed run repeats what an uninterrupted run would
have done. Two things overlap with others: answers are scored while the engine makes more of them, and the
next step's prompts are chosen while the policy learns. With a lag, whole batches are made meanwhile
(`producer`); the batches that wait are part of the progress.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import jax
import numpy as np

from vade_jax import rng, samplers
from vade_jax.data.columns import RejectedItem
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import EngineFailure
from vade_jax.trainer import hardware, processes, rounds, scoring
from vade_jax.trainer.producer import Made, Producer, Stock
from vade_jax.trainer.rounds import BatchNotFilled, StepData
from vade_jax.trainer.timing import Clock
from vade_jax.trainer.validation import Known, Validate
from vade_jax.types import Feedback, Metrics, Params, Prompt, Rollouts, TrainState

Learn = Callable[[TrainState, Sequence[Prompt], Rollouts, np.ndarray], tuple[TrainState, Metrics]]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Everything that a step changes and a checkpoint holds."""

    state: TrainState
    posterior: samplers.State  # the selector's state, after the last batch that was made
    visited_I: np.ndarray  # int32, the step of the latest visit to each item, 0 before any
    step: int = 0  # RL steps done; also the version of the weights
    rollouts_total: int = 0
    tokens_total: int = 0
    known: Known = frozenset()  # questions of the validation that were once answered only right
    validated: int = 0  # the latest step whose policy was validated
    skipped_updates: int = 0  # steps that had nothing to learn from
    # Visits to items beyond step x num_prompts. Rounds of refill add visits; variants of one item in a batch
    # are one visit, so this may be negative.
    extra_visits: int = 0
    queue: tuple[Made, ...] = ()  # batches that wait to be learned from, with a lag

    @property
    def stock(self) -> Stock:
        """What the producer goes on from."""
        total = self.rollouts_total + sum(one.num_answers for one in self.queue)
        return Stock(self.posterior, self.queue, self.step + len(self.queue), total)

    def stocked(self, stock: Stock) -> "Progress":
        """Returns the progress with what the producer has made."""
        return dataclasses.replace(self, posterior=stock.posterior, queue=stock.queue)

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

    def after(
        self,
        step: int,
        data: StepData,
        state: TrainState,
        *,
        num_prompts: int,
        is_updated: bool,
    ) -> "Progress":
        """Returns the progress after a step of `num_prompts` prompts has learned from `data`."""
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


def is_over(
    step: int, rollouts_total: int, *, num_steps: int, max_rollouts: int, next_pass: int = 0
) -> bool:
    """Returns whether a run ends after `step`, with `rollouts_total` answers paid for.

    It also ends before a pass over all items whose `next_pass` answers would use up the budget: no step could
    follow.
    """
    return step >= num_steps or 0 < max_rollouts <= rollouts_total + next_pass


class Recorder(Protocol):
    """Writes down what a run does."""

    def step(self, step: int, metrics: Metrics, data: StepData | None) -> None:
        """Records the metrics of a step and its answers."""

    def add(self, step: int, metrics: Metrics) -> None:
        """Adds metrics to the latest step, which is already recorded."""

    def save(self, progress: Progress, *, last: bool) -> None:
        """Saves the progress after a step if a checkpoint is due; `last`: the run ends here, so always."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a policy, step after step.

    The selector's state is called the posterior here, as VADE's is; that of a baseline may be a counter.

    Attributes:
        producer: chooses prompts, and makes and rewards the answers.
        learn: improves the policy on a batch of rollouts; no metrics: it left the policy as it was.
        validate: measures the policy.
        recorder: takes metrics, rollouts and checkpoints.
        num_steps: RL steps in all, including those already done.
        eval_every: steps between validations, of which the first is before any step; 0: one, at the end.
            One that failed is made up when the run resumes.
        max_rollouts: the budget of answers, including those of passes; 0: no budget. A step that has begun
            is finished, so its last rounds may exceed the budget; a pass that would exceed it does not begin.
        weights: all parameters of a state, which the engine gets.
    """

    producer: Producer
    learn: Learn
    validate: Validate
    recorder: Recorder
    num_steps: int
    eval_every: int
    max_rollouts: int = 0
    weights: Callable[[TrainState], Params] = lambda state: state.params

    def run(self, progress: Progress, stop: Callable[[], bool] = lambda: False) -> Progress:
        """Trains until the run `is_over` or `stop()` is true, and saves the latest step before it returns.

        A step without a group to learn from leaves policy and optimizer unchanged, and is counted.

        Args:
            progress: where the run starts or goes on.
            stop: asked after each step, and between the batches of a pass over all items.

        Raises:
            NotFinite: a number is NaN or infinite; the message names it and the step, which is not saved.
            EngineFailure: the engine makes no more answers; all steps taken are saved. A pass before a step
                that was not taken is not: a resumed run makes it again.
            RewardFailure: a reward function failed; all steps taken are saved.
            BatchNotFilled: a step kept too few groups and the settings say to stop; all steps are saved.
            OSError, RejectedItem: an item can no longer be read; all steps are saved if one process runs.
        """
        producer, recorder = self.producer, self.recorder
        with producer:
            progress = self._begin(progress)
            ends, clock = self._is_over(progress) or stop(), Clock()
            while not ends:
                step = progress.step + 1
                with _saved_on_failure(recorder, progress):
                    # Warm-up of Algorithm 1: answers to every item, for the posterior alone.
                    if producer.pass_is_due(step):
                        with clock("measure"):
                            measured = producer.roll_out_all(progress.posterior, step, stop)
                        if measured is None:  # stopped: a resumed run begins the pass again
                            if progress.step:
                                recorder.save(progress, last=True)
                            break
                        progress = progress.measured(*measured)

                    # Choose the B items with the greatest I(p), p ~ Beta (Eq. 4), generate the answers, score
                    # them, compare each with its group (Eq. 2), and update the posterior (Eq. 5, 6).
                    made, stock = producer.supply(progress.stock, step, self._may_make).take()
                progress, data = progress.stocked(stock), made.data
                clock.add(made.clock)

                # Update the policy with GRPO or GSPO. The next prompts are chosen meanwhile, and with a lag
                # answered.
                producer.begin(stock, step, self._may_make)
                state, losses = self._update(step, progress.state, data, clock)
                progress = progress.after(
                    step, data, state, num_prompts=producer.num_prompts, is_updated=bool(losses)
                )
                metrics = self._metrics(progress, made, losses)

                # The engine gets the new weights; the step is recorded and saved.
                progress = self._conclude(progress, stock, data, metrics, clock)
                # Asked once, so that what ends the loop is also what was saved.
                ends = self._is_over(progress) or stop()
                clock = Clock()  # of the next step, which waits until this one is saved
                with clock("save_checkpoint"):
                    recorder.save(progress, last=ends)
        return progress

    def _begin(self, progress: Progress) -> Progress:
        """Gives the engine its weights, and validates the policy before the first step, if that is due.

        A validation that failed when the latest step was taken is made up.
        """
        producer, recorder, step = self.producer, self.recorder, progress.step
        if self._may_make(progress.stock):
            producer.start(progress.posterior, progress.stock.made + 1)
        producer.engine.sync(self.weights(progress.state), step)
        is_due = self._validation_is_due(progress)
        if step == 0:
            metrics: Metrics = {}
            if is_due:
                key = rng.untrained_validation_key(producer.key)
                metrics, progress = self._validated(progress, key)
            recorder.step(0, metrics | producer.metrics() | progress.metrics(), None)
        elif is_due and progress.validated < step:
            # The engine failed during this validation, so the step was saved without it.
            key = rng.step_keys(producer.key, step).validation
            metrics, progress = self._validated(progress, key)
            recorder.add(step, metrics)
        return progress

    # -------------------------------------------------------------------------- when
    def _is_last(self, step: int, rollouts_total: int) -> bool:
        return is_over(
            step,
            rollouts_total,
            num_steps=self.num_steps,
            max_rollouts=self.max_rollouts,
            next_pass=self.producer.passes.cost(step),
        )

    def _is_over(self, progress: Progress) -> bool:
        return self._is_last(progress.step, progress.rollouts_total)

    def _may_make(self, stock: Stock) -> bool:
        return not self._is_last(stock.made, stock.rollouts_total)

    def _validation_is_due(self, progress: Progress) -> bool:
        every = self.eval_every > 0 and progress.step % self.eval_every == 0
        return every or self._is_over(progress)

    # -------------------------------------------------------------------------- parts of a step
    def _validated(self, progress: Progress, key: jax.Array) -> tuple[Metrics, Progress]:
        """Validates the policy of the latest step; returns the metrics and the progress."""
        metrics, known = self.validate(self.producer.engine, key, progress.step, progress.known)
        return metrics, dataclasses.replace(progress, known=known, validated=progress.step)

    def _update(
        self, step: int, state: TrainState, data: StepData, clock: Clock
    ) -> tuple[TrainState, Metrics]:
        """Returns the state after the policy has learned from a batch, and the metrics of learning."""
        losses: Metrics = {}
        if len(data.learned_M) > 0:
            with clock("update_actor"):
                state, losses = self.learn(state, *data.batch())
        try:
            scoring.check_losses(f"step {step}", losses)
        except scoring.NotFinite:
            # So that people can look at its answers.
            metrics = losses | rounds.metrics(data, self.producer.num_prompts)
            self.recorder.step(step, metrics, data)
            raise
        return state, losses

    def _metrics(self, progress: Progress, made: Made, losses: Metrics) -> Metrics:
        """Returns the metrics of the latest step, without its cost."""
        producer = self.producer
        metrics = losses | rounds.metrics(made.data, producer.num_prompts)
        if producer.lag:
            metrics |= made.metrics()
        metrics |= producer.passes.metrics(progress.step)
        return metrics | coverage(progress, producer.num_prompts, producer.num_items)

    def _conclude(
        self, progress: Progress, stock: Stock, data: StepData, metrics: Metrics, clock: Clock
    ) -> Progress:
        """Gives the engine the new weights, validates the policy if that is due, and records the step."""
        producer, step = self.producer, progress.step
        # It reads what it records when it is called: `progress` and `metrics` change below. There are two
        # blocks, so that a batch that was made meanwhile is saved even if the sync fails.
        record_step = lambda: self._record(progress, metrics, data, clock)
        with _saved_on_failure(self.recorder, progress, record_step):
            progress = progress.stocked(producer.finished(stock, clock))
        with _saved_on_failure(self.recorder, progress, record_step):
            with clock("update_weights"):
                producer.engine.sync(self.weights(progress.state), step)
            if self._validation_is_due(progress):
                with clock("testing"):
                    key = rng.step_keys(producer.key, step).validation
                    found, progress = self._validated(progress, key)
                metrics = metrics | found
        record_step()
        return progress

    def _record(self, progress: Progress, metrics: Metrics, data: StepData, clock: Clock) -> None:
        """Records the latest step and what it has cost so far: time, memory, retries."""
        timed = clock.metrics(data.prompts, data.rollouts, self.producer.engine_devices)
        cost = self.producer.metrics() | hardware.memory() | timed
        self.recorder.step(progress.step, metrics | cost | progress.metrics(), data)


def coverage(progress: Progress, num_prompts: int, num_items: int) -> Metrics:
    """Returns the epochs done, and the share of the items visited in the steps of the last epoch.

    An epoch is `num_items` visits to items, in all rounds. Variants of an item in one batch are one visit.
    """
    visits = progress.step * num_prompts + progress.extra_visits
    steps_per_epoch = math.ceil(num_items * progress.step / visits)
    # An item that was never visited has step 0.
    recent = np.count_nonzero(progress.visited_I > max(0, progress.step - steps_per_epoch))
    return {
        "vade/epochs": visits / num_items,
        "vade/coverage": int(recent) / num_items,
    }


@contextlib.contextmanager
def _saved_on_failure(
    recorder: Recorder, progress: Progress, record_step: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Saves the last step if the run cannot go on, and raises the reason.

    `record_step` records that step first, if that was not done yet.
    """
    try:
        yield
    except (EngineFailure, RewardFailure, BatchNotFilled, OSError, RejectedItem) as error:
        # A row that one process cannot read: the other processes would not take part in the saving.
        if isinstance(error, OSError | RejectedItem) and processes.several():
            raise
        record_step()
        if progress.step:
            recorder.save(progress, last=True)
        raise
