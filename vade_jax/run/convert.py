"""A policy between Hugging Face files and orbax; the source decides the direction.

A Hugging Face directory becomes an orbax StandardCheckpoint of the parameters: a nested dict, as
`orbax.checkpoint.StandardCheckpointer().restore(DIR)` returns it. Such a checkpoint, a run directory
or its checkpoints/ becomes a Hugging Face directory with the config and tokenizer of another one. float32
is exact in both directions. The host holds all parameters once.
"""

import contextlib
import json
import os
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from vade_jax import types
from vade_jax.models.qwen25vl import config, files, model, weights
from vade_jax.store import checkpoints
from vade_jax.trainer import mesh

ORBAX = "_METADATA"  # in each StandardCheckpoint


def convert(
    source: str,
    target: str,
    dtype: str = "float32",
    step: int | None = None,
    base: str | None = None,
) -> None:
    """Writes `target`, which must not exist, whole or not at all.

    Args:
        source: a Hugging Face directory, an orbax one of parameters, a run directory or its
            checkpoints/.
        target: where it goes.
        dtype: of the parameters in `target`.
        step: of a run; default: the latest.
        base: the Hugging Face directory whose config and tokenizer an orbax source goes with;
            default: the one that the run started from.

    Raises:
        ValueError: what these say, or what the files hold, does not fit together.
        FileNotFoundError: the source, one of its files, or the step is not there.
    """
    source, target = pathlib.Path(source).absolute(), pathlib.Path(target).absolute()
    if target.exists():
        raise ValueError(f"--target={target} exists: give a new directory")
    if not source.is_dir():
        raise FileNotFoundError(f"--source={source} is no directory")
    # A run directory has a config.json too, but not a model's.
    if "model_type" in _json(source / files.CONFIG):
        if step is not None or base:
            raise ValueError(f"--step and --model are for orbax; {source} is Hugging Face's")
        shape = files.load_config(source)
        _, params = files.load(source, jnp.dtype(dtype), _shardings(shape))
        with contextlib.closing(ocp.StandardCheckpointer()) as writer:
            writer.save(target, params)
        return
    stored, base = _find(source, step, base)
    shape = files.load_config(base)
    params = _restore(stored, shape, base)
    building = target.with_name(f"{target.name}.tmp")
    shutil.rmtree(building, ignore_errors=True)
    files.copy_tokenizer(base, building)
    files.save(building, shape, params, jnp.dtype(dtype))
    building.rename(target)


def _find(
    source: pathlib.Path, step: int | None, base: str | None
) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns where the parameters are, and the Hugging Face directory they go with."""
    if (source / ORBAX).exists():
        if step is not None or not base:
            raise ValueError(
                f"{source} holds parameters alone: give --model, the Hugging Face directory "
                "whose config and tokenizer they go with, and no --step"
            )
        return source, pathlib.Path(base)
    root = source / "checkpoints" if (source / "checkpoints").is_dir() else source
    with contextlib.closing(checkpoints.Checkpointer(root)) as saved:
        if any(path.name.isdigit() for path in root.iterdir()):
            step = saved.latest_step() if step is None else step
        if step is None:
            raise ValueError(
                f"--source={source} is no Hugging Face directory (config.json with "
                "model_type), no run directory with a checkpoint and no orbax "
                "StandardCheckpoint"
            )
        started = saved.config(step)
    return root / str(step) / "policy", _base(root, started, base)


def _base(root: pathlib.Path, started: dict, given: str | None) -> pathlib.Path:
    """Returns the Hugging Face directory of a run's config, or the one that was given."""
    if given:
        return pathlib.Path(given)
    named = started.get("model", {})
    found = root.parent / "tiny_model" if named.get("preset") else named.get("checkpoint")
    if not found or not os.path.isdir(found):
        raise ValueError(
            f"{root} does not say which Hugging Face directory it started from, or it is "
            f"gone ({found}): give --model=DIR"
        )
    return pathlib.Path(found)


def _restore(stored: pathlib.Path, shape: config.Config, base: pathlib.Path) -> types.Params:
    with contextlib.closing(ocp.StandardCheckpointer()) as reader:
        with _whole(stored):
            there = reader.metadata(stored).item_metadata.tree
        try:
            weights.check_params(shape, there)
            extra = _paths(there) - _paths(model.abstract(shape))
            if extra:
                raise ValueError(f"{min(extra)} is not part of it")
        except ValueError as error:
            raise ValueError(
                f"{stored} is not of the model in {base} ({error}): give another --model"
            ) from error

        def place(x, sharding):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

        with _whole(stored):
            return reader.restore(stored, jax.tree.map(place, there, _shardings(shape)))


@contextlib.contextmanager
def _whole(stored: pathlib.Path):
    """Turns what orbax and tensorstore raise, many kinds with pages of text, into one ValueError."""
    try:
        yield
    except Exception as error:
        first = str(error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"{stored} is damaged ({type(error).__name__}: {first}): give another copy or --step"
        ) from error


def _paths(tree) -> set[str]:
    return {mesh.path_name(path) for path, _ in jax.tree.leaves_with_path(tree)}


def _shardings(shape: config.Config) -> types.Params:
    """Returns shardings that put every parameter on the first device."""
    return mesh.shardings(mesh.make(devices=jax.devices()[:1]), model.abstract(shape))


def _json(path: pathlib.Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error})") from error
    return content if isinstance(content, dict) else {}
