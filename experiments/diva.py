"""What the sampler "diva" adds to a run: variants of every problem, and advantages on two levels.

The fields of `c.diva`: `changes` of pictures, and the options of `losses.diva.two_level`.
"""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from vade_jax.data import prompts, variants
from vade_jax.data.variants import builtin, operators
from vade_jax.losses import diva
from vade_jax.trainer import feedback
from vade_jax.types import Item

NAME = "diva"


def check(c: ConfigDict) -> None:
    """Raises ValueError for an option that there is not, or a batch that is no whole problems."""
    options = {k: c.diva[k] for k in ("norm", "weighted", "balance")}
    try:
        diva.check_options(**options)
        operators.check(c.diva.changes)
    except ValueError as error:
        raise ValueError(f"diva.{error}") from None
    if c.sampler.name != NAME:
        return
    slots = 1 + c.sampler.options.get("num_variants", 1)
    if c.num_prompts % slots:
        raise ValueError(
            f"num_prompts={c.num_prompts}: a problem and its variants take {slots} prompts; set it "
            f"to a multiple of {slots}, or change sampler.options.num_variants"
        )


def check_texts(c: ConfigDict, items: Iterable[Item]) -> None:
    """Says how many items lack the texts that variants are made from.

    Raises:
        ValueError: all of them do.
    """
    if c.sampler.name != NAME or _is_built_in(c):
        return
    if lacking := variants.check(items, variants.from_metadata):
        print(
            f"train: items without {dict(lacking)}; the nearest variant is made instead"
        )


def parts(c: ConfigDict, build_prompt: prompts.PromptBuilder) -> dict[str, Any]:
    """Returns the fields of `trainer.parts.Parts` that the sampler needs."""
    return {"advantage": advantage(c), "vary": vary(c, build_prompt)}


def advantage(c: ConfigDict) -> feedback.Advantage:
    """Returns the advantages of `losses.diva`."""
    options = {k: v for k, v in c.diva.items() if k != "changes"}
    options["padded_length"] = c.sampling.max_tokens

    def two_level(reward_N, group_N, num_groups, valid_N, length_N, proposal):
        del num_groups  # the proposal's slots
        return diva.two_level(
            jnp.asarray(reward_N),
            jnp.asarray(group_N),
            diva.problems(proposal.extra_M["variant"]),
            jnp.asarray(proposal.extra_M["difficulty"]),
            valid_N=jnp.asarray(valid_N),
            length_N=jnp.asarray(length_N),
            **options,
        )

    return two_level


def vary(c: ConfigDict, build_prompt: prompts.PromptBuilder) -> variants.Vary:
    """Returns what makes variants of the training items."""

    def fits(item: Item) -> bool:
        try:
            build_prompt(item)
        except prompts.RejectedItem:
            return False
        return True

    limits = {k: c.data[k] for k in ("min_pixels", "max_pixels")}
    more = {"changes": tuple(c.diva.changes), "fits": fits, **limits}
    if _is_built_in(c):
        return variants.Vary(builtin.texts, allowed=builtin.allowed, **more)
    return variants.Vary(variants.from_metadata, **more)


def _is_built_in(c):
    return c.data.train == "procedural"
