"""The hook for selectors that ask for variants: makes them, and computes advantages on two levels."""

import dataclasses
from collections.abc import Iterable, Mapping

import jax.numpy as jnp

from experiments.diva import advantages, built_in, pictures, variants
from experiments.diva.selector import DivaOptions
from vade_jax import fields, samplers, settings
from vade_jax.data import procedural, prompts
from vade_jax.trainer.choosing import Expand
from vade_jax.trainer.scoring import Advantage
from vade_jax.types import Item

# Options of the selector that `advantages.two_level` takes.
OF_ADVANTAGES = ("weight", "local_share", "global_share")


def _options(run: settings.Run) -> DivaOptions:
    return DivaOptions.from_dict(run.selector.options)


def check(run: settings.Run) -> None:
    """Checks what `DivaOptions` cannot: the changes of pictures, and that problems have all their slots."""
    name = run.selector.name
    for change in _options(run).changes:
        fields.check_word("selector.options.changes", change, pictures.CHANGES)
    mixture = procedural.expand_mixture(run.data.mixture) if run.data.mixture else ()
    if without := [x for x in mixture if procedural.FAMILIES[x.split("_")[0]][2] == "text"]:
        raise ValueError(
            f"data.mixture with {name}, which varies pictures, and {without[0]!r} has none: leave it out"
        )
    if not run.scale_by_std:
        raise ValueError(
            f"scale_by_std=False with {name}, whose advantages are divided by stds: set it to True"
        )
    slots = samplers.find(name)(**run.selector.options).needs.places
    if run.num_prompts % slots:
        raise ValueError(
            f"num_prompts={run.num_prompts}: a problem and its variants take {slots} prompts; set "
            f"it to a multiple of {slots}, or change selector.options.num_variants"
        )


@dataclasses.dataclass(frozen=True)
class Maker:
    """See `run.hooks.Vary`."""

    expand: Expand
    advantage: Advantage
    counts: Mapping[str, int]


def make(run: settings.Run, items: Iterable[Item], build_prompt: prompts.PromptBuilder) -> Maker:
    """Returns the maker of variants; prints how many items lack texts for variants.

    Raises:
        ValueError: all items lack them.
    """
    is_built_in = run.data.train == "procedural"  # which has its own
    if not is_built_in and (lacking := variants.count_lacking(items)):
        print(f"train: items without {dict(lacking)}; the nearest variant is made instead")
    maker = vary(run, build_prompt)
    return Maker(maker.expand, advantage(run), maker.counts)


def advantage(run: settings.Run) -> Advantage:
    """Returns the advantages of `advantages.two_level`, with the run's options."""
    options = {name: getattr(_options(run), name) for name in OF_ADVANTAGES}
    # The largest reward of a user's functions is not known.
    options["highest"] = None if run.reward.functions else 1.0

    def two_level(reward_N, group_N, num_groups, valid_N, extra_M):
        del num_groups
        return advantages.two_level(
            jnp.asarray(reward_N),
            jnp.asarray(group_N),
            advantages.problems(extra_M["variant"]),
            jnp.asarray(extra_M["difficulty"]),
            valid_N=jnp.asarray(valid_N),
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

    is_built_in = run.data.train == "procedural"
    return variants.Vary(
        built_in.texts if is_built_in else variants.from_metadata,
        min_pixels=run.data.min_pixels,
        max_pixels=run.data.max_pixels,
        patch=build_prompt.tokenizer.patch,
        changes=_options(run).changes,
        fits=fits,
        **({"allowed": built_in.allowed} if is_built_in else {}),
    )
