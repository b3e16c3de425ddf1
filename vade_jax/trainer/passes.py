"""A pass over the data: every item is rolled out, but only the selector learns from the answers.

Lines 1-4 of Algorithm 1 of VADE (arXiv 2511.18902) are one such pass before the first step; MMR1 (arXiv
2509.21268) computes its weights from a pass every T steps. The answers cost as much as others, so they
count in `vade/rollouts_total`, but the policy is not trained on them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent import futures

import jax
import numpy as np

from vade_jax import rng, samplers, settings
from vade_jax.rollout.engine import Engine
from vade_jax.trainer import collect, scoring
from vade_jax.trainer.choosing import ChoosePrompts
from vade_jax.trainer.scoring import Advantage, Scorer
from vade_jax.trainer.timing import Clock
from vade_jax.types import Feedback, Metrics, Rollouts


@dataclasses.dataclass(frozen=True)
class Passes:
    """When a run makes passes, and what they cost."""

    measure: settings.Measure
    selector: samplers.Sampler
    num_items: int

    def is_due(self, done: int) -> bool:
        """Returns whether there is a pass after `done` steps."""
        every = self.measure.every
        return (done == 0 and self._comes_first()) or (every > 0 and done % every == 0)

    def cost(self, done: int) -> int:
        """Returns the number of answers of the pass after `done` steps; 0 if there is none."""
        return self.is_due(done) * self.num_items * self.measure.num_rollouts

    def metrics(self, step: int) -> Metrics:
        """Returns the answers of all passes up to a step; nothing where there are none."""
        every = self.measure.every
        number = 1 + (step - 1) // every if every else int(self._comes_first())
        rollouts = number * self.num_items * self.measure.num_rollouts
        return {"vade/measured_rollouts": rollouts} if number else {}

    def _comes_first(self) -> bool:
        return self.selector.needs.passes == "first"


def measure(
    choose: ChoosePrompts,
    engine: Engine,
    score: Scorer,
    advantage: Advantage,
    section: settings.Measure,
    *,
    key: jax.Array,
    step: int,
    stop: Callable[[], bool] = lambda: False,
) -> Feedback | None:
    """Returns the feedback on all items, in their order; None if the pass was stopped.

    Args:
        choose: builds the prompts.
        engine: makes the answers.
        score: rewards them.
        advantage: compares the answers of a group.
        section: the number of answers to an item, and of items in a batch; the last batch may be smaller.
        key: the run's.
        step: the step after the pass.
        stop: called between batches, because a pass may take hours; a stopped pass keeps nothing.
    """
    num_items, size = len(choose.items), section.num_prompts
    clock = Clock()  # its times are not read: the loop times the whole pass as one phase
    batches = [range(i, min(i + size, num_items)) for i in range(0, num_items, size)]
    build = lambda batch: choose.everything(batch, section.num_rollouts)
    measured = []
    with futures.ThreadPoolExecutor(1, "pass") as thread:
        ahead = thread.submit(build, batches[0])
        for number, after in enumerate([*batches[1:], None]):
            chosen = ahead.result()
            if number and stop():
                return None
            if after is not None:  # the next prompts are built meanwhile
                ahead = thread.submit(build, after)
            batch_key = rng.pass_key(key, step, number)
            rollouts, scores = collect.answer(engine, score, chosen, batch_key, step - 1, clock)
            feedback = scoring.feedback_of(chosen.proposal, rollouts, scores, advantage)
            when = f"the pass before step {step}"
            scoring.check_answers(when, chosen.prompts, rollouts, feedback)
            names = choose.selector.needs.named("measured")
            values = _from_tokens(rollouts, len(chosen.items), names)
            measured.append(feedback.replace(extra_M=values))
    return collect.join(measured, list(map(len, batches)))


def _from_tokens(
    rollouts: Rollouts, num_groups: int, measures: Sequence[str]
) -> dict[str, np.ndarray] | None:
    """Returns the values that a selector needs from the answers' tokens, such as MMR1's diversity."""
    valid_N = rollouts.valid_N
    answers = (rollouts.token_NT, rollouts.length_N, rollouts.group_N)
    found = {
        name: samplers.FROM_TOKENS[name](*(x[valid_N] for x in answers), num_groups=num_groups)
        for name in measures
        if name in samplers.FROM_TOKENS
    }
    return found or None
