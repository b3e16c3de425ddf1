"""Saved values: written once, and cut off."""

import operator

import pytest

from experiments.evals.answers import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "values.jsonl"


def opened(path):
    return Store(path, operator.itemgetter("key", "value"))


def row(key, value):
    return {"key": key, "value": value}


def test_what_is_there_is_not_written_again(path):
    store = opened(path)
    store.add([row("a", "sí\n\ud800")])
    store.add([row("a", "other"), row("b", None)])
    assert opened(path) == store == {"a": "sí\n\ud800", "b": None}
    assert len(path.read_text().splitlines()) == 2


def test_a_line_that_was_cut_off_is_made_again(path):
    opened(path).add([row("a", 1), row("b", 2)])
    path.write_bytes(path.read_bytes()[:-5])
    store = opened(path)
    assert store == {"a": 1}
    store.add([row("b", 3)])
    assert opened(path) == {"a": 1, "b": 3}
