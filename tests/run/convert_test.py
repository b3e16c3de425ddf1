"""There and back between Hugging Face files and orbax, bit for bit, and what cannot be converted."""

import functools
import json
import pathlib
import shutil
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.models.qwen import oracle
from tests.trainer import small
from vade_jax import types
from vade_jax.data import hub
from vade_jax.models.qwen import files, weights
from vade_jax.run import convert
from vade_jax.store import checkpoints

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def base(small_checkpoint, tmp_path_factory):
    """A random tiny checkpoint with a tokenizer."""
    return shutil.copytree(small_checkpoint, tmp_path_factory.mktemp("base") / "tiny_model")


@pytest.fixture(scope="module")
def run(base):
    """A run directory after steps 3, 5 and 7, started from `base`; the weights are the step."""
    saved = checkpoints.Checkpointer(base.parent / "checkpoints", keep=3)
    named = {"model": {"preset": "", "checkpoint": str(base)}}
    made = {"model": {"preset": "tiny", "checkpoint": ""}}  # in the run directory
    for step, started in {3: named, 5: named, 7: made}.items():
        fill = functools.partial(np.full_like, fill_value=step)
        params = jax.tree.map(fill, small.params())
        state = types.TrainState(params=params, opt_state={}, step=np.int32(step))
        saved.save(step, state, {}, {}, started)
    saved.close()
    (base.parent / "config.json").write_text(json.dumps(made))
    return base.parent


def read(directory):
    return {p.name: p.read_bytes() for p in pathlib.Path(directory).iterdir()}


def assert_equal(x, y):
    jax.tree.map(np.testing.assert_array_equal, x, y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_hugging_face_to_orbax_and_back(tmp_path, base, dtype):
    convert.convert(base, tmp_path / "orbax", dtype)
    shape, expected = files.load(base, np.dtype(dtype))
    assert_equal(ocp.StandardCheckpointer().restore(tmp_path / "orbax"), expected)
    convert.convert(tmp_path / "orbax", tmp_path / "hf", dtype, base=base)
    again, found = files.load(tmp_path / "hf", np.dtype(dtype))
    assert again == shape
    assert_equal(found, expected)
    if dtype == "float32":
        assert read(tmp_path / "hf") == read(base)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf", "orbax"]


def test_a_bfloat16_checkpoint_survives_float32(tmp_path, base):
    """float32 holds every bfloat16, so the default direction loses nothing."""
    shape, params = files.load(base)
    files.save(tmp_path / "source", shape, params, ml_dtypes.bfloat16)
    convert.convert(tmp_path / "source", tmp_path / "orbax")
    convert.convert(tmp_path / "orbax", tmp_path / "hf", "bfloat16", base=tmp_path / "source")
    assert read(tmp_path / "hf") == read(tmp_path / "source")


@pytest.mark.parametrize(("step", "expected"), [(None, 7), (5, 5)])
@pytest.mark.parametrize("part", ["", "checkpoints"])
def test_a_step_of_a_run(tmp_path, run, step, expected, part):
    convert.convert(run / part, tmp_path / "hf", step=step)
    shape, params = files.load(tmp_path / "hf")
    assert shape == files.load_config(run / "tiny_model")
    assert {float(x) for p in jax.tree.leaves(params) for x in p.flat} == {expected}
    assert (tmp_path / "hf" / "tokenizer.json").exists()
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
    """A checkpoint of another model, which is not tied."""
    shape = oracle.text(small.SHAPE, mlp_width=80)
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    files.save(tmp_path / "other", shape, params)
    return tmp_path / "other"


def orbax(tmp_path, params):
    with ocp.StandardCheckpointer() as writer:
        writer.save(tmp_path / "orbax", params)
    return tmp_path / "orbax"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda t, run: dict(source=t), "is no Hugging Face directory"),
        (lambda t, run: dict(source=t / "x"), "--source=.*x is no directory"),
        (lambda t, run: dict(source=run, target=run), "--target=.* exists: give a new directory"),
        (
            lambda t, run: dict(source=run, step=4),
            r"no complete checkpoint .*4; complete steps: \[3, 5, 7\]",
        ),
        (
            lambda t, run: dict(source=run / "tiny_model", step=4),
            "--step and --model are for orbax",
        ),
        (
            lambda t, run: dict(source=orbax(t, small.params())),
            "holds parameters alone: give --model",
        ),
        (
            lambda t, run: dict(source=run, base=other(t)),
            r"not of the model in .*other \(text/layers/mlp/down/kernel is "
            r"\(2, 96, 64\), expected \(2, 80, 64\)\): give another --model",
        ),
        (
            lambda t, run: dict(
                source=orbax(t, {**small.params(), "lm_head": np.ones(3)}),
                base=run / "tiny_model",
            ),
            r"\(lm_head is \(3,\), expected nothing of that name\)",
        ),
        (lambda t, run: dict(source=run, base=t / "none"), "none is no directory: give the folder"),
    ],
)
def test_what_cannot_be_converted(tmp_path, run, arguments, message):
    target = tmp_path / "target"
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        convert.convert(**{"target": target, **arguments(tmp_path, run)})
    assert not target.exists() and not target.with_name("target.tmp").exists()


def test_a_damaged_checkpoint(tmp_path, run):
    stored = orbax(tmp_path, small.params())
    path = stored / convert.ORBAX
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(ValueError, match=r"orbax is damaged \(.*\); give another copy"):
        convert.convert(stored, tmp_path / "hf", base=run / "tiny_model")


def save_run(workdir, checkpoint):
    saved = checkpoints.Checkpointer(workdir / "checkpoints")
    state = types.TrainState(params=small.params(), opt_state={}, step=np.int32(1))
    saved.save(1, state, {}, {}, {"model": {"preset": "", "checkpoint": checkpoint}})
    saved.close()


def test_a_run_that_began_from_a_name_on_the_hub(tmp_path, run, monkeypatch):
    name = f"owner/name@{'a' * 40}"
    save_run(tmp_path / "run", name)
    monkeypatch.setattr(hub, "model", {name: str(run / "tiny_model")}.__getitem__)
    convert.convert(tmp_path / "run", tmp_path / "hf")
    assert_equal(files.load(tmp_path / "hf")[1], small.params())


def test_a_run_whose_start_is_gone(tmp_path, run):
    save_run(tmp_path / "run", "gone")
    with pytest.raises(ValueError, match=r"or it is gone \(gone\): give --model=DIR"):
        convert.convert(tmp_path / "run", tmp_path / "hf")
    convert.convert(tmp_path / "run", tmp_path / "hf", base=run / "tiny_model")
    assert_equal(files.load(tmp_path / "hf")[1], small.params())


def test_the_command(tmp_path, base):
    def command(*arguments):
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "experiments.convert",
                f"--source={base}",
                *arguments,
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    done = command(f"--target={tmp_path / 'orbax'}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"in {tmp_path / 'orbax'}\n"
    assert (tmp_path / "orbax" / convert.ORBAX).exists()
    again = command(f"--target={tmp_path / 'orbax'}")
    assert again.returncode == 2
    assert again.stderr.strip().splitlines()[-1].startswith("error: --target=")
