"""The order in which rows are drawn, and what becomes of each."""

from tests.data import published
from vade_jax import types
from vade_jax.data import arrow, loading, recipe, shards, sources


def draw(tmp_path, rows, *, num_threads, seed=0, take=0, per_row=1, check=None):
    path = published.write_parquet(tmp_path / "a.parquet", published.LLAVA, *rows)
    empty = lambda item: types.Prompt(item.uid, "", item.question.split(), None, ())
    spool = arrow.Spool(tmp_path / "spool")
    with loading.Pool(num_threads) as pool:
        drawer = recipe.Drawer(
            check or empty, spool, seed=seed, per_row=per_row, pool=pool
        )
        drawn = drawer.draw(recipe.Subset("s", take), shards.open_shards(path))
    spool.close()
    return drawn


def test_threads_and_chunks_change_nothing(tmp_path, monkeypatch):
    rows = [published.llava(f"r{i}", (f"Is {i}?", "Yes")) for i in range(50)]
    one = draw(tmp_path, rows, num_threads=0, take=20)
    monkeypatch.setattr(recipe, "_CHUNK", 7)
    assert draw(tmp_path, rows, num_threads=3, take=20) == one
    assert len(one.kept) == one.num_seen == 20
    other = draw(tmp_path, rows, num_threads=0, take=20, seed=1)
    uids = lambda drawn: {row["uid"] for row in drawn.kept}
    assert 0 < len(uids(one) & uids(other)) < 20


def test_a_rejected_turn_is_replaced_by_another_of_its_row(tmp_path):
    def check(item):
        if "bad" in item.question:
            raise sources.RejectedItem(item.uid, "too_long", "x")
        return types.Prompt(item.uid, "", [1], None, ())

    turns = [(f"{'good' if j == 3 else 'bad'} {j}?", "Yes") for j in range(5)]
    rows = [published.llava(f"r{i}", *turns) for i in range(8)]
    drawn = draw(tmp_path, rows, num_threads=2, check=check)
    assert [row["uid"].split(":")[2] for row in drawn.kept] == ["3"] * 8
    assert drawn.counts == {"too_long": len(drawn.rejects)}
    assert 8 + len(drawn.rejects) + drawn.other_turns == 40


def test_several_turns_of_a_row_where_they_are_wanted(tmp_path):
    turns = [(f"Is {j}?", "Yes") for j in range(5)]
    rows = [published.llava(f"r{i}", *turns) for i in range(4)]
    drawn = draw(tmp_path, rows, num_threads=0, per_row=3, take=10)
    assert len(drawn.kept) == 10 and not drawn.rejects
    assert drawn.num_seen == 4 and drawn.other_turns == 10
    assert len({row["uid"] for row in drawn.kept}) == 10
