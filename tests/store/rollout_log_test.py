"""Answers come back as they were given, with the same column types in every file."""

import json
import os
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pyarrow.parquet
import pytest

from vade_jax.store import rollout_log


def table():
    return {
        "uid": ["a", "a"],
        "answer": ["so \\boxed{3}", "broken \ud800"],
        "extracted": ["3", None],
        "correct": jnp.array([1.0, 0.0]),
        "length": np.array([4, 9]),
        "finished": [True, False],
        "p_drawn": np.float64([0.25, 0.25]),
        "metadata": [{"level": 2}, {"families": ["count"]}],
        "extra": [1.5, 2.5],
    }


def test_roundtrip(tmp_path):
    path = rollout_log.path(tmp_path, 42)
    assert path == tmp_path / "rollouts" / "step_00042.parquet"
    rollout_log.write(path, table())
    columns = rollout_log.read(path)
    assert list(columns) == list(table())
    assert columns["answer"] == ["so \\boxed{3}", "broken ?"]
    assert columns["extracted"] == ["3", None]
    assert columns["correct"] == [1.0, 0.0]
    assert columns["length"] == [4, 9]
    assert json.loads(columns["metadata"][1]) == {"families": ["count"]}
    assert columns["extra"] == [1.5, 2.5]
    assert os.listdir(path.parent) == [path.name]


def test_types_do_not_depend_on_the_values(tmp_path):
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    rollout_log.write(a, table())
    rollout_log.write(b, table() | {"extracted": [None, None], "p_drawn": [None, None]})
    assert pyarrow.parquet.read_schema(a) == pyarrow.parquet.read_schema(b)


def test_a_run_of_many_steps_is_read_in_their_order(tmp_path):
    steps = (1, 99_999, 100_000)
    for step in reversed(steps):
        rollout_log.write(rollout_log.path(tmp_path, step), {"uid": ["a"]})
    assert rollout_log.paths(tmp_path) == [rollout_log.path(tmp_path, step) for step in steps]


def test_what_is_named_otherwise_is_no_log(tmp_path):
    """A file manager's copy stops no resumed run, and stays."""
    paths = [rollout_log.path(tmp_path, step) for step in (1, 2)]
    strays = ("step_00002 copy.parquet", "step_.parquet", "step_-1.parquet", "step_00002.1.parquet")
    for path in (*paths, *(paths[0].with_name(name) for name in strays)):
        rollout_log.write(path, {"uid": ["a"]})
    rollout_log.remove_after(tmp_path, 1)
    assert rollout_log.paths(tmp_path) == paths[:1]
    assert sorted(os.listdir(paths[0].parent)) == sorted([paths[0].name, *strays])


def test_a_changed_byte_is_an_error_or_changes_nothing(tmp_path):
    """In the pages, in the names and types of the columns, everywhere."""
    path = rollout_log.path(tmp_path, 3)
    rollout_log.write(path, table())
    content, before, errors = path.read_bytes(), repr(rollout_log.read(path)), 0
    for i in range(0, len(content), 5):
        path.write_bytes(content[:i] + bytes([content[i] ^ 1 << i % 8]) + content[i + 1 :])
        try:
            assert repr(rollout_log.read(path)) == before
        except ValueError as error:
            assert str(path) in str(error)
            errors += 1
    assert errors > len(content) / 15


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    rollout_log.write(path, table())
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        rollout_log.write(path, {"uid": ["b"]})
    assert path.read_bytes() == before


def test_user_mistakes(tmp_path):
    with pytest.raises(ValueError, match="'uid': 1, 'length': 2"):
        rollout_log.write(tmp_path / "a", {"uid": ["a"], "length": [1, 2]})
    with pytest.raises(ValueError, match="column length is not int32"):
        rollout_log.write(tmp_path / "a", {"length": ["many"]})
    with pytest.raises(FileNotFoundError, match="no rollouts in"):
        rollout_log.read(tmp_path / "missing")
    (tmp_path / "bad").write_text("no parquet")
    with pytest.raises(ValueError, match="not a readable parquet"):
        rollout_log.read(tmp_path / "bad")
