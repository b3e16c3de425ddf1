"""Each suite of the bench runs, at sizes where only that is learned."""

import json

import pytest

from experiments import bench
from experiments.benchmarks import decode, flops, selector, tables, update, workload


@pytest.fixture(scope="module")
def updates():
    return list(update.run(quick=True))


def rows(found):
    return [row for table in found for row in table.rows]


def check(found):
    """Every table has rows, and every row that ran has a time, a ratio and a floor."""
    assert all(table.rows[0].ratio == 1 for table in found)
    for row in rows(found):
        assert row.floor > 0
        assert row.seconds is None or (row.seconds > 0 and row.ratio > 0)
    assert all(row.name in tables.text(table) for table in found for row in table.rows)


def test_selector():
    check(list(selector.run(quick=True)))


def test_update(updates):
    check(updates)


def test_grouped_and_plain_take_the_same_step(updates):
    facts = {row.name: row.facts for row in updates[0].rows}
    grouped, plain = facts[update.GROUPED], facts[update.PLAIN]
    assert abs(grouped["loss"]) > 1e-2
    assert grouped["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert grouped["gradient"] == pytest.approx(plain["gradient"], rel=1e-5)


def test_decode():
    found = list(decode.run(quick=True))
    check(found)
    facts = found[0].rows[0].facts
    assert facts["same_tokens"] == 1
    assert facts["tokens_per_second"] > 0


def test_flops_by_hand():
    # Width 128, 4 heads and 1 key/value head of 32, MLP 64, 2 layers, 64 rows; one prompt of 3
    # tokens, two answers of 2. A layer: 128 x (128 + 32 + 32 + 128) + 3 x 128 x 64 = 65,536.
    shape = workload.text_model(**update.SMALL).text
    layers = 2 * 2 * 65_536 * (3 + 2 * 2)
    pairs = (1 + 2 + 3) + 2 * (2 * 3 + 1 + 2)
    attention = 2 * (2 * 2 * 128) * pairs
    head = 2 * 128 * 64 * 4
    found = flops.grouped(shape, 1, 2, prompt=3, answer=2)
    assert found == layers + attention + head


def test_json_holds_every_row(tmp_path, updates):
    path = tmp_path / "bench.json"
    bench.write(str(path), "a machine", {"update": updates})
    content = json.loads(path.read_text())
    assert content["machine"] == "a machine"
    names = [row["name"] for t in content["suites"]["update"] for row in t["rows"]]
    assert names == [row.name for row in rows(updates)]
