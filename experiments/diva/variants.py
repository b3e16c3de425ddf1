"""Makes a variant of an item with a wanted difference of difficulty and the same answer.

Easier variants show steps of a solution (more steps, easier); equally hard ones use other words; harder
ones change the pictures (`pictures`). Words and steps exist before training: from a language model
(`offline`), or for the built-in data (`built_in`). In a user's file they are the columns `paraphrases` and
`steps`, which become lists of texts in an item's metadata.
"""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from PIL import Image

from experiments.diva import pictures
from vade_jax.data import images
from vade_jax.types import Item, Proposal

HINTED = "{}\nWork out the whole answer yourself. These steps help: {}"
FIELDS = ("paraphrases", "steps")  # of metadata; also columns of a file
_PARAPHRASED = 0.5  # share of the questions about changed pictures
Made = tuple[Item, int]  # a variant, and how much harder it is


# ------------------------------------------------------------------------------ texts
class Texts(NamedTuple):
    """The texts of one item that exist before training."""

    paraphrases: tuple[str, ...] = ()  # the question in other words
    steps: tuple[str, ...] = ()  # of a solution, in order


def from_metadata(item: Item) -> Texts:
    """Returns the texts of a user's item: the lists `paraphrases` and `steps` of its metadata.

    Raises:
        ValueError: one of them is no list of texts.
    """
    found = {}
    for name in FIELDS:
        value = item.metadata.get(name)
        value = [] if value is None else value
        if isinstance(value, str) or not all(isinstance(x, str) for x in value):
            raise ValueError(
                f"{item.uid}: {name}={value!r} is no list of texts; such a column is made by"
                " python -m experiments.make_variants"
            )
        found[name] = tuple(text for text in map(str.strip, value) if text)
    return Texts(**found)


def usable(item: Item, paraphrases: Sequence[str]) -> list[str]:
    """Returns the paraphrases that show the images where the question does.

    A lone image needs no mark: without one it comes first.
    """
    marks = item.question.count("<image>")
    fitting = {marks, 0} if marks <= 1 == len(item.images) else {marks}
    return [text for text in paraphrases if text.count("<image>") in fitting]


def count_lacking(items: Iterable[Item]) -> collections.Counter[str]:
    """Returns how many items lack "paraphrases" or "steps", or have "unusable_paraphrases".

    Raises:
        ValueError: no item has paraphrases, or none has steps, or a field holds no texts.
    """
    lacking, total = collections.Counter(), 0
    for item in items:
        found, total = from_metadata(item), total + 1
        good = usable(item, found.paraphrases)
        lacking["paraphrases"] += not good
        lacking["steps"] += not found.steps
        lacking["unusable_paraphrases"] += len(found.paraphrases) - len(good)
    for name in FIELDS:
        if total and lacking[name] == total:
            raise ValueError(
                f"none of {total} training items has usable {name!r}, which DIVA makes variants "
                f"from: add a column {name} (a list of texts), or make both with "
                "python -m experiments.make_variants"
            )
    return +lacking


# ------------------------------------------------------------------------------ variants
def hints(delta: int, num_steps: int) -> tuple[int, int]:
    """Returns how many of `num_steps` steps make a problem easier by -delta, and by how much they do.

    By `delta`, unless there are fewer steps than that takes: each is worth 2, and four or more are
    worth up to 8.
    """
    delta = max(delta, -2 * num_steps)
    least = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}
    return min(least.get(-delta, num_steps), num_steps), delta


class Vary:
    """Makes variants that are harder or easier by `wanted - difficulty`, rounded.

    Below 0 the question comes with steps of its solution, at 0 in other words, above 0 with changed
    pictures, half of the time in other words too. Where an item has no texts for that, or its
    pictures cannot be changed so, the nearest variant that can be made takes its place, says its own
    difficulty, and is counted.

    Args:
        find_texts: item -> its paraphrases and steps.
        min_pixels: least area of a resized image; what is changed is what the model would see.
        max_pixels: greatest area.
        patch: pixels per side of a patch of the model.
        changes: of pictures, those of `pictures.CHANGES` to make.
        allowed: item -> those that leave its answer as it is; all by default.
        fits: item -> whether it can become a prompt; a variant that cannot is replaced by its item.

    Attributes:
        counts: variants by sort ("hints", "paraphrase", "picture", "original"), and what was
            missing: "no_steps", "no_paraphrases", "no_pictures", "no_room" (for a question in the
            picture) and "too_long".

    Raises:
        ValueError: a change that there is not.
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
        check_changes(changes)
        self._find_texts, self._allowed, self._fits = find_texts, allowed, fits
        self._limits = {"patch": patch, "min_pixels": min_pixels, "max_pixels": max_pixels}
        self._changes = frozenset(changes)
        self.counts: collections.Counter[str] = collections.Counter()

    def expand(
        self, items: Sequence[Item], proposal: Proposal, key: jax.Array
    ) -> tuple[list[Item], Proposal]:
        """Returns the item of each slot, and the proposal with the difficulties as they are.

        Args:
            items: of each slot, all of a problem the same, with their images.
            proposal: on the host. Its `extra_M` has "variant", the ordinal of each slot within its
                problem (0 is the item itself, the others are made from it and follow it), and
                "difficulty", how hard each is to be.
            key: decides, with the number of the slot, what is drawn: a resumed run makes the
                variants that the uninterrupted one would have made.
        """
        assert proposal.extra_M is not None
        made, variant_M = list(items), np.asarray(proposal.extra_M["variant"])
        wanted_M = np.asarray(proposal.extra_M["difficulty"], np.float32)
        difficulty_M = wanted_M.copy()
        for m in np.flatnonzero(variant_M):
            own = float(wanted_M[m - variant_M[m]])  # of the problem itself
            rng = np.random.default_rng([*jax.random.key_data(key).tolist(), int(m)])
            made[m], difficulty_M[m] = self(items[int(m)], own, float(wanted_M[m]), rng)
        extra_M = {**proposal.extra_M, "difficulty": difficulty_M}
        return made, proposal.replace(extra_M=extra_M)

    def __call__(
        self, item: Item, difficulty: float, wanted: float, rng: np.random.Generator
    ) -> tuple[Item, float]:
        """Returns a variant and its difficulty."""
        delta, made = round(float(wanted) - float(difficulty)), None
        if delta < 0:
            made = self._hinted(item, delta)
        elif delta > 0:
            made = self._changed(item, delta, rng)
        variant, delta = made or self._reworded(item, rng)
        if not self._fits(variant):
            self.counts["too_long"] += 1
            variant, delta = _variant(item, "original", 0)
        self.counts[variant.metadata["variant"].split()[0]] += 1
        return variant, float(difficulty) + delta

    def _hinted(self, item: Item, delta: int) -> Made | None:
        steps = self._find_texts(item).steps
        if not steps:
            self.counts["no_steps"] += 1
            return None
        num, delta = hints(delta, len(steps))
        question = HINTED.format(item.question, " ".join(steps[:num]))
        return _variant(item, f"hints {num}", delta, question)

    def _reworded(self, item: Item, rng: np.random.Generator) -> Made:
        options = usable(item, self._find_texts(item).paraphrases)
        if not options:
            self.counts["no_paraphrases"] += 1
            return _variant(item, "original", 0)
        question = options[rng.integers(len(options))]
        return _variant(item, "paraphrase", 0, question)

    def _changed(self, item: Item, delta: int, rng: np.random.Generator) -> Made | None:
        question = item.question
        if rng.random() < _PARAPHRASED:
            question = self._reworded(item, rng)[0].question
        allowed = self._changes & frozenset(self._allowed(item) if item.images else ())
        if len(item.images) > 1:
            allowed -= {"write"}  # which of them would hold the question?
        operator = pictures.choose(delta, allowed, rng)
        if operator is None:
            self.counts["no_pictures"] += 1
            return None
        shown = [images.load(picture, **self._limits) for picture in item.images]
        done = pictures.apply(operator, shown, question, allowed, rng)
        if done is None:
            self.counts["no_room"] += 1
            operator = pictures.choose(delta, allowed - {"write"}, rng)
            if operator is None:
                return None
            done = pictures.apply(operator, shown, question, allowed, rng)
        assert done is not None  # without words there is room
        shown, question, what = done
        shown = tuple(Image.fromarray(picture) for picture in shown)
        return _variant(item, f"picture {what}", operator.delta, question, shown)


def check_changes(changes: Collection[str]) -> None:
    """Raises ValueError for a change that is none of `pictures.CHANGES`."""
    if unknown := [name for name in changes if name not in pictures.CHANGES]:
        raise ValueError(
            f"changes={tuple(changes)}: there is no {unknown[0]!r}, choose from "
            f"{', '.join(pictures.CHANGES)}"
        )


def _variant(
    item: Item,
    what: str,
    delta: int,
    question: str | None = None,
    shown: tuple[Image.Image, ...] | None = None,
) -> Made:
    """Returns the item with another question or other pictures; nothing else can change."""
    # The answer, the kind and what the verifier reads of the metadata stay, so a variant is graded
    # exactly like its item.
    metadata = {k: v for k, v in item.metadata.items() if k not in FIELDS}
    variant = dataclasses.replace(
        item,
        uid=f"{item.uid} {what}",
        question=item.question if question is None else question,
        images=item.images if shown is None else shown,
        metadata={**metadata, "variant": what, "delta": delta},
    )
    return variant, delta
