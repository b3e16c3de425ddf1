"""What a round rolls out is read and built by `Parts.map`, and keeps no decoded image."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
from PIL import Image

from vade_jax import samplers
from vade_jax.data import loading
from vade_jax.trainer import parts, plans
from vade_jax.types import Item, Prompt

NUM_ITEMS, B = 20, 8


class Items:
    """Opens an image when it is asked for an item, and remembers in which thread."""

    def __init__(self):
        self.threads = set()

    def __len__(self):
        return NUM_ITEMS

    def __getitem__(self, i):
        self.threads.add(threading.get_ident())
        image = Image.new("RGB", (28, 28), (i, i, i))
        return Item(str(i), "?", (image,), str(i), "int", {"level": i % 3})


def build_prompt(item):
    pixels = np.array(item.images[0])
    empty = np.zeros(0, np.int32)
    return Prompt(item.uid, item.question, empty, empty[:, None], (pixels,))


def make(over=loading.in_turn, **hooks):
    sampler = samplers.SAMPLERS["vade"](warmup="none")
    unused = dict.fromkeys(("engine", "judge", "learn", "validate", "recorder"))
    of_run = parts.Parts(
        items=Items(),
        build_prompt=build_prompt,
        sampler=sampler,
        map=over,
        **unused,
        **hooks,
    )
    return of_run, sampler.init(NUM_ITEMS)


@pytest.mark.parametrize("num_threads", [0, 3])
def test_items_lose_their_images_and_prompts_have_them(num_threads):
    with loading.Pool(num_threads) as pool:
        of_run, selector = make(pool.map)
        plan = plans.plan(of_run, selector, jax.random.key(0), B)
    index_M = np.asarray(plan.proposal.index_M)
    assert [item.uid for item in plan.items] == [str(i) for i in index_M]
    assert [item.metadata["level"] for item in plan.items] == list(index_M % 3)
    assert all(item.images == () for item in plan.items)
    assert [prompt.images[0][0, 0, 0] for prompt in plan.prompts] == list(index_M)
    if num_threads:
        assert threading.get_ident() not in of_run.items.threads
    else:
        assert of_run.items.threads == {threading.get_ident()}


def test_variants_are_made_of_the_images():
    """Diva's proposals name an item and its variants; `vary` needs the pictures."""
    sampler = samplers.SAMPLERS["diva"]()
    darker = lambda item, old, new, rng: (
        Item("v", "?", (Image.new("RGB", (28, 28)),), item.answer, item.kind),
        new,
    )
    of_run, _ = make(vary=darker)
    of_run = dataclasses.replace(of_run, sampler=sampler)
    plan = plans.plan(of_run, sampler.init(NUM_ITEMS), jax.random.key(0), B)
    variant_M = np.asarray(plan.proposal.extra_M["variant"])
    assert variant_M.any() and not variant_M.all()
    shown = np.array([prompt.images[0][0, 0, 0] for prompt in plan.prompts])
    np.testing.assert_array_equal(
        shown, np.where(variant_M, 0, np.asarray(plan.proposal.index_M))
    )
