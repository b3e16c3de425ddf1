"""From a wanted difficulty to a variant: what it is, how hard it says it is, and its answer."""

import dataclasses

import jax
import numpy as np
import pytest
from PIL import Image

from experiments.diva import variants
from vade_jax import samplers
from vade_jax.types import Item

LIMITS = {"min_pixels": 112 * 112, "max_pixels": 112 * 112}
TEXTS = {"paraphrases": ["So?", "Well?"], "steps": ["One.", "Two.", "Three.", "Four."]}


def of_users(**options):
    return variants.Vary(variants.from_metadata, **LIMITS, **options)


def user_item(**changes):
    picture = Image.fromarray(np.full((112, 112, 3), 200, np.uint8))
    item = Item("a:1", "Why?", (picture,), "1", "int", TEXTS)
    return dataclasses.replace(item, **changes)


def made(vary, item, delta, *, own=5.0, seed=0):
    """Returns the variant that is to be `delta` harder, and by how much it says it is."""
    variant, difficulty = vary(item, own, own + delta, np.random.default_rng(seed))
    assert difficulty == pytest.approx(own + variant.metadata["delta"])
    return variant, variant.metadata["delta"]


@pytest.mark.parametrize("delta", range(-8, 9))
def test_the_difficulty_is_the_one_wanted_where_that_can_be_made(delta):
    vary = of_users()
    for own in (1.3, 5.0, 8.75):
        variant, found = made(vary, user_item(), delta, own=own)
        sort = {-1: "hints", 0: "paraphrase", 1: "picture"}[np.sign(delta)]
        assert found == delta and variant.metadata["variant"].split()[0] == sort
        assert variant.uid != "a:1" and variant.uid.startswith("a:1 ")
    assert not set(vary.counts) - {"hints", "paraphrase", "picture"}


def test_texts_do_not_travel_with_the_variant_and_a_generator_repeats():
    item = user_item(metadata=TEXTS | {"tolerance": 0.1})
    variant, _ = made(of_users(), item, 0)
    assert variant.metadata == {"tolerance": 0.1, "variant": "paraphrase", "delta": 0}
    assert variant.question in TEXTS["paraphrases"]
    one, other = (made(of_users(), item, 4, seed=7)[0] for _ in "ab")
    assert (one.uid, one.question) == (other.uid, other.question)
    np.testing.assert_array_equal(*(np.asarray(x.images[0]) for x in (one, other)))


def test_what_is_missing_is_counted_and_said_in_the_difficulty():
    vary = of_users()
    variant, found = made(vary, user_item(metadata={}), -4)
    assert (variant.question, found) == ("Why?", 0)
    assert vary.counts == {"no_steps": 1, "no_paraphrases": 1, "original": 1}
    assert made(vary, user_item(metadata={"steps": ["One."]}), -7)[1] == -2
    assert made(vary, user_item(images=()), 2)[1] == 0
    assert vary.counts["no_pictures"] == 1


def test_the_easier_the_more_steps_as_far_as_there_are_any():
    of = lambda num: np.transpose([variants.hints(-k, num) for k in range(1, 9)]).tolist()
    assert of(5) == [[1, 1, 2, 2, 3, 3, 5, 5], [*range(-1, -9, -1)]]
    assert of(3) == [[1, 1, 2, 2, 3, 3, 3, 3], [-1, -2, -3, -4, -5, -6, -6, -6]]
    assert of(2)[0] == [1, 1, *[2] * 6] and of(1)[1] == [-1, *[-2] * 7]
    variant, _ = made(of_users(), user_item(), -3, own=9.0)
    assert variant.question.startswith("Why?\n")
    assert variant.question.endswith(": One. Two.") and len(variant.images) == 1


# ------------------------------------------------------------------------------ of a proposal
@pytest.mark.parametrize("num_variants", [0, 1, 3])
def test_variants_stand_behind_their_item_as_hard_as_they_are(num_variants):
    asked = []

    class Noted(variants.Vary):
        def __call__(self, item, own, wanted, rng):
            asked.append((item.uid, own, wanted, rng.random()))
            return dataclasses.replace(item, uid=f"{item.uid}+"), wanted + 0.5

    selector = samplers.SAMPLERS["diva"](num_rollouts=4, num_variants=num_variants)
    proposal = jax.device_get(selector.propose(selector.init(20), jax.random.key(0), 8))
    items, key = [Item(str(i), "Why?", (), "1", "int") for i in proposal.index_M], jax.random.key(5)
    made, expanded = Noted(variants.from_metadata, **LIMITS).expand(items, proposal, key)
    variant_M, wanted_M = proposal.extra_M["variant"], proposal.extra_M["difficulty"]
    for m, variant in enumerate(variant_M):
        is_made = variant > 0
        assert made[m].uid == items[m].uid + "+" * int(is_made)
        assert expanded.extra_M["difficulty"][m] == wanted_M[m] + 0.5 * is_made
        if is_made:  # the draws depend on the key and the slot alone
            rng = np.random.default_rng([*jax.random.key_data(key).tolist(), m])
            own = wanted_M[m - variant]
            assert asked.pop(0) == (items[m].uid, own, wanted_M[m], rng.random())
    assert not asked
