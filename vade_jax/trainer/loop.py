"""Algorithm 1 of VADE (arXiv 2511.18902): the training loop.

The loop is given its parts and knows no selector, model or engine by name. The random keys of a step depend
only on the run's key and the step's number (`rng`), so a resumed run repeats what an uninterrupted run would
have done. Two things overlap with others: answers are scored while the engine makes more of them, and the
next step's prompts are chosen while the policy learns.

**Lag.** With lag L the batch of step t is made by version max(0, t - 1 - L) of the weights: while the policy
learns from batch t, the engine makes batch t + L with the weights that it has, of step t - 1. Whole batches
are made, one after another and in order, and no weights are sent meanwhile. So the version is a function of
the step alone, nothing is under way between two steps, and a checkpoint with the batches that wait resumes
exactly. L = 1 has all the speed; more is for studying lag.
"""

import dataclasses
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
from vade_jax.trainer.choosing import ChoosePrompts, Chosen
from vade_jax.trainer.collect import StepData, collect
from vade_jax.trainer.progress import Made, Progress, is_over
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


class Ahead:
    """What two threads do while the policy learns: choose the next prompts, and make the next batch."""

    def __init__(self, choose: ChoosePrompts):
        self._choose, self._chosen = choose, None
        self._chooser = futures.ThreadPoolExecutor(1, "choose")
        self._maker = futures.ThreadPoolExecutor(1, "make")

    def choose(self, posterior: samplers.State, key: jax.Array, num_prompts: int) -> None:
        """Begins to choose the prompts of the next batch."""
        self._chosen = self._chooser.submit(self._choose, posterior, key, num_prompts)

    def chosen(self) -> Chosen:
        """Waits for the prompts that `choose` has begun to choose."""
        assert self._chosen is not None, "nothing was begun"
        return self._chosen.result()

    def make(self, make: Callable[..., tuple[Made, samplers.State]], *args) -> futures.Future:
        """Begins to make a batch."""
        return self._maker.submit(make, *args)

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        # What is under way ends first; but Ctrl-C closes the engine next, which ends it.
        self._maker.shutdown(wait=kind is None or issubclass(kind, Exception))
        self._chooser.shutdown()


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a policy, step after step.

    The selector's state is called the posterior here, as VADE's is; that of a baseline may be a counter.

    Attributes:
        choose: asks the selector, and builds the prompts.
        engine: makes the answers.
        score: rewards them.
        learn: improves the policy on a batch of rollouts; no metrics: it left the policy as it was.
        validate: measures the policy.
        recorder: takes metrics, rollouts and checkpoints.
        key: of the whole run. Draws depend only on it and on the step's number.
        num_prompts: B, prompts a step.
        num_steps: RL steps in all, including those already done.
        eval_every: steps between validations, of which the first is before any step; 0: one, at the end.
            One that failed is made up when the run resumes.
        max_rollouts: the budget of answers, including those of passes; 0: no budget. A step that has begun
            is finished, so its last rounds may exceed the budget; a pass that would exceed it does not begin.
        advantage: compares the answers of a group (Eq. 2).
        refill: what a step does about the groups that the selector drops.
        measure: when all items are rolled out for the selector alone.
        lag: L, the most steps between the weights that answer and those that learn.
        overlaps: whether, with a lag, a batch is made in a thread while the policy learns. Otherwise the two
            take turns, with the same numbers.
        engine_devices: devices that only the engine has, to count what a step costs.
        weights: all parameters of a state, which the engine gets.
    """

    choose: ChoosePrompts
    engine: Engine
    score: Scorer
    learn: Learn
    validate: Validate
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
        with Ahead(self.choose) as ahead:
            progress = self._begin(progress, ahead)
            ends, clock = self._is_over(progress) or stop(), Clock()
            while not ends:
                step, taken = progress.step + 1, None
                try:
                    # Roll out the B items with the greatest I(p), and update the posterior.
                    ready = self._with_batch(progress, ahead, clock, stop)
                    if ready is None:  # stopped in a pass: a resumed run begins it again
                        break
                    under_way = self._begin_next(ready, ahead)
                    batch, ready = ready.without_batch()
                    clock.add(batch.clock)

                    # Update the policy with GRPO or GSPO.
                    state, losses = self._learned(batch, progress.state, clock)
                    progress = ready.learned(state, batch.data, self.num_prompts, bool(losses))
                    taken = losses | self._metrics(progress, batch), batch.data
                    if under_way is not None:
                        with clock("wait_rollouts"):
                            progress = progress.with_batch(*under_way.result())

                    # The engine gets the new weights.
                    with clock("update_weights"):
                        self.engine.sync(self.weights(progress.state), step)
                    if self._validation_is_due(progress):
                        with clock("testing"):
                            key = rng.step_keys(self.key, step).validation
                            metrics, progress = self._validated(progress, key)
                        taken[0].update(metrics)
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
    def _with_batch(
        self, progress: Progress, ahead: Ahead, clock: Clock, stop: Callable[[], bool]
    ) -> Progress | None:
        """Returns the progress with the batch of the next step, and with those that a lag wants before it.

        Returns None if `stop()` was true in a pass over all items.
        """
        step = progress.step + 1
        if self.passes.is_due(progress.step):
            with clock("measure"):
                # Warm-up of Algorithm 1: answers to every item, for the posterior alone.
                feedback = passes.measure(
                    self.choose,
                    self.engine,
                    self.score,
                    self.advantage,
                    self.measure,
                    key=self.key,
                    step=step,
                    stop=stop,
                )
            if feedback is None:
                if progress.step:
                    self.recorder.save(progress, last=True)
                return None
            progress = progress.measured(
                feedback, self.choose.selector.update(progress.posterior, feedback)
            )
            self._choose_ahead(ahead, progress.posterior, step)
        before_update = step + self.lag - self._makes_ahead
        while progress.made < step or (progress.made < before_update and self._may_make(progress)):
            progress = progress.with_batch(*self._make(progress, step - 1, ahead))
        return progress

    def _make(self, progress: Progress, version: int, ahead: Ahead) -> tuple[Made, samplers.State]:
        """Makes the batch after the last one, by these weights, and begins to choose the next prompts."""
        step, clock = progress.made + 1, Clock()
        with clock("select"):
            chosen = ahead.chosen()
        data, posterior = collect(
            self.choose,
            progress.posterior,
            self.key,
            step,
            self.engine,
            self.score,
            self.num_prompts,
            advantage=self.advantage,
            refill=self.refill,
            version=version,
            first=chosen,
            clock=clock,
        )
        made = Made(step, data, clock)
        if self._may_make(progress.with_batch(made, posterior)) and not self.passes.is_due(step):
            self._choose_ahead(ahead, posterior, step + 1)
        return made, posterior

    def _begin_next(self, progress: Progress, ahead: Ahead) -> futures.Future | None:
        """Begins to make the batch that the lag allows, where making and learning overlap."""
        step = progress.step + 1
        if (
            not self._makes_ahead
            or progress.made >= step + self.lag
            or not self._may_make(progress)
        ):
            return None
        return ahead.make(self._make, progress, step - 1, ahead)

    def _choose_ahead(self, ahead: Ahead, posterior: samplers.State, step: int) -> None:
        ahead.choose(posterior, rng.step_keys(self.key, step).select, self.num_prompts)

    @property
    def _makes_ahead(self) -> bool:
        return self.overlaps and self.lag > 0

    @property
    def passes(self) -> passes.Passes:
        return passes.Passes(self.measure, self.choose.selector, len(self.choose.items))

    # -------------------------------------------------------------------------- when
    def _is_last(self, step: int, rollouts_total: int) -> bool:
        return is_over(
            step,
            rollouts_total,
            num_steps=self.num_steps,
            max_rollouts=self.max_rollouts,
            next_pass=self.passes.cost(step),
        )

    def _is_over(self, progress: Progress) -> bool:
        return self._is_last(progress.step, progress.rollouts_total)

    def _may_make(self, progress: Progress) -> bool:
        return not self._is_last(progress.made, progress.rollouts_made)

    def _validation_is_due(self, progress: Progress) -> bool:
        every = self.eval_every > 0 and progress.step % self.eval_every == 0
        return every or self._is_over(progress)

    # -------------------------------------------------------------------------- parts of a step
    def _begin(self, progress: Progress, ahead: Ahead) -> Progress:
        """Gives the engine its weights, and validates the policy before the first step, if that is due.

        A validation that failed when the latest step was taken is made up.
        """
        step = progress.step
        if self._may_make(progress) and not self.passes.is_due(progress.made):
            self._choose_ahead(ahead, progress.posterior, progress.made + 1)
        self.engine.sync(self.weights(progress.state), step)
        is_due = self._validation_is_due(progress)
        if step == 0:
            metrics: Metrics = {}
            if is_due:
                key = rng.untrained_validation_key(self.key)
                metrics, progress = self._validated(progress, key)
            counted = self.engine.metrics() | self.score.metrics()
            self.recorder.step(0, metrics | counted | progress.metrics(), None)
        elif is_due and progress.validated < step:
            # The engine failed during this validation, so the step was saved without it.
            key = rng.step_keys(self.key, step).validation
            metrics, progress = self._validated(progress, key)
            self.recorder.add(step, metrics)
        return progress

    def _validated(self, progress: Progress, key: jax.Array) -> tuple[Metrics, Progress]:
        """Validates the policy of the latest step; returns the metrics and the progress."""
        metrics, known = self.validate(self.engine, key, progress.step, progress.known)
        return metrics, dataclasses.replace(progress, known=known, validated=progress.step)

    def _learned(self, batch: Made, state: TrainState, clock: Clock) -> tuple[TrainState, Metrics]:
        """Returns the state after the policy has learned from a batch, and the metrics of learning."""
        losses: Metrics = {}
        if len(batch.data.learned_M) > 0:
            with clock("update_actor"):
                state, losses = self.learn(state, *batch.data.batch())
        try:
            scoring.check_losses(f"step {batch.step}", losses)
        except NotFinite:
            # So that people can look at its answers.
            metrics = losses | step_metrics.of_step(batch.data, self.num_prompts)
            self.recorder.step(batch.step, metrics, batch.data)
            raise
        return state, losses

    # -------------------------------------------------------------------------- records
    def _metrics(self, progress: Progress, batch: Made) -> Metrics:
        """Returns the metrics of the latest step, without those of learning and of its cost."""
        metrics = step_metrics.of_step(batch.data, self.num_prompts)
        if self.lag:
            metrics |= batch.metrics()
        metrics |= self.passes.metrics(progress.step)
        return metrics | progress.coverage(self.num_prompts)

    def _record(self, progress: Progress, metrics: Metrics, data: StepData, clock: Clock) -> None:
        """Records the latest step and what it has cost so far: time, memory, retries."""
        timed = clock.metrics(data.prompts, data.rollouts, self.engine_devices)
        cost = self.engine.metrics() | self.score.metrics() | hardware.memory() | timed
        self.recorder.step(progress.step, metrics | cost | progress.metrics(), data)

    def _save_after(
        self,
        error: BaseException,
        progress: Progress,
        taken: tuple[Metrics, StepData] | None,
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
