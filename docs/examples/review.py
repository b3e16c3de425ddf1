"""Selectors that keep a part of each batch for review, to find out whether that prevents unlearning.

The arms of a sweep, such as `--config.arms=docs/examples/review.py:POOLED_TENTH`, are at the end. VADE and
`informed` with a quarter of the batch are `vade_uniform_quarter` and `informed_quarter`; uniform and VADE
with ReMind's queue are `remind` and `remind_vade`.
"""

import dataclasses

import jax.numpy as jnp

from vade_jax import fields, rng, samplers
from vade_jax.samplers import base, beta, categories, informed, per_item, ranking, vade
from vade_jax.samplers.rivals import queues


@dataclasses.dataclass(frozen=True)
class SharedOptions(categories.PooledOptions):
    uniform_share: float = fields.fraction(0.0)


def pooled(options):
    """Returns pooled; a share of each batch is drawn evenly from all items, as an option of VADE does."""
    whole = categories.pooled(options)

    def propose(state, key, num_prompts):
        keys = rng.selection_keys(key)
        posterior = categories.posterior(state, options.strength)
        mixed_I = beta.prob_mixed(*posterior, options.num_rollouts)
        score_I = ranking.gumbel_scores(jnp.log(mixed_I), keys.draw)
        num_uniform = ranking.share_of(options.uniform_share, num_prompts)
        score_I = ranking.mix_uniform(score_I, keys.uniform, num_uniform)
        index_M = ranking.top_b(score_I, keys.ties, num_prompts)
        return ranking.same_num_rollouts(index_M, options.num_rollouts)

    return base.compiled(
        whole.init, propose, whole.update, believe=whole.believe, needs=whole.needs
    )


def spec(name, kind, selector, goes_with=None, **changed):
    """Returns the entry of a selector whose options have other defaults."""
    parts = [(option, type(value), value) for option, value in changed.items()]
    options = dataclasses.make_dataclass(name, parts, bases=(kind,), frozen=True)
    return base.Spec(name, options, selector, goes_with=goes_with or {})


def queue(name, around, goes_with=None):
    """Returns the entry of a selector with ReMind's queue around it."""
    selector = lambda options: queues.remind(samplers.SAMPLERS, options)
    return spec(name, queues.RemindOptions, selector, goes_with, base=around)


BY_CATEGORY = per_item.WITH_CATEGORY
POOLED_TENTH = spec("pooled_tenth", SharedOptions, pooled, BY_CATEGORY, uniform_share=0.1)
POOLED_QUARTER = spec("pooled_quarter", SharedOptions, pooled, BY_CATEGORY, uniform_share=0.25)
POOLED_QUEUE = queue("pooled_queue", "pooled", BY_CATEGORY)
INFORMED_TENTH = spec(
    "informed_tenth", informed.InformedOptions, informed.selector, uniform_share=0.1
)
INFORMED_QUEUE = queue("informed_queue", "informed")
VADE_TENTH = spec("vade_tenth", vade.VadeOptions, vade.selector, uniform_share=0.1, warmup="none")
