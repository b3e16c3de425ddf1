"""Algorithm 1 of VADE (arXiv 2511.18902): the training loop.

The loop gets its parts and knows no selector, model or engine by name. The random keys of a step depend only
on the run's key and the step's number (`rng`), so a resumed run takes the same steps as an uninterrupted one.

**Lag.** With a lag of 1 the batch of step t is made by version max(0, t - 2) of the weights: while the policy
learns from batch t, the engine makes batch t + 1 with the weights that it has, of step t - 1. Batches are
made one by one, in order, and no weights are sent meanwhile. So the version depends only on the step, nothing
is in flight between two steps, and a checkpoint with the waiting batch resumes exactly.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Protocol

import numpy as np

from vade_jax import rng
from vade_jax.data.columns import RejectedItem
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import EngineFailure
from vade_jax.trainer import hardware, processes, scoring, step_metrics
from vade_jax.trainer.collect import Collector, StepData
from vade_jax.trainer.hardware import Clock
from vade_jax.trainer.progress import Progress, Schedule
from vade_jax.trainer.validation import Validate
from vade_jax.types import Metrics, Params, Prompt, Rollouts, TrainState

Learn = Callable[[TrainState, Sequence[Prompt], Rollouts, np.ndarray], tuple[TrainState, Metrics]]
# After these errors the completed steps are saved, and the run can be started again.
FAILURES = (EngineFailure, RewardFailure, OSError, RejectedItem)


class Recorder(Protocol):
    """Writes down what a run does."""

    def record(self, step: int, metrics: Metrics, data: StepData | None = None) -> None:
        """Records the answers of a step and metrics, in addition to any recorded before."""

    def save(self, progress: Progress, *, last: bool) -> None:
        """Saves the progress after a step if a checkpoint is due; `last`: the run ends here, so always."""

    def close(self) -> None:
        """Completes pending writes."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a policy, step after step.

    The selector's state is called the posterior here, although that of a baseline may be a counter.

    Attributes:
        collect: makes the batches of answers.
        learn: updates the policy on a batch of rollouts; without metrics, the policy is unchanged.
        validate: measure the policy, one after another.
        recorder: takes metrics, rollouts and checkpoints.
        schedule: when items are measured, the policy is validated, and the run ends.
        lag: 0 or 1, how many steps the weights that answer may be behind those that learn.
        overlaps: makes a batch ahead while the policy learns, else before; the results are the same.
        engine_devices: number of devices that only the engine uses, for the cost of a step.
        whole: (trained, frozen parameters) -> all, which the engine gets.
    """

    collect: Collector
    learn: Learn
    validate: Sequence[Validate]
    recorder: Recorder
    schedule: Schedule
    lag: int = 0
    overlaps: bool = False
    engine_devices: int = 0
    whole: Callable[[Params, Params], Params] = lambda params, frozen: params

    def run(self, progress: Progress, stop: Callable[[], bool] = lambda: False) -> Progress:
        """Trains until the run is over or `stop()` is true, and saves the latest step before it returns.

        A step without a group to learn from leaves policy and optimizer unchanged, and is counted.

        Args:
            progress: where the run starts or goes on.
            stop: asked after each step.

        Raises:
            NotFinite: a number is NaN or infinite; the message names it and the step, which is not saved.
            EngineFailure, RewardFailure: the engine or a reward failed; all completed steps are saved. A pass
                before a step that did not complete is not saved: a resumed run makes it again.
            OSError, RejectedItem: an item can no longer be read; a run of one process saves all steps.
        """
        clock = Clock()
        if progress.step == 0:
            self.recorder.record(0, progress.metrics())
        with futures.ThreadPoolExecutor(1, "ahead") as ahead:
            while True:
                # The engine gets the weights of the latest step; if a validation is due, they are validated.
                with self._saved(progress):
                    with clock("update_weights"):
                        state = progress.state
                        params = self.whole(state.params, state.frozen)
                        self.collect.engine.sync(params, progress.step)
                    progress = self._validated(progress, clock)
                # Decided once, so that the loop ends exactly if this save was the last.
                ends = self.schedule.is_over(progress.step, progress.rollouts_total) or stop()
                with clock("save_checkpoint"):
                    self.recorder.save(progress, last=ends)
                if ends:
                    return progress

                with self._saved(progress):
                    # Lines 1-4 of Algorithm 1: if a pass is due, all items are answered for the posterior.
                    ready = self._measured(progress, clock)
                    # Roll out the B items with the greatest I(p), and update the posterior.
                    if ready.waiting is None:
                        ready = ready.with_batch(*self.collect(ready.posterior, ready.step + 1))
                    batch, coming = ready.waiting, self._coming(ready, ahead)
                    assert batch is not None

                # Update the policy with GRPO or GSPO.
                state, losses = progress.state, {}
                if len(batch.learned_M) > 0:
                    with clock("update_actor"):
                        state, losses = self.learn(state, *batch.batch())
                progress = ready.learned(state, is_updated=bool(losses))
                self._record(progress, batch, losses, clock)
                clock = Clock()  # what follows counts in the next step
                if coming is not None:
                    with self._saved(progress), clock("wait_rollouts"):
                        progress = progress.with_batch(*coming.result())

    # -------------------------------------------------------------------------- parts of a step
    def _validated(self, progress: Progress, clock: Clock) -> Progress:
        """Validates the policy of the latest step if due, but not again when a run resumes."""
        step, run_key = progress.step, self.collect.key
        is_due = self.schedule.validates(step, progress.rollouts_total)
        if not is_due or 0 < step <= progress.validated:
            return progress
        key = rng.step_keys(run_key, step).validation
        if step == 0:
            key = rng.untrained_validation_key(run_key)
        metrics, known = {}, progress.known
        with clock("testing"):
            for validate in self.validate:
                of_one, known = validate(self.collect.engine, key, step, known)
                metrics |= of_one
        self.recorder.record(step, metrics)
        return dataclasses.replace(progress, known=known, validated=step)

    def _measured(self, progress: Progress, clock: Clock) -> Progress:
        """Returns the progress after the pass that is due before the next step, if any."""
        if not self.schedule.measures(progress.step):
            return progress
        with clock("measure"):
            feedback = self.collect.measure(progress.step + 1, self.schedule.measure)
        posterior = self.collect.selector.update(progress.posterior, feedback)
        return progress.measured(feedback, posterior)

    def _coming(self, ready: Progress, ahead: futures.Executor) -> futures.Future | None:
        """Starts making the batch after the waiting one, if the lag allows it and a step follows."""
        assert ready.waiting is not None
        step, rollouts_made = ready.step + 1, ready.rollouts_total + len(ready.waiting.scored)
        if not self.lag or self.schedule.is_over(step, rollouts_made):
            return None
        future = ahead.submit(self.collect, ready.posterior, step + 1, version=ready.step)
        if not self.overlaps:
            futures.wait([future])
        return future

    # -------------------------------------------------------------------------- records
    def _record(self, progress: Progress, data: StepData, losses: Metrics, clock: Clock) -> None:
        """Records the latest step and its cost so far; raises NotFinite if a loss is not finite."""
        for name, seconds in data.seconds.items():
            clock.seconds[name] += seconds
        metrics = losses | step_metrics.of_step(data, self.collect.num_prompts)
        if measured := self.schedule.measured(progress.step):
            metrics["vade/measured_rollouts"] = measured
        if self.lag:  # by how many steps the weights that answered are older
            staleness = progress.step - 1 - int(data.rollouts.params_version)
            metrics["training/off_policy/trajectory_staleness/mean"] = staleness
        metrics |= hardware.memory()
        metrics |= clock.metrics(data.prompts, data.rollouts, self.engine_devices)
        self.recorder.record(progress.step, metrics | progress.metrics(), data)
        scoring.check_losses(f"step {progress.step}", losses)

    @contextlib.contextmanager
    def _saved(self, progress: Progress) -> Iterator[None]:
        """Saves the completed steps if the block raises."""
        try:
            yield
        except FAILURES as error:
            # If only one process cannot read a row, the others would not take part in saving.
            if not (isinstance(error, OSError | RejectedItem) and processes.several()):
                self.recorder.save(progress, last=True)
            raise
