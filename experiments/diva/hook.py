"""The hook for selectors that ask for variants: makes them, and computes advantages on two levels."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from experiments.diva import advantages, built_in, variants
from vade_jax import samplers, settings
from vade_jax.data import procedural, prompts
from vade_jax.trainer.scoring import Advantage
from vade_jax.types import Item


def check(run: settings.Run) -> None:
    """Checks what `settings.Diva` cannot: the changes of pictures, and that problems are whole.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    try:
        variants.check_changes(run.diva.changes)
    except ValueError as error:
        raise ValueError(f"diva.{error}") from None
    mixture = procedural.expand_mixture(run.data.mixture) if run.data.mixture else ()
    if without := [family for family, _ in mixture if procedural.FAMILIES[family][2] == "text"]:
        raise ValueError(
            f"data.mixture with {run.selector.name}, which varies pictures, and {without[0]!r} has none: leave "
            "it out"
        )
    if run.measure.every:
        raise ValueError(
            f"measure.every={run.measure.every} with {run.selector.name}, which learns from problems beside "
            "their variants, and a pass has none: set it to 0"
        )
    if not run.scale_by_std:
        raise ValueError(
            f"scale_by_std=False with {run.selector.name}, whose advantages are divided by stds: set it to True"
        )
    spec = samplers.find(run.selector.name)
    options: Any = spec.options(**run.selector.options)
    slots = 1 + options.num_variants
    if run.num_prompts % slots:
        raise ValueError(
            f"num_prompts={run.num_prompts}: a problem and its variants take {slots} prompts; set "
            f"it to a multiple of {slots}, or change selector.options.num_variants"
        )


def check_texts(run: settings.Run, items: Iterable[Item]) -> None:
    """Prints how many items lack texts that variants are made from; `ValueError` if all of them do."""
    is_built_in = run.data.train == "procedural"  # which has them all
    if not is_built_in and (lacking := variants.count_lacking(items)):
        print(f"train: items without {dict(lacking)}; the nearest variant is made instead")


def advantage(run: settings.Run) -> Advantage:
    """Returns the advantages of `advantages.two_level`, with the run's options."""
    options = run.diva.to_dict() | {"padded_length": run.sampling.max_tokens}
    del options["changes"]  # of pictures: all else in the section is about the advantages
    # The largest reward of a user's functions is not known.
    options["highest"] = None if run.reward.functions else 1.0

    def two_level(reward_N, group_N, num_groups, valid_N, length_N, proposal):
        del num_groups  # the proposal's slots
        return advantages.two_level(
            jnp.asarray(reward_N),
            jnp.asarray(group_N),
            advantages.problems(proposal.extra_M["variant"]),
            jnp.asarray(proposal.extra_M["difficulty"]),
            valid_N=jnp.asarray(valid_N),
            length_N=jnp.asarray(length_N),
            **options,
        )

    return two_level


def vary(run: settings.Run, build_prompt: prompts.PromptBuilder) -> variants.Vary:
    """Returns the maker of variants of the training items."""

    def fits(item: Item) -> bool:
        try:
            build_prompt(item)
        except prompts.RejectedItem:
            return False
        return True

    more: dict[str, Any]
    if run.data.train == "procedural":
        texts, more = built_in.texts, {"allowed": built_in.allowed}
    else:
        texts, more = variants.from_metadata, {}
    limits = {"min_pixels": run.data.min_pixels, "max_pixels": run.data.max_pixels}
    limits["patch"] = build_prompt.tokenizer.patch
    return variants.Vary(texts, changes=run.diva.changes, fits=fits, **limits, **more)
