"""The order in which rows are drawn, what becomes of each, and the split of what is kept."""

import random

from experiments.vade_9k import draw, published
from experiments.vade_9k.settings import Subset
from tests.experiments.vade_9k import files
from vade_jax import types
from vade_jax.data import columns


def test_a_rejected_turn_is_replaced_by_another_of_its_row(tmp_path):
    def check(item):
        if "bad" in item.question:
            raise columns.RejectedItem(item.uid, "too_long", "x")
        return types.Prompt(item.uid, "", [1], None, ())

    turns = [(f"{'good' if j == 3 else 'bad'} {j}?", "Yes") for j in range(5)]
    rows = [files.llava(f"r{i}", *turns) for i in range(8)]
    path = files.write_parquet(tmp_path / "a.parquet", files.LLAVA, *rows)
    drawer = draw.Drawer(check, in_threads=map, seed=0, per_row=1, asked=lambda entry: None)
    drawn = drawer.draw("s", Subset(take=0), published.open_source(path))
    assert [row["uid"].split(":")[2] for row in drawn.kept] == ["3"] * 8
    assert drawn.counts == {"too_long": len(drawn.rejects)}
    assert 8 + len(drawn.rejects) + drawn.other_turns == 40


# ------------------------------------------------------------------------------ the split
def test_pictures_that_a_row_connects_stay_together():
    dice = random.Random(1)
    shown = lambda i: [f"p{dice.randrange(80)}" for _ in range(1 + i % 2)]
    rows = [{"uid": f"{i:03}", "pictures": shown(i)} for i in range(120)]
    train, held = draw.split(rows, share=0.1, seed=0)
    assert sorted(r["uid"] for r in (*train, *held)) == [f"{i:03}" for i in range(120)]
    assert 0 < len(held) <= 12
    shown = [{p for row in part for p in row["pictures"]} for part in (train, held)]
    assert not shown[0] & shown[1]
