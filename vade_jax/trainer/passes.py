"""A pass over the data: every item is rolled out, but only the selector learns from the answers.

Lines 1-4 of Algorithm 1 of VADE (arXiv 2511.18902) are one such pass before the first step; MMR1 (arXiv
2509.21268) computes its weights from a pass every T steps. The answers cost as much as others, so they
count in `vade/rollouts_total`, but the policy is not trained on them.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

from vade_jax import rng, samplers, settings
from vade_jax.data import loading
from vade_jax.rollout.engine import Engine
from vade_jax.trainer import collect, scoring
from vade_jax.trainer.choosing import Pool
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
        return (done == 0 and self._comes_first) or (every > 0 and done % every == 0)

    def cost(self, done: int) -> int:
        """Returns the number of answers of the pass after `done` steps; 0 if there is none."""
        return self.is_due(done) * self.num_items * self.measure.num_rollouts

    def metrics(self, step: int) -> Metrics:
        """Returns the answers of all passes up to a step; nothing where there are none."""
        every = self.measure.every
        number = 1 + (step - 1) // every if every else int(self._comes_first)
        rollouts = number * self.num_items * self.measure.num_rollouts
        return {"vade/measured_rollouts": rollouts} if number else {}

    @property
    def _comes_first(self) -> bool:
        return self.selector.needs.passes == "first"


def measure(
    selector: samplers.Sampler,
    pool: Pool,
    key: jax.Array,
    step: int,
    engine: Engine,
    score: Scorer,
    section: settings.Measure,
    *,
    advantage: Advantage = scoring.usual_advantage,
    stop: Callable[[], bool] = lambda: False,
) -> Feedback | None:
    """Returns the feedback on all items, in their order; None if the pass was stopped.

    Args are as in `collect`, and:
        step: the step after the pass.
        section: the number of answers to an item, and of items in a batch; the last batch may be smaller.
        stop: called between batches, because a pass may take hours; a stopped pass keeps nothing.
    """
    index_I = np.arange(len(pool.items), dtype=np.int32)
    batches = np.split(index_I, range(section.num_prompts, len(index_I), section.num_prompts))
    take = functools.partial(pool.take, num_rollouts=section.num_rollouts)
    measured = []
    with loading.Threads(1) as thread:  # builds the next prompts meanwhile
        for number, chosen in enumerate(thread.stream(take, batches)):
            if number and stop():
                return None
            batch_key = rng.pass_key(key, step, number)
            when = f"the pass before step {step}"
            rollouts, _, feedback = collect.answer(
                engine, score, chosen, batch_key, step - 1, Clock(), advantage, when
            )
            values = _from_tokens(selector.needs, rollouts, len(chosen.items))
            measured.append(feedback.replace(extra_M=values))
    return collect.join(measured, list(map(len, batches)))


def _from_tokens(
    needs: samplers.Needs, rollouts: Rollouts, num_groups: int
) -> dict[str, np.ndarray] | None:
    """Returns the values that a selector needs from the answers' tokens, such as MMR1's diversity."""
    arrays_N = rollouts.token_NT, rollouts.length_N, rollouts.group_N
    answers = [x_N[rollouts.valid_N] for x_N in arrays_N]
    names = [name for name in needs.named("measured") if name in samplers.FROM_TOKENS]
    return {x: samplers.FROM_TOKENS[x](*answers, num_groups=num_groups) for x in names} or None
