"""Algorithm 1 of VADE (arXiv 2511.18902): the only training loop.

Every part is passed in: no selector, model or engine is known here by name. A step draws from keys that
depend on the run's key and the step's number alone (`rng`), so a resumed run repeats what an
uninterrupted one would have done. Two things overlap: answers are scored while others are being made,
and the next step's prompts are chosen while the policy learns.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import jax
import numpy as np

from vade_jax import rng, samplers
from vade_jax.data.columns import RejectedItem
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import EngineFailure
from vade_jax.trainer import hardware, passes, processes, rounds, scoring
from vade_jax.trainer.producer import Producer
from vade_jax.trainer.rounds import BatchNotFilled, StepData
from vade_jax.trainer.timing import Clock
from vade_jax.trainer.validation import Known, Validate
from vade_jax.types import Feedback, Metrics, Prompt, Rollouts, TrainState

Learn = Callable[[TrainState, Sequence[Prompt], Rollouts, np.ndarray], tuple[TrainState, Metrics]]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Everything that a step changes and a checkpoint holds."""

    state: TrainState
    posterior: samplers.State  # the selector's state
    visited_I: np.ndarray  # int32, the step of the latest visit to each item, 0 before any
    step: int = 0  # RL steps done; also the version of the weights
    rollouts_total: int = 0
    tokens_total: int = 0
    known: Known = frozenset()  # questions of the validation
    validated: int = 0  # the latest step whose policy was validated
    skipped_updates: int = 0  # steps that had nothing to learn from
    # Visits to items beyond one for each place of each batch: rounds of refill make more, variants fewer
    more_visits: int = 0

    def paid_for(self, feedback: Feedback) -> "Progress":
        """Returns the progress with some more answers in its totals."""
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
        posterior: samplers.State,
        num_prompts: int,
        is_updated: bool,
    ) -> "Progress":
        """Returns the progress after a step that asked for `num_prompts` prompts."""
        visited_I = self.visited_I.copy()
        visited_I[data.feedback.index_M] = step
        num_visits = len(np.unique(data.feedback.index_M))
        return dataclasses.replace(
            self.paid_for(data.feedback),
            state=state,
            posterior=posterior,
            step=step,
            visited_I=visited_I,
            more_visits=self.more_visits + num_visits - num_prompts,
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
    """Returns whether a run ends after `step`, when so many answers have been paid for.

    So it does before a pass over all items (`next_pass` answers) that leaves nothing for a step.
    """
    return step >= num_steps or 0 < max_rollouts <= rollouts_total + next_pass


class Recorder(Protocol):
    """Where a run writes to."""

    def step(self, step: int, metrics: Metrics, data: StepData | None) -> None:
        """Takes the metrics of a step, and its rollouts."""

    def add(self, step: int, metrics: Metrics) -> None:
        """Takes metrics of the latest step that were not there when the step was taken."""

    def save(self, progress: Progress, *, last: bool) -> None:
        """Takes the progress after a step; `last`: the run ends here."""


def run(
    progress: Progress,
    *,
    num_steps: int,
    producer: Producer,
    learn: Learn,
    validate: Validate,
    recorder: Recorder,
    eval_every: int,
    max_rollouts: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Trains until the run `is_over` or `stop()` is true; saves the latest step before it returns.

    The selector's state is called the posterior here, as for VADE; a baseline's may be just counters.
    A step that has nothing to learn from leaves policy and optimizer as they are, and is counted.

    Args:
        progress: where to start.
        num_steps: RL steps in all, those already done included.
        producer: chooses prompts, and makes and rewards the answers.
        learn: improves the policy on a batch of rollouts.
        validate: measures the policy.
        recorder: takes metrics, rollouts and checkpoints.
        eval_every: steps between validations, of which the first is before any step; 0: one, at the end.
            One that failed is made up when the run resumes.
        max_rollouts: the budget of answers, passes included; 0: none. A step that has begun is
            finished, so its last rounds may go beyond; a pass that would is not begun.
        stop: asked after each step, and between the batches of a pass over all items.

    Raises:
        NotFinite: names the step, and what is NaN or infinite; nothing is saved after it.
        EngineFailure: there are no more answers; every step that was taken is saved.
        RewardFailure: a reward function failed; every step that was taken is saved.
        BatchNotFilled: the refill asks to stop; every step that was taken is saved.
        OSError, RejectedItem: an item can no longer be read; a run of one process has saved every step.
    """
    engine, selector = producer.engine, producer.selector
    measure, num_items, num_prompts = producer.measure, producer.num_items, producer.num_prompts

    def is_last(step: int, rollouts_total: int) -> bool:
        next_pass = passes.cost(measure, selector, step, num_items)
        limits = {"num_steps": num_steps, "max_rollouts": max_rollouts}
        return is_over(step, rollouts_total, **limits, next_pass=next_pass)

    def is_validated(step: int, over: bool) -> bool:
        return over or (eval_every > 0 and step % eval_every == 0)

    def validated(progress: Progress, key: jax.Array) -> tuple[Metrics, Progress]:
        """Returns what the validation after the latest step finds, and the progress with it."""
        found, known = validate(engine, key, progress.step, progress.known)
        return found, dataclasses.replace(progress, known=known, validated=progress.step)

    def counted(clock: Clock, data: StepData) -> Metrics:
        """Returns what a step has taken up to now: time, memory, retries and the like."""
        found = producer.metrics() | hardware.memory()
        return found | clock.metrics(data.prompts, data.rollouts)

    with producer:
        if progress.step < num_steps:
            producer.start(progress.posterior, progress.step + 1)
        engine.sync(progress.state.params, progress.step)
        over = is_last(progress.step, progress.rollouts_total)
        if progress.step == 0:
            metrics: Metrics = {}
            if is_validated(0, over):
                key = rng.untrained_validation_key(producer.key)
                metrics, progress = validated(progress, key)
            recorder.step(0, metrics | producer.metrics() | progress.metrics(), None)
        elif progress.validated < progress.step and is_validated(progress.step, over):
            # The engine failed in this validation: the step was saved without.
            key = rng.step_keys(producer.key, progress.step).validation
            metrics, progress = validated(progress, key)
            recorder.add(progress.step, metrics)
        ends, clock = over or stop(), Clock()

        while not ends:
            step = progress.step + 1
            with _saved_on_failure(recorder, progress):
                # Lines 1-4: answers to every item make the first posterior; no policy learns.
                if producer.pass_is_due(step):
                    with clock("measure"):
                        measured = producer.roll_out_all(progress.posterior, step, stop)
                    if measured is None:  # stopped: resumed, the run begins the pass anew
                        if progress.step:
                            recorder.save(progress, last=True)
                        break
                    feedback, posterior = measured
                    progress = dataclasses.replace(progress.paid_for(feedback), posterior=posterior)

                # Line 6 on: draw p ~ Beta for every item, score I(p) (Eq. 4), propose the top B.
                with clock("select"):
                    chosen = producer.chosen()
                # To line 15: G answers to each are generated, scored and compared in their group
                # (Eq. 2); old counts decay at two speeds, the new ones come in (Eq. 5, 6).
                data, posterior = producer.roll_out(chosen, progress.posterior, step, clock)

            # Update the policy with GRPO or GSPO. The next prompts are chosen meanwhile.
            if step < num_steps:
                producer.start(posterior, step + 1)
            state, losses = progress.state, {}
            if len(data.learned_M):
                with clock("update_actor"):
                    state, losses = learn(state, *data.batch())
            metrics = losses | rounds.metrics(data, num_prompts)
            with _recorded_if_not_finite(recorder, step, metrics, data):
                scoring.check_losses(f"step {step}", losses)
            progress = progress.after(step, data, state, posterior, num_prompts, bool(losses))
            metrics |= passes.metrics(measure, selector, step, num_items)
            metrics |= coverage(progress, num_prompts, num_items)

            # The engine gets the new weights; the step is recorded and saved.
            over = is_last(step, progress.rollouts_total)
            spent = functools.partial(counted, clock, data)
            with _saved_on_failure(recorder, progress, metrics, data, spent):
                with clock("update_weights"):
                    engine.sync(state.params, step)
                if is_validated(step, over):
                    with clock("testing"):
                        key = rng.step_keys(producer.key, step).validation
                        found, progress = validated(progress, key)
                    metrics |= found
            recorder.step(step, metrics | spent() | progress.metrics(), data)
            ends = over or stop()  # asked once: what ends the loop has been saved
            clock = Clock()  # the next step's: it waits for the saving
            with clock("save_checkpoint"):
                recorder.save(progress, last=ends)
    return progress


def coverage(progress: Progress, num_prompts: int, num_items: int) -> Metrics:
    """Returns how often the data were gone through, and the share visited in the last epoch's steps.

    Items are counted: not the places of a batch, some of which are variants', nor one round alone.
    """
    visits = progress.step * num_prompts + progress.more_visits
    num_steps = math.ceil(num_items * progress.step / visits)
    # Not before step 1: a 0 is no visit.
    recent = np.count_nonzero(progress.visited_I > max(0, progress.step - num_steps))
    return {
        "vade/epochs": visits / num_items,
        "vade/coverage": int(recent) / num_items,
    }


@contextlib.contextmanager
def _saved_on_failure(
    recorder: Recorder,
    progress: Progress,
    metrics: Metrics | None = None,
    data: StepData | None = None,
    spent: Callable[[], Metrics] = dict,
) -> Iterator[None]:
    """Records and saves the last step if the run cannot go on, then raises why."""
    try:
        yield
    except (EngineFailure, RewardFailure, BatchNotFilled, OSError, RejectedItem) as error:
        # A row that can no longer be read fails in one process: the others would not save with it.
        if isinstance(error, OSError | RejectedItem) and processes.several():
            raise
        if metrics is not None and data is not None:
            recorder.step(progress.step, metrics | spent() | progress.metrics(), data)
        if progress.step:
            recorder.save(progress, last=True)
        raise


@contextlib.contextmanager
def _recorded_if_not_finite(
    recorder: Recorder, step: int, metrics: Metrics, data: StepData
) -> Iterator[None]:
    """Records the step whose losses are not finite, so that its answers can be looked at."""
    try:
        yield
    except scoring.NotFinite:
        recorder.step(step, metrics, data)
        raise
