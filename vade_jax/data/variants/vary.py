"""From an item and the difficulty wanted to a variant with the same answer."""

import collections
import dataclasses
from collections.abc import Callable, Collection

import numpy as np
from PIL import Image

from vade_jax.data import images
from vade_jax.data.variants import operators, texts
from vade_jax.data.variants.guard import graded
from vade_jax.types import Item

_PARAPHRASED = 0.5  # share of the questions about changed pictures
Made = tuple[Item, int]  # a variant, and how much harder it is


class Vary:
    """Makes variants that are as much harder as wanted, or easier.

    By `wanted - difficulty`, rounded. Below 0: the question with steps of its solution, more of them
    the further below. At 0: the question in other words. Above 0: changed pictures (`operators`),
    half of the time with other words too.

    Where an item has no texts for that, or its pictures do not bear it, the nearest that can be made
    takes its place, has its own difficulty, and is counted. Answer, kind and whatever else grading
    reads are always the item's.

    Args:
        find_texts: item -> its paraphrases and steps.
        min_pixels, max_pixels: area limits of a resized image: what is changed is what the model
            would see.
        changes: of pictures, those of `operators.CHANGES` to make.
        allowed: item -> those that leave its answer as it is, all by default.
        fits: item -> whether it can become a prompt; in the place of one that cannot comes the item.

    Attributes:
        counts: variants by sort ("hints", "paraphrase", "picture", "original"), and what there was
            not: "no_steps", "no_paraphrases", "no_pictures", "no_room" (for a question in the
            picture) and "too_long".
    """

    def __init__(
        self,
        find_texts: Callable[[Item], texts.Texts],
        *,
        min_pixels: int,
        max_pixels: int,
        changes: Collection[str] = operators.CHANGES,
        allowed: Callable[[Item], Collection[str]] = lambda item: operators.CHANGES,
        fits: Callable[[Item], bool] = lambda item: True,
    ):
        operators.check(changes)
        self._find_texts, self._allowed, self._fits = find_texts, allowed, fits
        self._limits = {"min_pixels": min_pixels, "max_pixels": max_pixels}
        self._changes = frozenset(changes)
        self.counts: collections.Counter[str] = collections.Counter()

    def __call__(
        self, item: Item, difficulty: float, wanted: float, rng: np.random.Generator
    ) -> tuple[Item, float]:
        """Returns a variant and how difficult it is."""
        delta, made = round(float(wanted) - float(difficulty)), None
        if delta < 0:
            made = self._hinted(item, delta)
        elif delta > 0:
            made = self._changed(item, delta, rng)
        variant, delta = made or self._reworded(item, rng)
        if not self._fits(variant):
            self.counts["too_long"] += 1
            variant, delta = _variant(item, "original", 0)
        assert graded(variant) == graded(item), "a variant has another answer"
        self.counts[variant.metadata["variant"].split()[0]] += 1
        return variant, float(difficulty) + delta

    def _hinted(self, item: Item, delta: int) -> Made | None:
        steps = self._find_texts(item).steps
        if not steps:
            self.counts["no_steps"] += 1
            return None
        delta = texts.hint_delta(delta, len(steps))
        num = texts.num_hints(delta, len(steps))
        question = texts.hinted(item.question, steps[:num])
        return _variant(item, f"hints {num}", delta, question)

    def _reworded(self, item: Item, rng: np.random.Generator) -> Made:
        options = texts.usable(item, self._find_texts(item).paraphrases)
        if not options:
            self.counts["no_paraphrases"] += 1
            return _variant(item, "original", 0)
        question = options[rng.integers(len(options))]
        return _variant(item, "paraphrase", 0, question)

    def _changed(self, item: Item, delta: int, rng: np.random.Generator) -> Made | None:
        question = item.question
        if rng.random() < _PARAPHRASED:
            question = self._reworded(item, rng)[0].question
        allowed = self._changes & _bears(item, self._allowed(item))
        operator = operators.choose(delta, allowed, rng)
        if operator is None:
            self.counts["no_pictures"] += 1
            return None
        shown = [images.load(picture, **self._limits) for picture in item.images]
        done = operators.apply(operator, shown, question, allowed, rng)
        if done is None:
            self.counts["no_room"] += 1
            operator = operators.choose(delta, allowed - {"write"}, rng)
            if operator is None:
                return None
            done = operators.apply(operator, shown, question, allowed, rng)
        shown, question, what = done
        shown = tuple(Image.fromarray(picture) for picture in shown)
        return _variant(item, f"picture {what}", operator.delta, question, shown)


def _bears(item, allowed):
    """The changes that an item bears at all: a question is written into a lone picture."""
    if not item.images:
        return frozenset()
    return frozenset(allowed) - (frozenset() if len(item.images) == 1 else {"write"})


def _variant(item, what, delta, question=None, shown=None) -> Made:
    """The item with another question or other pictures; nothing else can change."""
    metadata = {k: v for k, v in item.metadata.items() if k not in texts.FIELDS}
    variant = dataclasses.replace(
        item,
        uid=f"{item.uid} {what}",
        question=item.question if question is None else question,
        images=item.images if shown is None else shown,
        metadata={**metadata, "variant": what, "delta": delta},
    )
    return variant, delta
