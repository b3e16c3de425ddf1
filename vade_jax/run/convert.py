"""Converts a policy between Hugging Face files and orbax, and GGUF to Hugging Face; the source decides.

A Hugging Face directory becomes an orbax StandardCheckpoint of the parameters: a nested dict, as
`orbax.checkpoint.StandardCheckpointer().restore(DIR)` returns it. Such a checkpoint, a run directory
or its checkpoints/ becomes a Hugging Face directory, with the config and tokenizer of the model that it
started from. float32 is exact in both directions. All parameters are in the host's memory once. A GGUF file,
the format of llama.cpp, becomes a Hugging Face directory.
"""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from vade_jax import settings, types
from vade_jax.data import hub
from vade_jax.models.qwen import config, files, lora, model, peft
from vade_jax.run import directory, gguf
from vade_jax.store import checkpoints
from vade_jax.trainer import mesh

ORBAX = "_METADATA"  # every StandardCheckpoint has one


def convert(
    source: types.PathLike,
    target: types.PathLike,
    dtype: str = "float32",
    step: int | None = None,
    base: types.PathLike | None = None,
) -> None:
    """Writes `target`, which must not exist, whole or not at all.

    Args:
        source: a Hugging Face directory, an orbax one of parameters, a run directory or its
            checkpoints/, or a file whose name ends in .gguf.
        target: the new directory.
        dtype: of the parameters in `target`.
        step: of a run's checkpoint; default: the latest.
        base: the Hugging Face directory, or a name on the hub, with the config and tokenizer for an orbax
            source; default: the model that the run started from.

    Raises:
        ValueError: the arguments or the files contradict each other.
        FileNotFoundError: the source, one of its files, or the step does not exist.
    """
    source, target = pathlib.Path(source).absolute(), pathlib.Path(target).absolute()
    if target.exists():
        raise ValueError(f"--target={target} exists: give a new directory")
    if source.suffix == ".gguf" and source.is_file():
        if step is not None or base:
            raise ValueError(f"--step and --model are for orbax; {source} is GGUF")
        with _building(target) as building:
            gguf.to_hugging_face(source, building, dtype)
        return
    if not source.is_dir():
        raise FileNotFoundError(f"--source={source} is no directory and no GGUF file")
    # A run directory has a config.json too, but it is not a model's.
    if "model_type" in _json(source / files.CONFIG):
        if step is not None or base:
            raise ValueError(f"--step and --model are for orbax; {source} is Hugging Face's")
        directory.check_name(target, "--target")
        shape = files.load_config(source)
        _, params = files.load(source, jnp.dtype(dtype), _shardings(model.abstract(shape)))
        with contextlib.closing(ocp.StandardCheckpointer()) as writer:
            writer.save(target, params)
        return
    stored, base, started = _find(source, step, base)
    shape = files.load_config(base)
    wanted = settings.Lora.from_dict(started.get("lora", {}))
    if wanted.rank:
        params = with_adapter(stored, shape, wanted, _adapted(stored, started, base))
    else:
        params = _restore(stored, model.abstract(shape), f"the model in {base}")
    with _building(target) as building:
        files.copy_tokenizer(base, building)
        files.save(building, shape, params, jnp.dtype(dtype))


@contextlib.contextmanager
def _building(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a path beside `target`, and renames it to `target` at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as beside:
        building = pathlib.Path(beside, target.name)
        yield building
        building.rename(target)


def _find(
    source: pathlib.Path, step: int | None, base: types.PathLike | None
) -> tuple[pathlib.Path, pathlib.Path, dict]:
    """Returns the path of the parameters, their Hugging Face directory, and the run's config."""
    if (source / ORBAX).exists():
        if step is not None or not base:
            raise ValueError(
                f"{source} holds parameters alone: give --model, the Hugging Face directory "
                "whose config and tokenizer they go with, and no --step"
            )
        return source, pathlib.Path(hub.model(str(base))), {}
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
        found = _base(root, started, base)
        if started.get("lora", {}).get("rank") and not started["warm_start"]["num_steps"]:
            _check_adapted(found, saved.progress(step), started["model"]["checkpoint"])
    return root / str(step) / "policy", found, started


def _base(root: pathlib.Path, started: dict, given: types.PathLike | None) -> pathlib.Path:
    """Returns the Hugging Face directory that was given, or that the run's config names."""
    if given:
        return pathlib.Path(hub.model(str(given)))
    named = started.get("model", {})
    found = root.parent / "tiny_model" if named.get("preset") else named.get("checkpoint")
    name = hub.parse(str(found))
    if name and name.is_pinned:  # the form in the config of a run that started from the hub
        return pathlib.Path(hub.model(str(found)))
    if not found or not os.path.isdir(found):
        raise ValueError(
            f"{root} does not say which Hugging Face directory it started from, or it is "
            f"gone ({found}): give --model=DIR"
        )
    return pathlib.Path(found)


def _check_adapted(base: pathlib.Path, progress: dict, began_from: str) -> None:
    """Raises ValueError if the run's adapter was trained on other weights than those in `base`."""
    start = progress.get("start", 0)  # 0: not kept, or a commit on the hub
    if start and start != files.identity(base):
        raise ValueError(
            f"{base} is another model than the run's adapter learned on, which was in {began_from}: "
            "give that one as --model"
        )


def with_adapter(
    stored: pathlib.Path, shape: config.Config, wanted: settings.Lora, adapted: pathlib.Path
) -> types.Params:
    """Returns all parameters of a LoRA run: the adapter and the weights in `adapted` that it was trained on.

    Raises:
        ValueError: another adapter is stored.
    """
    adapter = peft.choose(wanted, shape)
    _, abstract = lora.split(model.abstract(shape, adapter=adapter))
    params = _restore(stored, abstract, f"an adapter of rank {wanted.rank} for {adapted}")
    _, base = files.load(adapted, jnp.float32, _shardings(model.abstract(shape)))
    return lora.join(base, params, adapter.scale)


def _adapted(stored: pathlib.Path, started: dict, base: pathlib.Path) -> pathlib.Path:
    """Returns the Hugging Face directory of the weights that a run's adapter was trained on."""
    warm_start = settings.WarmStart.from_dict(started["warm_start"])
    if not warm_start.num_steps:
        return base
    return pathlib.Path(warm_start.directory or stored.parents[2] / "warm_start")


def _restore(stored: pathlib.Path, abstract: types.Params, what: str) -> types.Params:
    """Returns the parameters in `stored`, which must have the shapes of `abstract`."""
    with contextlib.closing(ocp.StandardCheckpointer()) as reader:
        with _whole(stored):
            metadata = reader.metadata(stored).item_metadata
            if metadata is None:
                raise ValueError("no metadata")
            there = metadata.tree
        sizes, found = _sizes(abstract), _sizes(there)
        for path in {**sizes, **found}:
            if sizes.get(path) != found.get(path):
                problem = f"{path} is {found.get(path, 'missing')}, expected "
                problem += f"{sizes.get(path, 'nothing of that name')}"
                raise ValueError(f"{stored} is not of {what} ({problem}): give another --model")

        def place(x, sharding):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

        with _whole(stored):
            params = reader.restore(stored, jax.tree.map(place, there, _shardings(abstract)))
            if stored.name == "policy":  # a run's checkpoint; bare parameters have no checksums
                checkpoints.check(stored.parent, {"policy": params})
            return params


@contextlib.contextmanager
def _whole(stored: pathlib.Path):
    """Turns the errors of orbax and tensorstore into one ValueError."""
    try:
        yield
    except Exception as error:
        raise checkpoints.unreadable(str(stored), error, "give another copy or --step") from error


def _sizes(tree: types.Params) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree.leaves_with_path(tree)
    return {mesh.path_name(path): tuple(leaf.shape) for path, leaf in leaves}


def _shardings(abstract: types.Params) -> types.Params:
    """Returns shardings that put every parameter on the first device."""
    return mesh.shardings(mesh.make(devices=jax.devices()[:1]), abstract)


def _json(path: pathlib.Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error})") from error
    return content if isinstance(content, dict) else {}
