"""What a run adds for a selector that asks for variants: they are made, and compared on two levels."""

import collections
from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import samplers, settings
from vade_jax.data import prompts
from vade_jax.recipes.diva import advantages, built_in, variants
from vade_jax.trainer.scoring import Advantage
from vade_jax.types import Item, Proposal

# Makes a variant of an item: from its difficulty and the wanted one to the variant and its own.
Vary = Callable[[Item, float, float, np.random.Generator], tuple[Item, float]]


def check(run: settings.Run) -> None:
    """Checks what `settings.Diva` cannot: the changes of pictures, and that problems are whole.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    try:
        variants.check_changes(run.diva.changes)
    except ValueError as error:
        raise ValueError(f"diva.{error}") from None
    method = samplers.SAMPLERS[run.sampler.name]
    slots = 1 + method.options(**run.sampler.options).num_variants
    if run.num_prompts % slots:
        raise ValueError(
            f"num_prompts={run.num_prompts}: a problem and its variants take {slots} prompts; set "
            f"it to a multiple of {slots}, or change sampler.options.num_variants"
        )


def check_texts(run: settings.Run, items: Iterable[Item]) -> None:
    """Prints how many items lack the texts that variants are made from.

    Raises:
        ValueError: all of them do.
    """
    if run.data.train == "procedural":
        return
    if lacking := variants.count_lacking(items, variants.from_metadata):
        print(f"train: items without {dict(lacking)}; the nearest variant is made instead")


def advantage(run: settings.Run) -> Advantage:
    """Returns the advantages of `advantages.two_level`, with the run's options."""
    options = {
        **{"norm": run.diva.norm, "balance": run.diva.balance},
        **{"weight": run.diva.weight, "weighted": run.diva.weighted},
        "local_share": run.diva.local_share,
        "global_share": run.diva.global_share,
        "padded_length": run.sampling.max_tokens,
    }

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
    """Returns what makes variants of the training items."""

    def fits(item: Item) -> bool:
        try:
            build_prompt(item)
        except prompts.RejectedItem:
            return False
        return True

    limits = {"min_pixels": run.data.min_pixels, "max_pixels": run.data.max_pixels}
    more = {"changes": tuple(run.diva.changes), "fits": fits, **limits}
    if run.data.train == "procedural":
        return variants.Vary(built_in.texts, allowed=built_in.allowed, **more)
    return variants.Vary(variants.from_metadata, **more)


def expand(run: settings.Run, build_prompt: prompts.PromptBuilder) -> "Expand":
    """Returns what makes the variants that a proposal asks for."""
    return Expand(vary(run, build_prompt))


class Expand:
    """Makes the variants that a proposal asks for.

    `proposal.extra_M` has "variant", the ordinal of each slot within its problem (0 is the item itself,
    the others are made from it and stand behind it), and "difficulty", how hard each is to be.

    Args:
        vary: makes one variant, such as `variants.Vary` or a function of one's own. A variant that
            would be graded differently is replaced by its item.

    Attributes:
        counts: variants by sort, of `vary` where it counts them, and "changed_answer", those that
            were replaced.
    """

    def __init__(self, vary: Vary):
        self._vary = vary
        self._replaced: collections.Counter[str] = collections.Counter()

    @property
    def counts(self) -> collections.Counter[str]:
        return self._replaced + getattr(self._vary, "counts", collections.Counter())

    def __call__(
        self, items: Sequence[Item], proposal: Proposal, key: jax.Array
    ) -> tuple[list[Item], Proposal]:
        """Returns the item of each slot, and the proposal with the difficulties as they are.

        Args:
            items: of each slot, all of a problem the same, with their images.
            proposal: on the host.
            key: decides, with the number of the slot, what `vary` draws: a resumed run makes the
                variants that the uninterrupted one would have made.
        """
        made, variant_M = list(items), np.asarray(proposal.extra_M["variant"])
        wanted_M = np.asarray(proposal.extra_M["difficulty"], np.float32)
        difficulty_M = wanted_M.copy()
        for m in np.flatnonzero(variant_M):
            own = float(wanted_M[m - variant_M[m]])  # of the problem itself
            rng = np.random.default_rng([*jax.random.key_data(key).tolist(), int(m)])
            variant, difficulty = self._vary(items[m], own, float(wanted_M[m]), rng)
            if variants.graded(variant) != variants.graded(items[m]):
                self._replaced["changed_answer"] += 1
                variant, difficulty = items[m], own
            made[m], difficulty_M[m] = variant, difficulty
        extra_M = {**proposal.extra_M, "difficulty": difficulty_M}
        return made, proposal.replace(extra_M=extra_M)
