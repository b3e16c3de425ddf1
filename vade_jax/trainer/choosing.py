"""Which prompts a step rolls out next: turns the selector's proposal into prompts."""

import dataclasses
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import jax
import numpy as np

from vade_jax import arrays, samplers
from vade_jax.data import loading
from vade_jax.types import Array, Item, Prompt, Proposal

# (items with their images, proposal, key) -> the variants shown in their place, and the proposal with the
# resulting difficulties in its `extra_M`.
Expand = Callable[[Sequence[Item], Proposal, jax.Array], tuple[Sequence[Item], Proposal]]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What one round rolls out."""

    proposal: Proposal
    items: Sequence[Item]  # without their images, which the prompts have
    prompts: Sequence[Prompt]


@dataclasses.dataclass(frozen=True)
class Pool:
    """The items to choose from, and how they become prompts.

    Attributes:
        items: the data set.
        build_prompt: item -> prompt.
        map: maps a function over items, such as in threads.
        expand: makes variants, for a selector that asks for them.
    """

    items: Sequence[Item]
    build_prompt: Callable[[Item], Prompt]
    map: loading.Map = map
    expand: Expand | None = None

    def build(self, proposal: Proposal, key: jax.Array | None = None) -> Chosen:
        """Returns the proposed prompts; with a `key` for the draws of `expand`, also with variants."""
        index_M = np.asarray(proposal.index_M).tolist()
        if self.expand is None or key is None:
            built = [*self.map(lambda i: self._built(self.items[i]), index_M)]
        else:
            items, proposal = self.expand([self.items[i] for i in index_M], proposal, key)
            built = [*self.map(self._built, items)]
        items, prompts = [item for item, _ in built], [prompt for _, prompt in built]
        return Chosen(proposal, items, prompts)

    def take(self, index_M: Array, num_rollouts: int) -> Chosen:
        """Returns prompts that no selector has proposed, all to be answered equally often."""
        num_rollouts_M = np.full(len(index_M), num_rollouts, np.int32)
        return self.build(Proposal(index_M=index_M, num_rollouts_M=num_rollouts_M))

    def _built(self, item: Item) -> tuple[Item, Prompt]:
        # A decoded image takes megabytes, so only the resized one in the prompt is kept.
        return item.without_images(), self.build_prompt(item)


def choose(
    selector: samplers.Sampler,
    pool: Pool,
    posterior: samplers.State,
    key: jax.Array,
    num_prompts: int,
    used: AbstractSet[int] = frozenset(),
) -> Chosen:
    """Returns the prompts of a round, chosen with `key` by `posterior`.

    There are `num_prompts` of them, or fewer if the step has `used` nearly all items.

    A selector does not know which items the step has used. If it proposes one of them, it proposes again,
    with the same draws, a batch large enough to leave `num_prompts` others. Such batches have few sizes,
    because each size compiles. Their order is random, so the others are not strictly the next best.
    """

    def ask(number: int) -> Proposal:
        if not selector.needs.variants:  # variants take more places than items
            number = min(number, len(pool.items))
        proposal = jax.device_get(selector.propose(posterior, key, number))
        _check(proposal, number, len(pool.items), has_variants=selector.needs.variants)
        return proposal

    proposal = ask(num_prompts)
    if not used.isdisjoint(proposal.index_M.tolist()):
        more = ask(arrays.bucket(len(used) + num_prompts, 1))
        both = jax.tree.map(lambda a, b: np.concatenate([a, b]), proposal, more)
        _, place_M = np.unique(both.index_M, return_index=True)
        unused = [m for m in sorted(place_M) if int(both.index_M[m]) not in used][:num_prompts]
        proposal = jax.tree.map(lambda x: x[unused], both)
    return pool.build(proposal, key)


def _check(proposal: Proposal, number: int, num_items: int, *, has_variants: bool) -> None:
    """Raises ValueError if a selector, which may be a user's own, breaks its contract."""
    index_M, num_M = proposal.index_M, proposal.num_rollouts_M
    keeps = index_M.dtype.kind == "i" and index_M.shape == num_M.shape
    keeps = keeps and np.all((index_M >= 0) & (index_M < num_items) & (num_M >= 1))
    if not keeps or not (has_variants or len(set(index_M.tolist())) == len(index_M) == number):
        raise ValueError(
            f"the selector proposed the items {index_M!r:.99} with {num_M!r:.99} answers: give int32 indices of "
            f"{number} different items, below {num_items}, and 1 answer or more to each"
        )
