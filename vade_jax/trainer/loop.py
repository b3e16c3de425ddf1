"""Algorithm 1 of VADE (arXiv 2511.18902), with every part passed in: the only training loop.

propose -> generate -> score -> keep -> update the posterior -> update the policy -> sync -> write ->
save. A step draws from `fold_in(key, step)` alone, so a resumed run repeats what an uninterrupted
one would have done. Two things overlap: answers are judged while others are being made, and the
posterior is final once they are, so the next prompts are chosen and prepared while the policy learns.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Protocol

import jax
import numpy as np

from vade_jax import samplers
from vade_jax.rollout.engine import Engine, EngineFailure
from vade_jax.trainer import feedback as feedbacks
from vade_jax.trainer import processes
from vade_jax.trainer.scoring import Ahead, Judge, Scores
from vade_jax.trainer.timing import Clock
from vade_jax.types import (
    Feedback,
    Item,
    Metrics,
    Prompt,
    Proposal,
    Rollouts,
    TrainState,
)

Learn = Callable[
    [TrainState, Sequence[Prompt], Rollouts, np.ndarray], tuple[TrainState, Metrics]
]
Validate = Callable[[Engine, jax.Array, int], Metrics]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Everything that a checkpoint holds and a step changes."""

    state: TrainState
    selector: Any
    step: int = 0  # RL steps done; also the version of the weights
    rollouts_total: int = 0
    tokens_total: int = 0
    seen: frozenset[int] = frozenset()  # items chosen at least once


@dataclasses.dataclass(frozen=True)
class StepData:
    """The rollouts of one step, for the log."""

    items: Sequence[Item]
    prompts: Sequence[Prompt]
    proposal: Proposal
    rollouts: Rollouts
    scores: Scores
    feedback: Feedback
    selector: Any  # the state that proposed


class Recorder(Protocol):
    """Where a run writes to."""

    def step(self, step: int, metrics: Metrics, data: StepData | None) -> None:
        """Takes the metrics of a step, and its rollouts."""

    def save(self, progress: Progress, *, last: bool) -> None:
        """Takes the progress after a step; `last`: the run ends here."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a run. The loop knows no method, model or engine by name."""

    items: Sequence[Item]
    build_prompt: Callable[[Item], Prompt]
    sampler: samplers.Sampler
    engine: Engine
    judge: Judge
    learn: Learn
    validate: Validate
    recorder: Recorder


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a step rolls out."""

    proposal: Proposal
    items: Sequence[Item]
    prompts: Sequence[Prompt]
    seconds: float  # that it took, in whatever thread


class NonFiniteLoss(RuntimeError):  # noqa: N818 (says what happened)
    """The loss or its gradient is not a number; the last checkpoint is still good."""


def run(
    parts: Parts,
    progress: Progress,
    *,
    num_steps: int,
    num_prompts: int,
    key: jax.Array,
    eval_every: int,
    scale_by_std: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Trains until `num_steps` are done or `stop()` is true after a step; saves before it returns.

    Args:
        parts: selector, engine, learner and the rest.
        progress: where to start.
        num_steps: RL steps in all, those already done included.
        num_prompts: prompts a step, B.
        key: of the whole run.
        eval_every: steps between validations; the first is before any step.
        scale_by_std: divide advantages by the group's standard deviation.
        stop: asked after each step.

    Raises:
        NonFiniteLoss: names the step; nothing is saved after it.
        EngineFailure: there are no more answers; every step that was taken is saved.
    """
    plan = lambda selector, step: plan_step(parts, selector, key, step, num_prompts)
    with futures.ThreadPoolExecutor(1) as beside:
        following = beside.submit(plan, progress.selector, progress.step + 1)
        parts.engine.sync(progress.state.params, progress.step)
        if progress.step == 0:
            metrics = parts.validate(parts.engine, jax.random.fold_in(key, 0), 0)
            parts.recorder.step(0, metrics | _totals(progress), None)
        stopped = stop()
        while progress.step < num_steps and not stopped:
            step = progress.step + 1
            _, rollout_key, eval_key = _keys(key, step)
            clock = Clock()
            with clock("select"):
                planned = following.result()
            proposal, items, prompts = planned.proposal, planned.items, planned.prompts
            processes.agree(f"the prompts of step {step}", _identity(planned))
            ahead = Ahead(parts.judge, items)
            with clock("gen"), _saved_on_failure(parts.recorder, progress):
                rollouts = parts.engine.generate(
                    prompts,
                    proposal.num_rollouts_M,
                    rollout_key,
                    progress.step,
                    on_group=ahead,
                )
                _check_version(rollouts, progress.step)
            with clock("reward"):
                scores = _of_leader(ahead.scores(rollouts))
            with clock("adv"):
                feedback = feedbacks.collect(
                    proposal, rollouts, scores, scale_by_std=scale_by_std
                )
                keep_M = parts.sampler.keep(progress.selector, feedback)
                metrics = samplers.diagnostics(progress.selector, proposal)
                selector = parts.sampler.update(progress.selector, feedback)
            if step < num_steps:
                following = beside.submit(plan, selector, step + 1)
            with clock("update_actor"):
                state, losses = parts.learn(
                    progress.state,
                    prompts,
                    feedbacks.drop(rollouts, keep_M),
                    feedback.advantage_N,
                )
            check_finite(f"step {step}", losses)
            metrics |= losses | feedbacks.metrics(feedback, rollouts)
            data = StepData(
                items, prompts, proposal, rollouts, scores, feedback, progress.selector
            )
            progress = _after(progress, state, selector, data)
            with _saved_on_failure(parts.recorder, progress, metrics, data):
                with clock("update_weights"):
                    parts.engine.sync(state.params, step)
                if step % eval_every == 0 or step == num_steps:
                    with clock("testing"):
                        metrics |= parts.validate(parts.engine, eval_key, step)
            clock.beside("prepare", planned.seconds)
            clock.beside("judge", ahead.seconds)
            metrics |= parts.engine.metrics() | clock.metrics(prompts, rollouts)
            parts.recorder.step(step, metrics | _totals(progress), data)
            stopped = stop()  # asked once: what ends the loop has been saved
            parts.recorder.save(progress, last=step == num_steps or stopped)
    return progress


def plan_step(
    parts: Parts, selector: Any, key: jax.Array, step: int, num_prompts: int
) -> Plan:
    """Returns what `step` rolls out, chosen by the posterior before it."""
    start = time.perf_counter()
    proposal = parts.sampler.propose(selector, _keys(key, step)[0], num_prompts)
    proposal = jax.device_get(proposal)
    items = [parts.items[int(i)] for i in proposal.index_M]
    prompts = [parts.build_prompt(item) for item in items]
    return Plan(proposal, items, prompts, time.perf_counter() - start)


def _identity(plan):
    """What all processes must have chosen alike."""
    return [np.asarray(plan.proposal.index_M), [prompt.text for prompt in plan.prompts]]


def _of_leader(scores):
    """A verifier with a deadline may judge differently on another host."""
    rewards = {"reward_N": scores.reward_N, "correct_N": scores.correct_N}
    return dataclasses.replace(scores, **processes.from_leader(rewards))


def _keys(key, step):
    """The keys of a step's selection, rollouts and validation."""
    return jax.random.split(jax.random.fold_in(key, step), 3)


def _after(progress, state, selector, data):
    rollouts = data.rollouts
    return Progress(
        state=state,
        selector=selector,
        step=progress.step + 1,
        rollouts_total=progress.rollouts_total + len(rollouts.length_N),
        tokens_total=progress.tokens_total + int(rollouts.length_N.sum()),
        seen=progress.seen.union(map(int, data.proposal.index_M)),
    )


@contextlib.contextmanager
def _saved_on_failure(recorder, progress, metrics=None, data=None):
    """Records and saves the last step when the engine fails behind it, then passes that on."""
    try:
        yield
    except EngineFailure:
        if data is not None:
            recorder.step(progress.step, metrics | _totals(progress), data)
        if progress.step:
            recorder.save(progress, last=True)
        raise


def _check_version(rollouts, version):
    if (found := int(rollouts.params_version)) != version:
        raise EngineFailure(
            f"the engine answered with weights {found} instead of {version}: "
            "its sync did not take"
        )


def _totals(progress):
    return {
        "vade/rollouts_total": progress.rollouts_total,
        "vade/tokens_total": progress.tokens_total,
        "vade/unique_selected": len(progress.seen),
    }


def check_finite(when: str, losses: Metrics) -> None:
    """Raises NonFiniteLoss, which says when, unless every loss is a number."""
    bad = {name: float(x) for name, x in losses.items() if not np.isfinite(x)}
    if bad:
        raise NonFiniteLoss(
            f"{when}: {bad}; the last checkpoint is from before it: "
            "lower the learning rate or look at the rollouts"
        )
