"""The texts that variants are made with: other wordings, the steps of a solution, and what is said.

Wordings and steps are made before training (by a language model, or by the built-in data), with the
answer checked; they come as `paraphrases` and `steps`, lists of texts in an item's metadata.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vade_jax.types import Item

TURNED = "{} is turned to the left by {} degrees. Turn it back in your mind."
WRITTEN = "Answer the question that is written in the picture."
HINTED = "{}\nWork out the whole answer yourself. These steps help: {}"
FIELDS = ("paraphrases", "steps")  # of metadata
_MARK = "<image>"


@dataclasses.dataclass(frozen=True)
class Texts:
    """The offline texts of one item."""

    paraphrases: tuple[str, ...] = ()  # the question in other words
    steps: tuple[str, ...] = ()  # of a solution, in order


def from_metadata(item: Item) -> Texts:
    """Returns the texts of a user's item: the lists `paraphrases` and `steps` of its metadata.

    Raises:
        ValueError: one of them is no list of texts.
    """
    return Texts(paraphrases=_texts(item, "paraphrases"), steps=_texts(item, "steps"))


def _texts(item: Item, name: str) -> tuple[str, ...]:
    found: Any = item.metadata.get(name)
    found = [] if found is None else found
    if isinstance(found, str) or not all(isinstance(text, str) for text in found):
        raise ValueError(
            f"{item.uid}: {name}={found!r} is no list of texts; such a column is made by"
            " python -m experiments.make_variants"
        )
    return tuple(text for text in map(str.strip, found) if text)


def usable(item: Item, paraphrases: Sequence[str]) -> list[str]:
    """Returns the paraphrases that show the images where the question does."""
    marks = item.question.count(_MARK)
    fits = lambda count: (
        count == marks or (marks <= 1 == len(item.images) and not count)
    )
    return [text for text in paraphrases if fits(text.count(_MARK))]


def check(
    items: Iterable[Item], texts: Callable[[Item], Texts]
) -> collections.Counter[str]:
    """Returns how many items lack "paraphrases" or "steps", or have "unusable_paraphrases".

    Raises:
        ValueError: no item has paraphrases, or none has steps, or a field holds no texts.
    """
    lacking, total = collections.Counter(), 0
    for item in items:
        found, total = texts(item), total + 1
        good = usable(item, found.paraphrases)
        lacking["paraphrases"] += not good
        lacking["steps"] += not found.steps
        lacking["unusable_paraphrases"] += len(found.paraphrases) - len(good)
    for name in ("paraphrases", "steps"):
        if total and lacking[name] == total:
            raise ValueError(
                f"none of {total} training items has usable {name!r}, which DIVA makes variants "
                f"from: add a column {name} (a list of texts), or make both with "
                "python -m experiments.make_variants"
            )
    return +lacking


# ------------------------------------------------------------------------------ hints
def num_hints(delta: int, num_steps: int) -> int:
    """Returns how many steps make a problem easier by -delta: the more, the easier."""
    least = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}
    return min(least.get(-delta, num_steps), num_steps)


def hint_delta(delta: int, num_steps: int) -> int:
    """Returns by how much `num_hints` of the steps change the difficulty.

    As asked, unless there are fewer steps than that takes: each is worth 2, and all of four or more
    are worth 8.
    """
    return max(delta, -2 * num_steps)


def hinted(question: str, steps: Sequence[str]) -> str:
    """Returns the question with steps of its solution behind it."""
    return HINTED.format(question, " ".join(steps))


def turned(question: str, degrees: int, num_images: int) -> str:
    """Returns the question, saying how far its pictures are turned."""
    what = "The picture" if num_images == 1 else "Each picture"
    return f"{question}\n{TURNED.format(what, degrees)}"
