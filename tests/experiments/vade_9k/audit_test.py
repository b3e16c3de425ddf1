"""Hashes by hand, and which questions a benchmark asks too by an independent loop."""

import io
import random

import numpy as np
from PIL import Image

from experiments.vade_9k import audit
from experiments.vade_9k.audit import Entry
from tests.experiments.vade_9k import files


def test_the_hash_says_where_the_right_neighbour_is_darker():
    falling = np.tile(np.arange(90, 0, -1, dtype=np.uint8)[None, :, None], (80, 1, 3))
    assert audit.dhash(falling) == 2**64 - 1
    assert audit.dhash(falling[:, ::-1]) == 0
    step = np.zeros((80, 90, 3), np.uint8)
    step[:10, :10] = 255  # the first pixel of the thumbnail alone
    assert audit.dhash(step) == 1 << 63
    original, file = Image.open(io.BytesIO(files.picture(0b1011001110001101))), io.BytesIO()
    original.resize((150, 100)).save(file, "JPEG", quality=60)
    one, two = (np.asarray(i.convert("RGB")) for i in (original, Image.open(file)))
    assert (audit.dhash(one) ^ audit.dhash(two)).bit_count() <= audit.MOST_BITS


def test_what_is_shared_is_in_the_same_words_about_an_alike_picture():
    draw = random.Random(0)
    near = lambda h: h ^ sum(1 << draw.randrange(64) for _ in range(draw.randrange(9)))
    bases = [draw.getrandbits(64) for _ in range(6)]
    hashes = lambda: tuple(near(draw.choice(bases)) for _ in range(draw.randrange(3)))
    made = lambda name: [
        Entry(f"{name}{i}", draw.choice(["", *"pqrs"]), hashes()) for i in range(60)
    ]
    train, asked = made("t"), made("b")
    bits = lambda x, y: min([65, *((a ^ b).bit_count() for a in x.hashes for b in y.hashes)])
    found = {}
    for x in train:
        both = [y.uid for y in asked if x.key == y.key != "" and bits(x, y) <= 4]
        found[x.uid] = both[0] if both else None
    assert 5 < sum(uid is not None for uid in found.values()) < 55
    shared = audit.asks(asked)
    assert {x.uid: shared(x) for x in train} == found
