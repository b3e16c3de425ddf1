"""A changed bit is found wherever it lies; times, places and what is drawn are no difference."""

import json
import shutil

import jax.numpy as jnp
import pytest
from pyarrow import parquet

from experiments.torture import comparison
from vade_jax import types
from vade_jax.report import pictures
from vade_jax.store import checkpoints, metrics, rollout_log


def save(directory, weight=0.5, answer="7", score=0.25, seconds=1.0):
    saver = checkpoints.Checkpointer(directory / "checkpoints")
    state = types.TrainState(
        params={"w": jnp.full(4, weight)}, opt_state={"m": jnp.zeros(4)}, step=jnp.int32(2)
    )
    saver.save(2, state, {"alpha_I": jnp.ones(3)}, {"step": 2}, {})
    saver.close()
    writer = metrics.Writer(directory)
    writer.write(1, {"critic/score/mean": score, "timing_s/step": seconds})
    writer.close()
    rollout_log.write(rollout_log.path(directory, 1), {"uid": ["a"], "answer": [answer]})
    (directory / "config.json").write_text(json.dumps({"to": str(directory), "seconds": seconds}))
    (directory / "report.html").write_text(str(seconds))
    pictures.keep(directory, {"a": pictures.Picture(b"7", "image/png", num_images=1)})


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reference")
    save(directory)
    return directory


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"seconds": 2.0}, []),
        ({"weight": 0.50000006}, ["checkpoints: ['policy']['w'] differs"]),
        ({"answer": "8"}, ["rollouts/step_00001.parquet differs"]),
        ({"score": 0.25000000000000006}, ["metrics.jsonl differs"]),
    ],
)
def test_what_differs_is_named(reference, tmp_path, changes, found):
    save(tmp_path, **changes)
    assert list(comparison.differences(reference, tmp_path)) == found


def test_the_minutes_of_a_sweeps_table_are_the_clocks(tmp_path):
    for name, minutes in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        table = {"arm": {"values": {"late": [0.5], "minutes": [minutes]}}}
        (tmp_path / name / "table.json").write_text(json.dumps(table))
    assert not list(comparison.differences(tmp_path / "one", tmp_path / "two"))


def test_files_that_are_missing_or_left_over_are_named(reference, tmp_path):
    save(tmp_path)
    (tmp_path / "report.html").unlink()
    (tmp_path / "stray.tmp").touch()
    assert list(comparison.differences(reference, tmp_path)) == [
        "report.html is missing",
        "stray.tmp is left over",
    ]


def test_a_damaged_file_that_nothing_reads_any_more_is_no_difference(reference, tmp_path):
    save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text('{"to": "elsewhere"}')
    assert list(comparison.differences(reference, tmp_path)) == ["config.json differs"]
    assert not list(comparison.differences(reference, tmp_path, damaged=path))


@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts/step_00001.parquet", "checkpoints"])
def test_a_file_that_the_library_refuses_is_refused_with_its_path(reference, tmp_path, name):
    shutil.copytree(reference, tmp_path / "run")
    path = tmp_path / "run" / name
    if path.is_dir():
        (path,) = path.glob("2/progress/metadata")
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    if path.suffix == ".parquet":  # its middle may be a statistic, which nothing reads
        column = parquet.read_metadata(path).row_group(0).column(0)
        first = column.dictionary_page_offset or column.data_page_offset
        place = first + column.total_compressed_size - 1
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(comparison.Refused, match=str(tmp_path / "run" / name)):
        list(comparison.differences(reference, tmp_path / "run"))
