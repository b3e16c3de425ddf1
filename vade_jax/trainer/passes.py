"""A pass over the data: every item is rolled out, but only the selector learns from the answers.

Lines 1-4 of Algorithm 1 of VADE (arXiv 2511.18902) are one such pass before the first step; MMR1 (arXiv
2509.21268) computes its weights from a pass every T steps. The answers cost as much as others, so they
count in `vade/rollouts_total`, but the policy is not trained on them.
"""

import functools
from collections.abc import Callable

import numpy as np

from vade_jax import rng, samplers, settings
from vade_jax.data import loading
from vade_jax.trainer.collect import Collector, join
from vade_jax.trainer.timing import Clock
from vade_jax.types import Feedback


def measure(
    collect: Collector,
    step: int,
    section: settings.Measure,
    stop: Callable[[], bool] = lambda: False,
) -> Feedback | None:
    """Returns the feedback on all items, in their order; None if the pass was stopped.

    Args:
        collect: has the items, the engine and the scores.
        step: the step after the pass.
        section: the number of answers to an item, and of items in a batch; the last batch may be smaller.
        stop: called between batches, because a pass may take hours; a stopped pass keeps nothing.
    """
    pool, needs = collect.pool, collect.selector.needs
    index_I = np.arange(len(pool.items), dtype=np.int32)
    batches = np.split(index_I, range(section.num_prompts, len(index_I), section.num_prompts))
    take = functools.partial(pool.take, num_rollouts=section.num_rollouts)
    # What the selector needs from the answers' tokens, such as MMR1's diversity.
    names = [name for name in needs.named("measured") if name in samplers.FROM_TOKENS]
    measured = []
    with loading.Threads(1) as thread:  # builds the next prompts meanwhile
        for number, chosen in enumerate(thread.stream(take, batches)):
            if number and stop():
                return None
            key, when = rng.pass_key(collect.key, step, number), f"the pass before step {step}"
            rollouts, _, feedback = collect.answer(chosen, key, step - 1, when, Clock())
            arrays_N = rollouts.token_NT, rollouts.length_N, rollouts.group_N
            answers = [x_N[rollouts.valid_N] for x_N in arrays_N]
            size = len(chosen.items)
            values = {x: samplers.FROM_TOKENS[x](*answers, num_groups=size) for x in names}
            measured.append(feedback.replace(extra_M=values or None))
    return join(measured, list(map(len, batches)))
