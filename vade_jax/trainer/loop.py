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
from typing import Any, Protocol

import jax
import numpy as np

from vade_jax import rng, settings
from vade_jax.data.columns import RejectedItem
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import Engine, EngineFailure
from vade_jax.trainer import hardware, passes, processes, rounds, scoring
from vade_jax.trainer.choosing import Chooser, Chosen, Lookahead
from vade_jax.trainer.rounds import BatchNotFilled, Gathering, Round, StepData
from vade_jax.trainer.scoring import Advantage, Scorer, Scores
from vade_jax.trainer.timing import Clock
from vade_jax.types import Feedback, Metrics, Prompt, Rollouts, TrainState

Learn = Callable[[TrainState, Sequence[Prompt], Rollouts, np.ndarray], tuple[TrainState, Metrics]]
# (engine, key, version of the weights, questions known so far) -> metrics, questions known now
Validate = Callable[[Engine, jax.Array, int, frozenset[str]], tuple[Metrics, frozenset[str]]]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Everything that a step changes and a checkpoint holds."""

    state: TrainState
    selector: Any  # the selector's state
    visited_I: np.ndarray  # int32, the step of the latest visit to each item, 0 before any
    step: int = 0  # RL steps done; also the version of the weights
    rollouts_total: int = 0
    tokens_total: int = 0
    known: frozenset[str] = frozenset()  # questions of the validation: see evals/validation.py
    validated: int = 0  # the latest step whose policy was validated
    skipped_updates: int = 0  # steps that had nothing to learn from
    # Visits to items beyond one for each place of each batch: rounds of refill make more, variants fewer
    more_visits: int = 0

    def paid_for(self, feedback: Feedback, **changes: Any) -> "Progress":
        """Returns the progress with some more answers in its totals, and other changes."""
        return dataclasses.replace(
            self,
            rollouts_total=self.rollouts_total + len(feedback.length_N),
            tokens_total=self.tokens_total + int(feedback.length_N.sum()),
            **changes,
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
    num_prompts: int,
    key: jax.Array,
    choose: Chooser,
    engine: Engine,
    score: Scorer,
    learn: Learn,
    validate: Validate,
    recorder: Recorder,
    eval_every: int,
    advantage: Advantage = scoring.group_normalized,
    refill: settings.Refill = settings.Refill(),  # noqa: B008 (frozen)
    measure: settings.Measure = settings.Measure(),  # noqa: B008
    max_rollouts: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Trains until the run `is_over` or `stop()` is true; saves the latest step before it returns.

    The selector's state is called the posterior here, as for VADE; a baseline's may be just counters.
    A step that has nothing to learn from leaves policy and optimizer as they are, and is counted.

    Args:
        progress: where to start.
        num_steps: RL steps in all, those already done included.
        num_prompts: B, prompts a step.
        key: of the whole run.
        choose: the selector over the data set.
        engine: makes the answers.
        score: rewards them.
        learn: improves the policy on a batch of rollouts.
        validate: measures the policy.
        recorder: takes metrics, rollouts and checkpoints.
        eval_every: steps between validations; the first is before any step. One that failed is made
            up when the run resumes.
        advantage: compares the answers of a group.
        refill: what a step does about the groups that the selector drops.
        measure: when all items are rolled out for the selector alone.
        max_rollouts: the budget of answers, passes included; 0: none. A step that has begun is
            finished, so its last rounds may go beyond; a pass that would is not begun.
        stop: asked after each step, and between the batches of a pass over all items.

    Raises:
        NotFinite: names the step, and what is NaN or infinite; nothing is saved after it.
        EngineFailure: there are no more answers; every step that was taken is saved.
        RewardFailure: a reward function failed; every step that was taken is saved.
        BatchNotFilled: `refill` asks to stop; every step that was taken is saved.
        OSError, RejectedItem: an item can no longer be read; a run of one process has saved every step.
    """
    sampler = choose.sampler
    answer = functools.partial(rounds.answer, engine, score)  # generate and score
    roll_out = functools.partial(roll_out_batch, num_prompts, choose, answer, advantage, refill)

    def is_last(step, rollouts_total):
        next_pass = passes.cost(measure, sampler, step, len(choose.items))
        limits = {"num_steps": num_steps, "max_rollouts": max_rollouts}
        return is_over(step, rollouts_total, **limits, next_pass=next_pass)

    def validated(progress, key):
        """Returns what the validation after the latest step finds, and the progress with it."""
        found, known = validate(engine, key, progress.step, progress.known)
        return found, dataclasses.replace(progress, known=known, validated=progress.step)

    def counted(clock, data):
        """Returns what a step has taken up to now: time, memory, retries and the like."""
        found = engine.metrics() | score.metrics() | hardware.memory()
        return found | clock.metrics(data.prompts, data.rollouts)

    with Lookahead(choose) as ahead:

        def choose_ahead(posterior, step):
            """Begins to choose the prompts of `step`; returns its keys."""
            keys = rng.step_keys(key, step)
            # Too early where a pass over all items still changes the posterior before the step.
            if step <= num_steps and not passes.is_due(measure, sampler, step - 1):
                ahead.start(posterior, keys.select, num_prompts)
            return keys

        next_keys = choose_ahead(progress.selector, progress.step + 1)
        engine.sync(progress.state.params, progress.step)
        over = is_last(progress.step, progress.rollouts_total)
        if progress.step == 0:
            metrics, progress = validated(progress, rng.untrained_validation_key(key))
            metrics |= engine.metrics() | score.metrics()
            recorder.step(0, metrics | progress.metrics(), None)
        elif progress.validated < progress.step and (progress.step % eval_every == 0 or over):
            # The engine failed in this validation: the step was saved without.
            keys = rng.step_keys(key, progress.step)
            metrics, progress = validated(progress, keys.validation)
            recorder.add(progress.step, metrics)
        ends, clock = over or stop(), Clock()

        while not ends:
            step, keys = progress.step + 1, next_keys
            with _saved_on_failure(recorder, progress):
                # Lines 1-4: answers to every item make the first posterior; no policy learns.
                if passes.is_due(measure, sampler, progress.step):
                    with clock("measure"):
                        feedback = passes.roll_out_all(
                            choose, answer, advantage, measure, key, step, stop
                        )
                        if feedback is None:  # stopped: resumed, the run begins the pass anew
                            if progress.step:
                                recorder.save(progress, last=True)
                            break
                        posterior = sampler.update(progress.selector, feedback)
                    progress = progress.paid_for(feedback, selector=posterior)
                    ahead.start(posterior, keys.select, num_prompts)

                # Line 6 on: draw p ~ Beta for every item, score I(p) (Eq. 4), propose the top B.
                with clock("select"):
                    chosen = ahead.result()
                # To line 15: G answers to each are generated, scored and compared in their group
                # (Eq. 2); old counts decay at two speeds, the new ones come in (Eq. 5, 6).
                data, posterior = roll_out(chosen, progress.selector, step, keys, clock)

            # Update the policy with GRPO or GSPO. The next prompts are chosen meanwhile.
            next_keys = choose_ahead(posterior, step + 1)
            state, losses = progress.state, {}
            if len(data.learned_M):
                with clock("update_actor"):
                    state, losses = learn(state, *data.batch())
            metrics = losses | rounds.metrics(data, num_prompts)
            with _recorded_if_not_finite(recorder, step, metrics, data):
                scoring.check_losses(f"step {step}", losses)
            visited_I = progress.visited_I.copy()
            visited_I[data.feedback.index_M] = step
            progress = progress.paid_for(
                data.feedback,
                state=state,
                selector=posterior,
                step=step,
                visited_I=visited_I,
                more_visits=progress.more_visits
                + len(np.unique(data.feedback.index_M))
                - num_prompts,
                skipped_updates=progress.skipped_updates + (not losses),
            )
            metrics |= passes.metrics(measure, sampler, step, len(choose.items))
            metrics |= coverage(progress, num_prompts, len(choose.items))

            # The engine gets the new weights; the step is recorded and saved.
            over = is_last(step, progress.rollouts_total)
            spent = functools.partial(counted, clock, data)
            with _saved_on_failure(recorder, progress, metrics, data, spent):
                with clock("update_weights"):
                    engine.sync(state.params, step)
                if step % eval_every == 0 or over:
                    with clock("testing"):
                        found, progress = validated(progress, keys.validation)
                    metrics |= found
            recorder.step(step, metrics | spent() | progress.metrics(), data)
            ends = over or stop()  # asked once: what ends the loop has been saved
            clock = Clock()  # the next step's: it waits for the saving
            with clock("save_checkpoint"):
                recorder.save(progress, last=ends)
    return progress


def roll_out_batch(
    num_prompts: int,
    choose: Chooser,
    answer: Callable[[Chosen, jax.Array, int, Clock], tuple[Rollouts, Scores]],
    advantage: Advantage,
    refill: settings.Refill,
    chosen: Chosen,
    posterior: Any,
    step: int,
    keys: rng.StepKeys,
    clock: Clock,
) -> tuple[StepData, Any]:
    """Returns the answers that a step learns from, and the posterior that they make.

    The paper updates the posterior after the policy. That needs no weights, and done here it lets the
    next prompts be chosen while the policy learns.

    Args:
        num_prompts: B, groups of a full batch.
        choose: the selector over the data set, for other prompts in the places of groups that it drops.
        answer: generates and scores the answers to some prompts.
        advantage: compares the answers of a group (Eq. 2).
        refill: what is done about dropped groups.
        chosen: the prompts of the first round.
        posterior: the selector's state before the step.
        step: the RL step, from 1.
        keys: of the step.
        clock: of the step.
    """
    sampler, gathering = choose.sampler, Gathering(num_prompts, refill)
    while chosen.items:
        number = len(gathering.rounds)
        processes.agree(f"the prompts of step {step}, round {number + 1}", chosen.identity())
        rollouts, scores = answer(chosen, rng.round_key(keys.rollouts, number), step - 1, clock)
        with clock("adv"):
            feedback = scoring.collect(chosen.proposal, rollouts, scores, advantage)
            scoring.check_answers(f"step {step}", chosen.prompts, rollouts, feedback)
            keep_M = np.asarray(sampler.keep(posterior, feedback))
            belief = jax.device_get(sampler.believe(posterior, chosen.proposal))
            gathering.add(Round(chosen, rollouts, scores, feedback, keep_M, belief))
            posterior = sampler.update(posterior, feedback)
        if not (missing := gathering.num_missing()):
            break
        # Some groups were dropped: other prompts in their places.
        with clock("select"):
            select_key = rng.round_key(keys.select, number + 1)
            chosen = choose(posterior, select_key, missing, gathering.used)
    return gathering.finish(step), posterior


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
        if data is not None:
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
