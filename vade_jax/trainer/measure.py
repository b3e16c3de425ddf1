"""A pass over the data: every T steps all items are rolled out, for the selector alone.

MMR1 (arXiv 2509.21268) makes its weights from such passes; before VADE's first step one is its paper's
warm-up. The answers are paid for, so they count in `vade/rollouts_total`, but the policy does not
learn from them.
"""

import dataclasses
import time
from concurrent import futures

import jax
import numpy as np

from vade_jax.samplers import diversity
from vade_jax.trainer import groups, plans, rounds
from vade_jax.trainer.parts import Parts, Progress
from vade_jax.trainer.timing import Clock
from vade_jax.types import Feedback, Metrics, Proposal

DRAWS = 2**20  # folded into the step's key: far above what the step itself folds in


@dataclasses.dataclass(frozen=True)
class Measure:
    """When all items are rolled out.

    Attributes:
        every: T, steps between two passes; the first is before the first step. 0: never.
        num_rollouts: N, answers to each item.
    """

    every: int = 0
    num_rollouts: int = 8

    def due(self, done: int) -> bool:
        """Returns whether a pass follows after `done` steps."""
        return self.every > 0 and done % self.every == 0

    def metrics(self, step: int, num_items: int) -> Metrics:
        """Returns the answers of all passes up to a step; nothing where there are none."""
        if not self.every:
            return {}
        passes = 1 + (step - 1) // self.every
        return {"vade/measured_rollouts": passes * num_items * self.num_rollouts}


def run(
    parts: Parts,
    progress: Progress,
    key: jax.Array,
    num_rollouts: int,
    num_prompts: int,
) -> Progress:
    """Returns `progress` with a selector that has seen answers to every item.

    Args:
        parts: of the run.
        progress: the engine holds its weights. A pass is not saved: resumed, it is made again.
        key: of the step that follows.
        num_rollouts: answers to each item.
        num_prompts: items in the engine at once.

    Raises:
        EngineFailure: there are no more answers.
    """
    feedback = whole(parts, progress, key, num_rollouts, num_prompts)
    return dataclasses.replace(
        progress,
        selector=parts.sampler.update(progress.selector, feedback),
        rollouts_total=progress.rollouts_total + len(feedback.length_N),
        tokens_total=progress.tokens_total + int(feedback.length_N.sum()),
    )


def whole(
    parts: Parts,
    progress: Progress,
    key: jax.Array,
    num_rollouts: int,
    num_prompts: int,
) -> Feedback:
    """Returns what the answers to all items say, the items in order; arguments are `run`'s.

    The next batch's prompts are built while one is answered. The last batch may be smaller.
    """
    num_items, clock, found = len(parts.items), Clock(), []
    batches = [
        range(i, min(i + num_prompts, num_items))
        for i in range(0, num_items, num_prompts)
    ]
    with futures.ThreadPoolExecutor(1) as beside:
        plan = lambda batch: beside.submit(_plan, parts, batch, num_rollouts)
        following = plan(batches[0])
        for number, after in enumerate([*batches[1:], None]):
            planned = following.result()
            if after is not None:
                following = plan(after)
            of_batch = jax.random.fold_in(key, DRAWS + number)
            one = rounds.roll_out(
                parts, progress.selector, planned, of_batch, progress.step, clock
            )
            found.append(_measured(one, parts.sampler.measures))
    return groups.join(found, list(map(len, batches)))


def _plan(parts, batch, num_rollouts):
    start = time.perf_counter()
    proposal = Proposal(
        index_M=np.array(batch, np.int32),
        num_rollouts_M=np.full(len(batch), num_rollouts, np.int32),
    )
    items, prompts = plans.build(parts, parts.items.__getitem__, batch)
    return plans.Plan(proposal, items, prompts, time.perf_counter() - start)


def _measured(one, measures):
    """The feedback of a batch, with what the answers' tokens alone can tell."""
    if "self_bleu" not in measures:
        return one.feedback
    rollouts = one.rollouts
    answers = (rollouts.token_NT, rollouts.length_N, rollouts.group_N)
    valid = (x[rollouts.valid_N] for x in answers)
    self_bleu_M = diversity.self_bleu(*valid, len(one.items))
    return one.feedback.replace(extra_M={"self_bleu": self_bleu_M})
