"""What a round rolls out: the selector's choice among what its step has not used, made into prompts."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import jax
import numpy as np

from vade_jax import arrays
from vade_jax.trainer.parts import Parts
from vade_jax.types import Item, Prompt, Proposal


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a round rolls out."""

    proposal: Proposal
    items: Sequence[Item]  # without their images, which the prompts have
    prompts: Sequence[Prompt]
    seconds: float  # that it took, in whatever thread


def plan(
    parts: Parts,
    selector: Any,
    key: jax.Array,
    num_prompts: int,
    used: AbstractSet[int] = frozenset(),
) -> Plan:
    """Returns what a round rolls out, chosen by the posterior before it.

    Args:
        parts: of the run.
        selector: its state.
        key: of the choice.
        num_prompts: how many; fewer, or none, where the data has not as many that are unused.
        used: items that this step has rolled out.
    """
    start = time.perf_counter()
    proposal = _propose(parts, selector, key, num_prompts, used)
    read = lambda m: parts.items[int(proposal.index_M[m])]
    if has_variants(proposal):
        items = parts.map(read, range(len(proposal.index_M)))
        varied, proposal = _varied(parts, items, proposal, key)
        read = varied.__getitem__
    items, prompts = build(parts, read, range(len(proposal.index_M)))
    return Plan(proposal, items, prompts, time.perf_counter() - start)


def build(
    parts: Parts, read: Callable[[int], Item], numbers: Sequence[int]
) -> tuple[list[Item], list[Prompt]]:
    """Returns the items that `read` gives of `numbers`, without their images, and their prompts."""

    def one(number):
        item = read(number)
        return item.without_images(), parts.build_prompt(item)

    made = parts.map(one, numbers)
    return [item for item, _ in made], [prompt for _, prompt in made]


def has_variants(proposal: Proposal) -> bool:
    """Returns whether the proposal asks for variants of items.

    Then `extra_M` has "variant", the ordinal of each slot within its problem (0 is the item itself,
    the others are made from it and stand behind it), and "difficulty", how hard each is to be.
    """
    return "variant" in (proposal.extra_M or {})


def _propose(parts, selector, key, num_prompts, used):
    """Returns the selector's choice among what is not used.

    It is asked for as many as are wanted. If it names used ones, it is asked with the same key, so
    with the same draws, for so many that enough are left, in a few sizes: little is compiled.
    """
    ask = lambda number: jax.device_get(
        parts.sampler.propose(selector, key, min(number, len(parts.items)))
    )
    proposal = ask(num_prompts)
    unused_M = _not_in(used, proposal.index_M)
    if unused_M.all():
        return proposal
    first = _take(proposal, unused_M)
    more = ask(arrays.bucket(len(used) + num_prompts, 1))
    chosen = used | set(first.index_M.tolist())
    more = _take(more, _not_in(chosen, more.index_M))
    return jax.tree.map(lambda a, b: np.concatenate([a, b])[:num_prompts], first, more)


def _not_in(used, index_M):
    return np.array([int(i) not in used for i in index_M], bool)


def _take(proposal, where_M):
    return jax.tree.map(lambda x: x[where_M], proposal)


def _varied(parts, items, proposal, key):
    """Returns the variants of the items that are asked for, and how hard they are."""
    assert parts.vary is not None, "variants were asked for, but nothing makes them"
    made, variant_M = list(items), proposal.extra_M["variant"]
    wanted_M = np.asarray(proposal.extra_M["difficulty"], np.float32)
    difficulty_M = wanted_M.copy()
    for m in np.flatnonzero(variant_M):
        original = m - variant_M[m]
        rng = np.random.default_rng([*jax.random.key_data(key).tolist(), int(m)])
        made[m], difficulty_M[m] = parts.vary(
            items[m],
            float(wanted_M[original]),
            float(wanted_M[m]),
            rng,
        )
    extra_M = {**proposal.extra_M, "difficulty": difficulty_M}
    return made, proposal.replace(extra_M=extra_M)
