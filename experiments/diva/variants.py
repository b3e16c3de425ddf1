"""Makes a variant of an item with a given difference in difficulty and the same answer.

Easier variants show steps of a solution (more steps, easier); equally hard ones use other words; harder
ones change the pictures (`pictures`). Wordings and steps are prepared before training, by a language model
(`offline`) or for the built-in data (`built_in`). In a user's file they are the columns `paraphrases` and
`steps`, which become lists of texts in an item's metadata.
"""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from PIL import Image

from experiments.diva import pictures
from vade_jax.data import images
from vade_jax.types import Item, Proposal

HINTED = "{}\nWork out the whole answer yourself. These steps help: {}"
FIELDS = ("paraphrases", "steps")  # of metadata; also columns of a file
_PARAPHRASED = 0.5  # share of the questions about changed pictures


class Texts(NamedTuple):
    """The texts of one item that exist before training."""

    paraphrases: tuple[str, ...] = ()  # the question in other words
    steps: tuple[str, ...] = ()  # of a solution, in order


def from_metadata(item: Item) -> Texts:
    """Returns the texts of a user's item: the lists `paraphrases` and `steps` of its metadata."""
    listed = (map(str.strip, item.metadata.get(name) or ()) for name in FIELDS)
    return Texts(*(tuple(filter(None, texts)) for texts in listed))


def count_lacking(items: Iterable[Item]) -> collections.Counter[str]:
    """Returns how many items lack "paraphrases" or "steps"; raises ValueError if all lack one."""
    texts = [from_metadata(item) for item in items]
    lacking = collections.Counter(
        name for of_item in texts for name in FIELDS if not getattr(of_item, name)
    )
    for name in FIELDS:
        if texts and lacking[name] == len(texts):
            raise ValueError(
                f"none of {len(texts)} training items has {name!r}, which DIVA makes variants from: add a "
                f"column {name} (a list of texts), or make both with python -m experiments.make_variants"
            )
    return lacking


# ------------------------------------------------------------------------------ variants
def hints(delta: int, num_steps: int) -> tuple[int, int]:
    """Returns how many of `num_steps` steps make a problem easier by -delta, and by how much they do.

    By `delta`, unless there are fewer steps than that takes: each is worth 2, four or more up to 8.
    """
    delta = max(delta, -2 * num_steps)
    least = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}
    return min(least.get(-delta, num_steps), num_steps), delta


class Vary:
    """Makes variants that are harder or easier by `target - difficulty`, rounded.

    Below 0 the question comes with steps of its solution, at 0 in other words, above 0 with changed pictures,
    half of the time also in other words. If an item lacks texts for that, or its pictures cannot be changed
    so, the nearest possible variant is made and reports its actual difficulty. `counts` has the variants by
    sort ("hints", "paraphrase", "picture", "original"), and what was missing: "no_steps", "no_paraphrases",
    "no_pictures", "no_room" (for a question in the picture) and "too_long".

    Args:
        find_texts: item -> its paraphrases and steps.
        min_pixels, max_pixels, patch: of the images that the model sees, which are changed.
        changes: of pictures, those of `pictures.CHANGES` to make.
        allowed: item -> changes that keep its answer; all by default.
        fits: item -> whether it can become a prompt; a variant that cannot is replaced by its item.
    """

    def __init__(
        self,
        find_texts: Callable[[Item], Texts],
        *,
        min_pixels: int,
        max_pixels: int,
        patch: int = images.PATCH,
        changes: Collection[str] = pictures.CHANGES,
        allowed: Callable[[Item], Collection[str]] = lambda item: pictures.CHANGES,
        fits: Callable[[Item], bool] = lambda item: True,
    ):
        self._find_texts, self._allowed, self._fits = find_texts, allowed, fits
        self._limits = {"patch": patch, "min_pixels": min_pixels, "max_pixels": max_pixels}
        self._changes = frozenset(changes)
        self.counts: collections.Counter[str] = collections.Counter()

    def expand(
        self, items: Sequence[Item], proposal: Proposal, key: jax.Array
    ) -> tuple[list[Item], Proposal]:
        """Returns the item of each slot, and the proposal with the actual difficulties.

        Args:
            items: of each slot, all of a problem the same, with their images.
            proposal: on the host, by DIVA's selector. Variants follow the problem that they are made from.
            key: determines all draws together with the slot's number, so a resumed run makes the same
                variants.
        """
        assert proposal.extra_M is not None
        varied, variant_M = list(items), np.asarray(proposal.extra_M["variant"])
        wanted_M = np.asarray(proposal.extra_M["difficulty"], np.float32)
        difficulty_M = wanted_M.copy()
        for m in np.flatnonzero(variant_M):
            own = float(wanted_M[m - variant_M[m]])  # of the problem itself
            rng = np.random.default_rng([*jax.random.key_data(key).tolist(), int(m)])
            varied[m], difficulty_M[m] = self(items[int(m)], own, float(wanted_M[m]), rng)
        extra_M = {**proposal.extra_M, "difficulty": difficulty_M}
        return varied, proposal.replace(extra_M=extra_M)

    def __call__(
        self, item: Item, difficulty: float, target: float, rng: np.random.Generator
    ) -> tuple[Item, float]:
        """Returns a variant and its difficulty."""
        delta, variant = round(float(target) - float(difficulty)), None
        if delta < 0:
            variant = self._hinted(item, delta)
        elif delta > 0:
            variant = self._changed(item, delta, rng)
        variant = variant or self._reworded(item, rng)
        if not self._fits(variant):
            self.counts["too_long"] += 1
            variant = _variant(item, "original", 0)
        self.counts[variant.metadata["variant"].split()[0]] += 1
        return variant, float(difficulty) + variant.metadata["delta"]

    def _hinted(self, item: Item, delta: int) -> Item | None:
        steps = self._find_texts(item).steps
        if not steps:
            self.counts["no_steps"] += 1
            return None
        num, delta = hints(delta, len(steps))
        question = HINTED.format(item.question, " ".join(steps[:num]))
        return _variant(item, f"hints {num}", delta, question=question)

    def _reworded(self, item: Item, rng: np.random.Generator) -> Item:
        options = self._find_texts(item).paraphrases
        if not options:
            self.counts["no_paraphrases"] += 1
            return _variant(item, "original", 0)
        return _variant(item, "paraphrase", 0, question=options[rng.integers(len(options))])

    def _changed(self, item: Item, delta: int, rng: np.random.Generator) -> Item | None:
        question = item.question
        if rng.random() < _PARAPHRASED:
            question = self._reworded(item, rng).question
        allowed = self._changes & frozenset(self._allowed(item) if item.images else ())
        if len(item.images) > 1:
            allowed -= {"write"}  # which of them would hold the question?
        shown = [images.load(picture, **self._limits) for picture in item.images]
        for changes in (allowed, allowed - {"write"}):
            operator = pictures.choose(delta, changes, rng)
            if operator is None:
                self.counts["no_pictures"] += 1
                return None
            if changed := pictures.apply(operator, shown, question, changes, rng):
                arrays, question, what = changed
                new = {"question": question, "images": tuple(map(Image.fromarray, arrays))}
                return _variant(item, f"picture {what}", operator.delta, **new)
            self.counts["no_room"] += 1
        raise AssertionError("without words there is room")


def _variant(item: Item, what: str, delta: int, **changes: Any) -> Item:
    """Returns the item with changes of its question or pictures.

    The answer, the kind and what the verifier reads of the metadata stay, so a variant is graded exactly
    like its item.
    """
    metadata = {k: v for k, v in item.metadata.items() if k not in FIELDS}
    metadata |= {"variant": what, "delta": delta}
    return dataclasses.replace(item, uid=f"{item.uid} {what}", metadata=metadata, **changes)
