"""A run's policy as a Hugging Face directory, bit for bit, and what cannot be converted."""

import functools
import pathlib
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments import convert
from tests.models.qwen import oracle
from tests.trainer import small
from vade_jax.data import hub
from vade_jax.models.qwen import files, weights
from vade_jax.store import checkpoints

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(small_checkpoint, tmp_path_factory):
    """A run directory after steps 3, 5 and 7, started from a tiny model; the weights are the step."""
    workdir = tmp_path_factory.mktemp("run")
    base = shutil.copytree(small_checkpoint, workdir / "tiny_model")
    saved = checkpoints.Checkpointer(workdir / "checkpoints", keep=3)
    named = {"model": {"preset": "", "checkpoint": str(base)}}
    made = {"model": {"preset": "tiny", "checkpoint": ""}}  # in the run directory
    for step, started in {3: named, 5: named, 7: made}.items():
        fill = functools.partial(np.full_like, fill_value=step)
        params = jax.tree.map(fill, small.params())
        saved.save(step, {"policy": params}, {"config": started})
    saved.close()
    return workdir


@pytest.mark.parametrize(("step", "expected"), [(None, 7), (5, 5)])
def test_a_step_of_a_run(tmp_path, run, step, expected):
    convert.convert(run, tmp_path / "hf", step=step)
    shape, params = files.load(tmp_path / "hf")
    assert shape == files.load_config(run / "tiny_model")
    assert {float(x) for p in jax.tree.leaves(params) for x in p.flat} == {expected}
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]
    there = {path.name for path in (run / "checkpoints").iterdir()}
    assert there == {"3", "5", "7"}


def test_transformers_loads_what_comes_out(tmp_path, run):
    transformers = pytest.importorskip("transformers")
    convert.convert(run, tmp_path / "hf", "bfloat16", step=3)
    model, report = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        tmp_path / "hf", dtype="auto", output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))
    for parameter in model.parameters():
        assert str(parameter.dtype) == "torch.bfloat16"
        assert (parameter == 3).all()
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")("a").input_ids


def other(tmp_path):
    """A checkpoint of another shape."""
    shape = oracle.text(small.SHAPE, mlp_width=80)
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    files.save(tmp_path / "other", shape, params)
    return tmp_path / "other"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda t, run: dict(source=t), "is neither a run directory nor a GGUF file"),
        (lambda t, run: dict(source=run, target=run), "--target=.* exists: give a new directory"),
        (
            lambda t, run: dict(source=run, step=4),
            r"checkpoints/4 cannot be read",
        ),
        (lambda t, run: dict(source=run, base=other(t)), r"mlp"),
        (lambda t, run: dict(source=run, base=t / "none"), "none is no directory: give the folder"),
    ],
)
def test_what_cannot_be_converted(tmp_path, run, arguments, message):
    target = tmp_path / "target"
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        convert.convert(**{"target": target, **arguments(tmp_path, run)})
    assert not target.exists() and not target.with_name(".target.new").exists()


def test_a_damaged_checkpoint(tmp_path, run):
    damaged = shutil.copytree(run, tmp_path / "run")
    path = damaged / "checkpoints" / "7" / "policy" / "_METADATA"
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(ValueError, match=r"checkpoints/7 cannot be read \(.*resume from step 5"):
        convert.convert(damaged, tmp_path / "hf")


def test_a_run_that_began_from_a_name_on_the_hub(tmp_path, run, monkeypatch):
    name = f"owner/name@{'a' * 40}"
    saved = checkpoints.Checkpointer(tmp_path / "run" / "checkpoints")
    saved.save(
        1, {"policy": small.params()}, {"config": {"model": {"preset": "", "checkpoint": name}}}
    )
    saved.close()
    monkeypatch.setattr(hub, "model", {name: str(run / "tiny_model")}.__getitem__)
    convert.convert(tmp_path / "run", tmp_path / "hf")
    jax.tree.map(np.testing.assert_array_equal, files.load(tmp_path / "hf")[1], small.params())


def test_the_command(tmp_path, run):
    command = [sys.executable, "-m", "experiments.convert", f"--source={run}"]
    command += [f"--target={tmp_path / 'hf'}"]
    done, again = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True) for _ in range(2)
    )
    assert (done.returncode, done.stdout) == (0, f"in {tmp_path / 'hf'}\n")
    assert again.returncode == 2
    assert again.stderr.strip().splitlines()[-1].startswith("error: --target=")
