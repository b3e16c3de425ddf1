"""Answers come back as they were given, with the same column types in every file."""

import os

import jax.numpy as jnp
import numpy as np
import pyarrow.parquet

from vade_jax.store import rollout_log


def table():
    return {
        "uid": ["a", "a"],
        "answer": ["so \\boxed{3}", "broken \ud800"],
        "extracted": ["3", None],
        "correct": jnp.array([1.0, np.nan]),
        "length": np.array([4, 9]),
        "finished": [True, False],
        "p_drawn": np.float64([0.25, 0.25]),
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
    assert columns["correct"] == [1.0, None]
    assert columns["length"] == [4, 9]
    assert columns["extra"] == [1.5, 2.5]
    assert list(rollout_log.read(path, ["length", "no such"])) == ["length"]
    assert os.listdir(path.parent) == [path.name]


def test_a_group_has_its_values_in_each_of_its_answers(tmp_path):
    path = tmp_path / "a.parquet"
    rollout_log.write(path, {"group": [0, 1, 1]}, {"uid": ["a", "b"], "alpha": [1.0, 2.0]})
    columns = rollout_log.read(path)
    assert columns["uid"] == ["a", "b", "b"] and columns["alpha"] == [1, 2, 2]


def test_types_do_not_depend_on_the_values(tmp_path):
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    rollout_log.write(a, table())
    rollout_log.write(b, table() | {"extracted": [None, None], "p_drawn": [None, None]})
    assert pyarrow.parquet.read_schema(a) == pyarrow.parquet.read_schema(b)


def test_steps_are_read_in_order_and_later_ones_removed(tmp_path):
    paths = [rollout_log.path(tmp_path, step) for step in (1, 99_999, 100_000)]
    for path in reversed(paths):
        rollout_log.write(path, {"uid": ["a"]})
    assert rollout_log.paths(tmp_path) == paths
    rollout_log.remove_after(tmp_path, 1)
    assert rollout_log.paths(tmp_path) == paths[:1]
