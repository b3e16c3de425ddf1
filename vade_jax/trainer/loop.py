"""Algorithm 1 of VADE (arXiv 2511.18902): the training loop.

The loop is given its parts and knows no selector, model or engine by name. The random keys of a step depend
only on the run's key and the step's number (`rng`), so a resumed run repeats what an uninterrupted run would
have done. Two things overlap with others: answers are scored while the engine makes more of them, and the
next step's prompts are chosen while the policy learns.

**Lag.** With a lag of 1 the batch of step t is made by version max(0, t - 2) of the weights: while the policy
learns from batch t, the engine makes batch t + 1 with the weights that it has, of step t - 1. Whole batches
are made, in order, and no weights are sent meanwhile. So the version is a function of the step alone,
nothing is under way between two steps, and a checkpoint with the batch that waits resumes exactly.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Protocol

import jax
import numpy as np

from vade_jax import rng, samplers, settings
from vade_jax.data.columns import RejectedItem
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import Engine, EngineFailure
from vade_jax.trainer import hardware, passes, processes, scoring, step_metrics
from vade_jax.trainer.choosing import Chosen, Pool, choose
from vade_jax.trainer.collect import StepData, collect
from vade_jax.trainer.progress import Progress, is_over
from vade_jax.trainer.scoring import Advantage, NotFinite, Scorer
from vade_jax.trainer.timing import Clock
from vade_jax.trainer.validation import Validate
from vade_jax.types import Metrics, Params, Prompt, Rollouts, TrainState

Learn = Callable[[TrainState, Sequence[Prompt], Rollouts, np.ndarray], tuple[TrainState, Metrics]]
# After these the steps taken are saved; whatever started the run may start it again.
FAILURES = (EngineFailure, RewardFailure, OSError, RejectedItem)


class Recorder(Protocol):
    """Writes down what a run does."""

    def step(self, step: int, metrics: Metrics, data: StepData | None) -> None:
        """Records the metrics of a step and its answers."""

    def add(self, step: int, metrics: Metrics) -> None:
        """Adds metrics to the latest step, which is already recorded."""

    def save(self, progress: Progress, *, last: bool) -> None:
        """Saves the progress after a step if a checkpoint is due; `last`: the run ends here, so always."""

    def close(self) -> None:
        """Completes what is under way."""


class Ahead(futures.ThreadPoolExecutor):
    """A thread that works while the policy learns: it chooses the next prompts and makes the next batch."""

    def __init__(self):
        super().__init__(1, "ahead")
        self.chosen: futures.Future[Chosen] | None = None  # the prompts of the next batch

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        # What is under way ends first; but Ctrl-C closes the engine next, which ends it.
        self.shutdown(wait=kind is None or issubclass(kind, Exception))


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a policy, step after step.

    The selector's state is called the posterior here, as VADE's is; that of a baseline may be a counter.

    What is not named here goes to `collect`.

    Attributes:
        learn: improves the policy on a batch of rollouts; no metrics: it left the policy as it was.
        validate: measure the policy, one after another.
        recorder: takes metrics, rollouts and checkpoints.
        num_steps: RL steps in all, including those already done.
        eval_every: steps between validations, of which the first is before any step; 0: one, at the end.
            One that failed is made up when the run resumes.
        max_rollouts: the budget of answers, including those of passes; 0: no budget. A step that has begun
            is finished, so its last rounds may exceed the budget; a pass that would exceed it does not begin.
        measure: when all items are rolled out for the selector alone.
        lag: 0 or 1, the most steps between the weights that answer and those that learn.
        overlaps: whether, with a lag, a batch is made in a thread while the policy learns. Otherwise the two
            take turns, with the same numbers.
        engine_devices: devices that only the engine has, to count what a step costs.
        weights: all parameters of a state, which the engine gets.
    """

    selector: samplers.Sampler
    pool: Pool
    engine: Engine
    score: Scorer
    learn: Learn
    validate: Sequence[Validate]
    recorder: Recorder
    key: jax.Array
    num_prompts: int
    num_steps: int
    eval_every: int
    max_rollouts: int = 0
    advantage: Advantage = scoring.usual_advantage
    refill: settings.Refill = settings.Refill()  # noqa: RUF009 (frozen)
    measure: settings.Measure = settings.Measure()  # noqa: RUF009
    lag: int = 0
    overlaps: bool = False
    engine_devices: int = 0
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
            OSError, RejectedItem: an item can no longer be read; all steps are saved if one process runs.
        """
        progress = self._begin(progress)
        ends, clock = self._is_over(progress) or stop(), Clock()
        with Ahead() as ahead:
            while not ends:
                taken = None
                try:
                    # Lines 1-4 of Algorithm 1: where a pass is due, all items are answered for the posterior.
                    ready = self._measured(progress, clock, stop)
                    if ready is None:  # stopped in the pass: a resumed run begins it again
                        if progress.step:
                            self.recorder.save(progress, last=True)
                        break
                    # Roll out the B items with the greatest I(p), and update the posterior.
                    if ready.waiting is None:
                        ready = ready.with_batch(*self._make(ready, ahead))
                    batch, coming = ready.waiting, self._begin_next(ready, ahead)
                    assert batch is not None
                    clock.add(**batch.seconds)

                    # Update the policy with GRPO or GSPO.
                    state, metrics = self._learned(batch, progress, clock)
                    progress = ready.learned(state, batch.feedback, is_updated=bool(metrics))
                    taken = batch, metrics
                    if coming is not None:
                        with clock("wait_rollouts"):
                            progress = progress.with_batch(*coming.result())

                    # The engine gets the new weights.
                    with clock("update_weights"):
                        self.engine.sync(self.weights(progress.state), progress.step)
                    if self._validation_is_due(progress):
                        with clock("testing"):
                            validated, progress = self._validated(progress)
                        taken = batch, metrics | validated
                except FAILURES as error:
                    self._save_after(error, progress, taken, clock)
                    raise
                self._record(progress, *taken, clock)
                # Asked once, so that what ends the loop is also what was saved.
                ends = self._is_over(progress) or stop()
                clock = Clock()  # of the next step, which waits until this one is saved
                with clock("save_checkpoint"):
                    self.recorder.save(progress, last=ends)
        return progress

    # -------------------------------------------------------------------------- batches
    def _measured(
        self, progress: Progress, clock: Clock, stop: Callable[[], bool]
    ) -> Progress | None:
        """Returns the progress after the pass that is due before the next step, if any; None if stopped."""
        if not self.passes.is_due(progress.step):
            return progress
        with clock("measure"):
            feedback = passes.measure(
                self.selector,
                self.pool,
                self.key,
                progress.step + 1,
                self.engine,
                self.score,
                self.measure,
                advantage=self.advantage,
                stop=stop,
            )
        if feedback is None:
            return None
        return progress.measured(feedback, self.selector.update(progress.posterior, feedback))

    def _make(self, progress: Progress, ahead: Ahead) -> tuple[StepData, samplers.State]:
        """Makes the batch after the last one, and begins to choose the prompts of the next."""
        step = progress.made + 1
        data, posterior = collect(
            self.selector,
            self.pool,
            progress.posterior,
            self.key,
            step,
            self.engine,
            self.score,
            self.num_prompts,
            advantage=self.advantage,
            refill=self.refill,
            version=progress.step,
            first=ahead.chosen,
        )
        ahead.chosen = None
        is_last = self._is_last(step, progress.rollouts_made + len(data.scored))
        if not (is_last or self.passes.is_due(step)):
            key = rng.step_keys(self.key, step + 1).select
            args = self.selector, self.pool, posterior, key, self.num_prompts
            ahead.chosen = ahead.submit(choose, *args)
        return data, posterior

    def _begin_next(self, progress: Progress, ahead: Ahead) -> futures.Future | None:
        """Begins to make the batch that a lag allows; unless making and learning overlap, it is made here."""
        if not self.lag or self._is_last(progress.made, progress.rollouts_made):
            return None
        if self.overlaps:
            return ahead.submit(self._make, progress, ahead)
        done = futures.Future()
        done.set_result(self._make(progress, ahead))
        return done

    @functools.cached_property
    def passes(self) -> passes.Passes:
        return passes.Passes(self.measure, self.selector, len(self.pool.items))

    # -------------------------------------------------------------------------- when
    def _is_last(self, step: int, rollouts_total: int) -> bool:
        limits = {"num_steps": self.num_steps, "max_rollouts": self.max_rollouts}
        return is_over(step, rollouts_total, **limits, next_pass=self.passes.cost(step))

    def _is_over(self, progress: Progress) -> bool:
        return self._is_last(progress.step, progress.rollouts_total)

    def _validation_is_due(self, progress: Progress) -> bool:
        every = self.eval_every > 0 and progress.step % self.eval_every == 0
        return every or self._is_over(progress)

    # -------------------------------------------------------------------------- parts of a step
    def _begin(self, progress: Progress) -> Progress:
        """Gives the engine its weights, and validates the policy before the first step, if that is due.

        A validation that failed when the latest step was taken, which was saved without it, is made up.
        """
        step, metrics = progress.step, {}
        self.engine.sync(self.weights(progress.state), step)
        if self._validation_is_due(progress) and (step == 0 or progress.validated < step):
            metrics, progress = self._validated(progress)
        if step == 0:
            counted = self.engine.metrics() | self.score.metrics()
            self.recorder.step(0, metrics | counted | progress.metrics(), None)
        elif metrics:
            self.recorder.add(step, metrics)
        return progress

    def _validated(self, progress: Progress) -> tuple[Metrics, Progress]:
        """Validates the policy of the latest step; returns the metrics and the progress."""
        step, key = progress.step, rng.untrained_validation_key(self.key)
        if step:
            key = rng.step_keys(self.key, step).validation
        metrics, known = {}, progress.known
        for validate in self.validate:
            found, known = validate(self.engine, key, step, known)
            metrics |= found
        return metrics, dataclasses.replace(progress, known=known, validated=step)

    def _learned(
        self, batch: StepData, progress: Progress, clock: Clock
    ) -> tuple[TrainState, Metrics]:
        """Returns the state after the policy has learned from a batch, and the metrics of learning."""
        state, losses = progress.state, {}
        if len(batch.learned_M) > 0:
            with clock("update_actor"):
                state, losses = self.learn(state, *batch.batch())
        try:
            scoring.check_losses(f"step {progress.step + 1}", losses)
        except NotFinite:
            # So that people can look at its answers.
            metrics = losses | step_metrics.of_step(batch, self.num_prompts)
            self.recorder.step(progress.step + 1, metrics, batch)
            raise
        return state, losses

    # -------------------------------------------------------------------------- records
    def _record(self, progress: Progress, data: StepData, metrics: Metrics, clock: Clock) -> None:
        """Records the latest step, what it has cost so far (time, memory, retries), and the totals."""
        metrics |= step_metrics.of_step(data, self.num_prompts) | self.passes.metrics(progress.step)
        if self.lag:  # steps that the weights that answered are older than those that learned
            staleness = progress.step - 1 - int(data.rollouts.params_version)
            metrics["training/off_policy/trajectory_staleness/mean"] = staleness
        metrics |= self.engine.metrics() | self.score.metrics() | hardware.memory()
        metrics |= clock.metrics(data.prompts, data.rollouts, self.engine_devices)
        self.recorder.step(progress.step, metrics | progress.metrics(), data)

    def _save_after(
        self,
        error: BaseException,
        progress: Progress,
        taken: tuple[StepData, Metrics] | None,
        clock: Clock,
    ) -> None:
        """Saves the latest step, if the run cannot go on; records it first, if that was not done yet."""
        # A row that one process cannot read: the other processes would not take part in the saving.
        if isinstance(error, OSError | RejectedItem) and processes.several():
            return
        if taken is not None:
            self._record(progress, *taken, clock)
        if progress.step:
            self.recorder.save(progress, last=True)
