"""What variants of the built-in items are made from, found again by drawing the item again."""

from vade_jax.data import procedural
from vade_jax.data.procedural import mixture
from vade_jax.data.variants.operators import CHANGES
from vade_jax.data.variants.texts import Texts
from vade_jax.types import Item

_GRAINS = {"gaussian", "salt_pepper", "speckle"}
_NEVER = {
    "written": {"rotate"},  # a digit alone does not say which way is up: 6 and 9
    # Characters of 11 to 20 pixels drown in grains: with all else known, a third of the digits of
    # a noisy table could not be told from each other.
    **{family: _GRAINS for family in ("value", "extreme", "triangle", "table")},
}


def texts(item: Item) -> Texts:
    """Returns the paraphrases and steps of an item of `Procedural`.

    An item whose gold is wrong on purpose has no steps: none lead there, as for a solution that was
    checked against the gold.

    Raises:
        ValueError: the item is not built in.
    """
    try:
        split, seed, index = item.uid.split("-")
        make = mixture.FAMILIES[item.metadata["family"]][0]
        rng = procedural.stream(int(seed), split, int(index))
    except (ValueError, KeyError) as error:
        raise ValueError(f"{item.uid!r} is no item of the built-in data") from error
    rng.random()  # chose the family
    sample = make(rng, item.metadata["level"], item.images[0].width)
    assert sample.question == item.question, f"{item.uid} is drawn in another way"
    steps = sample.steps if sample.answer == item.answer else ()
    return Texts(paraphrases=sample.paraphrases, steps=steps)


def allowed(item: Item) -> frozenset[str]:
    """Returns the changes of the picture that leave the answer of a built-in item as it is."""
    return frozenset(CHANGES) - _NEVER.get(item.metadata["family"], set())
