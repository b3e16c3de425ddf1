"""One valid JSON line a step, whatever happened to the run that wrote it; W&B gets the same."""

import math
import os
import sys
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.store import metrics


def write_steps(workdir, steps, offset=0.0, after=None):
    writer = metrics.Writer(workdir)
    if after is not None:
        writer.resume_after(after)
    for step in steps:
        writer.write(step, {"actor/grad_norm": step + offset})
    writer.close()


def test_each_step_is_one_line_on_disk_at_once(tmp_path):
    writer = metrics.Writer(tmp_path / "run")
    writer.write(1, {"b": jnp.float32(0.5), "a": np.int64(3), "c": True})
    line = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert line == '{"step": 1, "b": 0.5, "a": 3, "c": true}\n'
    writer.write(2, {"a": np.nan, "b": -np.inf})  # JSON has neither
    assert metrics.read(tmp_path / "run")[1] == {"step": 2, "a": None, "b": None}


def test_a_resumed_run_has_each_step_once(tmp_path, monkeypatch):
    write_steps(tmp_path, [1, 2, 3, 4])
    writer = metrics.Writer(tmp_path)
    before = writer.path.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", mock.Mock(side_effect=KeyboardInterrupt))
        writer.resume_after(1)
    assert writer.path.read_bytes() == before  # all or nothing
    write_steps(tmp_path, [3, 4, 5], offset=0.5, after=2)
    records = [(r["step"], r["actor/grad_norm"]) for r in metrics.read(tmp_path)]
    assert records == [(1, 1), (2, 2), (3, 3.5), (4, 4.5), (5, 5.5)]
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_values_are_added_to_the_last_line(tmp_path):
    write_steps(tmp_path, [1, 2])
    metrics.Writer(tmp_path).add(2, {"val/x": np.float32(0.5), "val/y": np.nan})
    last = {"step": 2, "actor/grad_norm": 2, "val/x": 0.5, "val/y": None}
    assert metrics.read(tmp_path) == [{"step": 1, "actor/grad_norm": 1}, last]


def test_a_half_written_last_line_is_left_out_and_not_continued(tmp_path):
    write_steps(tmp_path, [1, 2])
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step": 3, "actor/gr')
    assert len(metrics.read(tmp_path)) == 2
    write_steps(tmp_path, [3], after=2)
    assert [record["step"] for record in metrics.read(tmp_path)] == [1, 2, 3]
    with pytest.raises(ValueError, match="ends before step 4, which the checkpoint has"):
        metrics.Writer(tmp_path).resume_after(4)
    write_steps(tmp_path, [], after=0)
    assert metrics.read(tmp_path) == []


def test_wandb_gets_the_same_names_and_numbers(monkeypatch, tmp_path):
    wandb, workdir = mock.MagicMock(), tmp_path / "my_run"
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    writer = metrics.Writer(workdir, wandb="project", config={"seed": 3})
    writer.write(1, {"actor/grad_norm": 0.5, "vade/rollouts_total": 8})
    writer.write(2, {"actor/grad_norm": float("nan")})
    writer.close()
    options, run = wandb.init.call_args.kwargs, wandb.init.return_value
    assert options["project"] == "project" and options["config"] == {"seed": 3}
    (first,), (second,) = (call.args for call in run.log.call_args_list)
    assert first == metrics.read(workdir)[0]
    assert second["step"] == 2 and math.isnan(second["actor/grad_norm"])
    run.finish.assert_called_once()
    for name in ("my_run", "other"):  # a resumed job is the same run
        metrics.Writer(tmp_path / name, wandb="project").close()
    first, again, other = (c.kwargs["id"] for c in wandb.init.call_args_list)
    assert first == again != other
