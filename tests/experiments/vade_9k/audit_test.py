"""Hashes by hand, and matches by an independent loop."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from experiments.vade_9k import audit, published, texts
from experiments.vade_9k.audit import Entry
from tests.experiments.vade_9k import files


def test_the_hash_says_where_the_right_neighbour_is_darker():
    falling = np.tile(np.arange(90, 0, -1, dtype=np.uint8)[None, :, None], (80, 1, 3))
    assert audit.dhash(falling) == 2**64 - 1
    assert audit.dhash(falling[:, ::-1]) == 0
    step = np.zeros((80, 90, 3), np.uint8)
    step[:10, :10] = 255  # the first pixel of the thumbnail alone
    assert audit.dhash(step) == 1 << 63


def test_scaling_and_jpeg_change_few_bits():
    original = Image.open(io.BytesIO(files.picture(0b1011001110001101)))
    file = io.BytesIO()
    original.resize((150, 100)).save(file, "JPEG", quality=60)
    one, two = (np.asarray(i.convert("RGB")) for i in (original, Image.open(file)))
    bits = (audit.dhash(one) ^ audit.dhash(two)).bit_count()
    assert bits <= audit.MOST_BITS


def test_matches_are_those_of_a_loop():
    draw = random.Random(0)
    near = lambda h: h ^ sum(1 << draw.randrange(64) for _ in range(draw.randrange(9)))
    bases = [draw.getrandbits(64) for _ in range(6)]
    made = lambda name: [
        Entry(
            f"{name}{i}",
            draw.choice(["", *"pqrstu"]),
            tuple(near(draw.choice(bases)) for _ in range(draw.randrange(3))),
        )
        for i in range(30)
    ]
    train, asked = made("t"), made("b")
    found = audit.compare(train, asked)

    bits = lambda x, y: min([65, *((a ^ b).bit_count() for a in x.hashes for b in y.hashes)])
    same = lambda x, y: x.key == y.key != ""
    question = [x.uid for x in train if any(same(x, y) for y in asked)]
    alike = [x.uid for x in train if any(bits(x, y) <= 4 for y in asked)]
    both = [x.uid for x in train if any(same(x, y) and bits(x, y) <= 4 for y in asked)]
    assert 0 < len(both) < len(alike) < 30 and len(both) < len(question) < 30
    counts = [found[name] for name in ("same_question", "alike_picture", "both")]
    assert counts == [len(question), len(alike), len(both)]
    assert {m["uid"] for m in found["matches"]} == {*question, *alike}
    named = {x.uid: x for x in (*train, *asked)}
    for match in found["matches"]:
        x, y = named[match["uid"]], named[match["benchmark_uid"]]
        assert match["bits"] == bits(x, y)
        if x.uid in both:
            assert match["same_question"] and match["bits"] <= 4


@pytest.mark.parametrize("how", ["both", "either"])
@pytest.mark.parametrize("hint", ["", "Look.", "Look at it.\n\nFigure: a fox."])
def test_a_question_is_the_same_with_a_hint_and_without(tmp_path, hint, how):
    row = files.scienceqa("Which is it?", ["fox", "hen"], 1, hint=hint)
    path = files.write_parquet(tmp_path / "a.parquet", files.SCIENCEQA, row)
    rows = published.open_shards(path)
    ((_, row),) = rows.take([0])
    (sample,) = published.detect(rows.columns, rows.name).read(row)
    # A benchmark's question has its hint in the metadata.
    asked = [Entry("b", texts.key("Which is it?"), (7,))]
    found = Entry("t", texts.key(texts.normalise(sample)["question"]), (7,))
    assert audit.Asked(asked).shared(found, how) == "b"
    assert audit.compare([found], asked)["both"] == 1
