"""Algorithm 1 of VADE (arXiv 2511.18902), with every part passed in: the only training loop.

A step is one or more rounds of propose -> generate -> score -> keep -> update the posterior, see
`rounds`, and then: update the policy -> sync -> write -> save. A step draws from `fold_in(key, step)`
alone, so a resumed run repeats what an uninterrupted one would have done. Two things overlap: answers
are judged while others are being made, and the posterior is final once they are, so the next prompts
are chosen and prepared while the policy learns.
"""

import contextlib
from collections.abc import Callable
from concurrent import futures

import jax
import numpy as np

from vade_jax.rollout.engine import EngineFailure
from vade_jax.trainer import measure as measures
from vade_jax.trainer import rounds
from vade_jax.trainer.measure import Measure
from vade_jax.trainer.parts import Learn, Parts, Progress, Recorder, StepData, Validate
from vade_jax.trainer.rounds import BatchNotFilled, Refill
from vade_jax.trainer.timing import Clock
from vade_jax.types import Metrics

__all__ = [
    "BatchNotFilled",
    "Learn",
    "Measure",
    "NonFiniteLoss",
    "Parts",
    "Progress",
    "Recorder",
    "Refill",
    "StepData",
    "Validate",
    "check_finite",
    "run",
]


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
    refill: Refill = Refill(),  # noqa: B008 (frozen)
    measure: Measure = Measure(),  # noqa: B008
    stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Trains until `num_steps` are done or `stop()` is true after a step; saves before it returns.

    A step that has nothing to learn from leaves policy and optimizer as they are, and is counted.

    Args:
        parts: selector, engine, learner and the rest.
        progress: where to start.
        num_steps: RL steps in all, those already done included.
        num_prompts: prompts a step, B.
        key: of the whole run.
        eval_every: steps between validations; the first is before any step.
        refill: what a step does about the groups that the selector drops.
        measure: when all items are rolled out for the selector alone.
        stop: asked after each step.

    Raises:
        NonFiniteLoss: names the step; nothing is saved after it.
        EngineFailure: there are no more answers; every step that was taken is saved.
        BatchNotFilled: `refill` asks to stop; every step that was taken is saved.
    """
    plan = lambda selector, step: rounds.plan(
        parts, selector, _keys(key, step)[0], num_prompts
    )
    with futures.ThreadPoolExecutor(1) as beside:
        choose = lambda selector, step: beside.submit(plan, selector, step)
        following = None  # chosen ahead, but where a pass over all items comes between
        if not measure.due(progress.step):
            following = choose(progress.selector, progress.step + 1)
        parts.engine.sync(progress.state.params, progress.step)
        if progress.step == 0:
            metrics = parts.validate(parts.engine, jax.random.fold_in(key, 0), 0)
            parts.recorder.step(0, metrics | _totals(progress), None)
        stopped = stop()
        while progress.step < num_steps and not stopped:
            step, clock = progress.step + 1, Clock()
            *keys, eval_key = _keys(key, step)
            with _saved_on_failure(parts.recorder, progress):
                if measure.due(progress.step):
                    with clock("measure"):
                        progress = measures.run(
                            parts,
                            progress,
                            jax.random.fold_in(key, step),
                            measure.num_rollouts,
                            num_prompts,
                        )
                    following = choose(progress.selector, step)
                with clock("select"):
                    planned = following.result()
                data = rounds.gather(
                    parts, progress, planned, keys, num_prompts, refill, clock
                )
            if step < num_steps and not measure.due(step):
                following = choose(data.selector, step + 1)
            state, losses = _learn(parts, progress, data, clock)
            metrics = losses | rounds.metrics(data, num_prompts)
            metrics |= measure.metrics(step, len(parts.items))
            progress = _after(progress, state, data, learned=bool(losses))
            with _saved_on_failure(parts.recorder, progress, metrics, data):
                with clock("update_weights"):
                    parts.engine.sync(state.params, step)
                if step % eval_every == 0 or step == num_steps:
                    with clock("testing"):
                        metrics |= parts.validate(parts.engine, eval_key, step)
            metrics |= parts.engine.metrics()
            metrics |= clock.metrics(data.prompts, data.rollouts)
            parts.recorder.step(step, metrics | _totals(progress), data)
            stopped = stop()  # asked once: what ends the loop has been saved
            parts.recorder.save(progress, last=step == num_steps or stopped)
    return progress


def _keys(key, step):
    """The keys of a step's selection, rollouts and validation."""
    return jax.random.split(jax.random.fold_in(key, step), 3)


def _learn(parts, progress, data, clock):
    """Returns the new state and the losses; where no group is kept, the old one and none."""
    if not len(data.learned_M):
        return progress.state, {}
    with clock("update_actor"):
        state, losses = parts.learn(progress.state, *rounds.batch(data))
    check_finite(f"step {progress.step + 1}", losses)
    return state, losses


def _after(progress, state, data, *, learned):
    return Progress(
        state=state,
        selector=data.selector,
        step=progress.step + 1,
        rollouts_total=progress.rollouts_total + len(data.rollouts.length_N),
        tokens_total=progress.tokens_total + int(data.rollouts.length_N.sum()),
        seen=progress.seen.union(map(int, data.feedback.index_M)),
        skipped_updates=progress.skipped_updates + (not learned),
    )


@contextlib.contextmanager
def _saved_on_failure(recorder, progress, metrics=None, data=None):
    """Records and saves the last step when no other can follow it, then passes on why."""
    try:
        yield
    except (EngineFailure, BatchNotFilled):
        if data is not None:
            recorder.step(progress.step, metrics | _totals(progress), data)
        if progress.step:
            recorder.save(progress, last=True)
        raise


def _totals(progress):
    return {
        "vade/rollouts_total": progress.rollouts_total,
        "vade/tokens_total": progress.tokens_total,
        "vade/unique_selected": len(progress.seen),
        "vade/skipped_updates": progress.skipped_updates,
    }


def check_finite(when: str, losses: Metrics) -> None:
    """Raises NonFiniteLoss, which says when, unless every loss is a number."""
    bad = {name: float(x) for name, x in losses.items() if not np.isfinite(x)}
    if bad:
        raise NonFiniteLoss(
            f"{when}: {bad}; the last checkpoint is from before it: "
            "lower the learning rate or look at the rollouts"
        )
