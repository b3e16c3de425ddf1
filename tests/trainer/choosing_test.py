"""What a round rolls out is read and built by `Pool.map`, and keeps no decoded image."""

import threading

import jax
import numpy as np
import pytest
from PIL import Image

from vade_jax import samplers
from vade_jax.data import loading
from vade_jax.trainer import choosing
from vade_jax.types import Item, Prompt, Proposal

NUM_ITEMS, B = 20, 8
SAMPLER = samplers.SAMPLERS["vade"](warmup="none")


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


@pytest.mark.parametrize("num_threads", [0, 3])
def test_items_lose_their_images_and_prompts_have_them(num_threads):
    items = Items()
    with loading.threads(num_threads or 1) as in_threads:
        pool = choosing.Pool(items, build_prompt, in_threads if num_threads else map)
        chosen = choosing.choose(SAMPLER, pool, SAMPLER.init(NUM_ITEMS), jax.random.key(0), B)
    index_M = np.asarray(chosen.proposal.index_M)
    assert [item.uid for item in chosen.items] == [str(i) for i in index_M]
    assert all(item.images == () for item in chosen.items)
    assert [prompt.images[0][0, 0, 0] for prompt in chosen.prompts] == list(index_M)
    assert (threading.get_ident() in items.threads) == (num_threads == 0)


def test_variants_are_made_of_the_images_and_their_difficulty_comes_back():
    """Proposals of diva name an item and its variants; here every variant is black."""

    def expand(items, proposal, key):
        variant_M = np.asarray(proposal.extra_M["variant"])
        black = Item("v", "?", (Image.new("RGB", (28, 28)),), "1", "int")
        shown = [black if v else x for x, v in zip(items, variant_M, strict=True)]
        extra_M = {**proposal.extra_M, "difficulty": variant_M + 0.5}
        return shown, proposal.replace(extra_M=extra_M)

    selector = samplers.SAMPLERS["diva"]()
    pool = choosing.Pool(Items(), build_prompt, expand=expand)
    chosen = choosing.choose(selector, pool, selector.init(NUM_ITEMS), jax.random.key(0), B)
    variant_M = np.asarray(chosen.proposal.extra_M["variant"])
    assert variant_M.any() and not variant_M.all()
    shown = np.array([prompt.images[0][0, 0, 0] for prompt in chosen.prompts])
    index_M = np.asarray(chosen.proposal.index_M)
    np.testing.assert_array_equal(shown, np.where(variant_M, 0, index_M))
    np.testing.assert_array_equal(chosen.proposal.extra_M["difficulty"], variant_M + 0.5)
    plain = pool.take(index_M, 2)  # what no selector proposed is never varied
    assert [prompt.images[0][0, 0, 0] for prompt in plain.prompts] == list(index_M)


@pytest.mark.parametrize(
    ("index_M", "num_M"),
    [
        ([3, 3], [8, 8]),
        ([3, 20], [8, 8]),
        ([-1, 3], [8, 8]),
        ([3, 4], [8, 0]),
        ([3], [8]),
        ([3.0, 4.0], [8, 8]),
    ],
)
def test_a_selector_of_a_user_is_kept_to_its_contract(index_M, num_M):
    def propose(state, key, num_prompts):
        return Proposal(index_M=jax.numpy.array(index_M), num_rollouts_M=jax.numpy.array(num_M))

    selector, pool = SAMPLER._replace(propose=propose), choosing.Pool(Items(), build_prompt)
    with pytest.raises(ValueError, match="the selector proposed"):
        choosing.choose(selector, pool, SAMPLER.init(NUM_ITEMS), jax.random.key(0), 2)
