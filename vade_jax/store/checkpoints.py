"""Checkpoints in orbax's `CheckpointManager`: one composite a step, with checksums of its files.

    checkpoints/42/policy, optimizer, ...   trees of arrays
                   content                  JSON: progress, config
                   checksums.json           SHA-256 of every file of these

Nothing is pickled. Orbax writes a step to a temporary directory and renames it when it is complete; an
incomplete step is never listed.

Several processes share one directory. All call the same functions in the same order, and each writes and
reads the shards of its devices. Another number of processes restores the same values.

Orbax's files have no checksums: a changed byte would be read as other numbers, or end the process inside
tensorstore. So process 0 writes the checksums right before orbax's rename, and nothing is parsed before the
files are compared with them.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from vade_jax.types import PathLike

Trees = Mapping[str, Any]  # trees of arrays, by name
TREES = ("policy", "optimizer", "selector", "waiting")
CONTENT = "content"
CHECKSUMS = "checksums.json"


def manager_of(
    directory: PathLike, *, keep: int = 2, is_sole: bool = False
) -> ocp.CheckpointManager:
    """Returns orbax's manager of the steps in one directory, which is created if missing.

    Args:
        directory: contains all steps.
        keep: the number of newest steps to keep.
        is_sole: no other process writes there, so leftovers of a killed save are removed.
    """
    directory = pathlib.Path(directory).absolute()
    handlers: dict[str, Any] = {name: ocp.StandardCheckpointHandler() for name in TREES}
    # Orbax calls it in process 0 when a step's files are written, before it renames their directory.
    seal = ocp.options.AsyncOptions(
        timeout_secs=3600, post_finalization_callback=lambda: _seal(directory)
    )
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep, cleanup_tmp_directories=is_sole, async_options=seal
    )
    handlers[CONTENT] = ocp.JsonCheckpointHandler()
    manager = ocp.CheckpointManager(directory, options=options, item_handlers=handlers)
    if is_sole:
        # If orbax is killed while it removes an old step, half of it remains, is listed as a
        # complete one, and stays if no later step is saved.
        for step in sorted(manager.all_steps())[:-keep]:
            manager.delete(step)
    return manager


def save(
    manager: ocp.CheckpointManager, step: int, trees: Trees, content: Mapping[str, Any]
) -> None:
    """Saves a step: some of `TREES`, and JSON. A step that exists is not written again.

    Returns when the arrays are copied, so the caller may donate them; a thread writes the files.
    """
    # The previous step may still be being written. It is in `all_steps` only when complete, and its error,
    # such as a full disk, would otherwise surface one save later or never.
    manager.wait_until_finished()
    if step in manager.all_steps():
        return
    # An array that was not put on a device is written from a copy on the host.
    is_placed = lambda x: isinstance(x, jax.Array) and x.committed
    trees = jax.tree.map(lambda x: x if is_placed(x) else np.array(x), dict(trees))
    items: dict[str, Any] = {name: ocp.args.StandardSave(x) for name, x in trees.items()}
    plain = json.loads(json.dumps(content, default=lambda x: np.asarray(x).item()))
    items[CONTENT] = ocp.args.JsonSave(plain)
    manager.save(step, args=ocp.args.Composite(**items), force=True)


def restore(
    manager: ocp.CheckpointManager, step: int, examples: Trees
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the JSON of `step` and the trees that `examples` names, bit for bit.

    An array comes with the sharding of its example, a `jax.ShapeDtypeStruct`; where the example has none
    or is an array, it comes as NumPy. None as example matches a tree of any structure: it
    comes as nested dicts of NumPy arrays, and is left out if the step has no such tree.

    Raises:
        ValueError: the step is damaged or missing, or its arrays have other names or shapes.
    """
    try:
        _check(pathlib.Path(manager.directory, str(step)))
        return _restore(manager, step, examples)
    except Exception as error:  # orbax and tensorstore raise many types, with pages of text
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise ValueError(
            f"checkpoint {manager.directory / str(step)} cannot be read ({type(error).__name__}: {reason}): if it "
            "is damaged, restore it from a copy, or delete that directory to resume from the step before"
        ) from error


def _restore(
    manager: ocp.CheckpointManager, step: int, examples: Trees
) -> tuple[dict[str, Any], dict[str, Any]]:
    read = ocp.args.Composite(**{CONTENT: ocp.args.JsonRestore()})
    content = manager.restore(step, args=read)[CONTENT]
    metadata, targets, trees = manager.item_metadata(step), {}, {}
    for name in (x for x in examples if x in metadata):
        example = dict(metadata[name].tree) if examples[name] is None else examples[name]
        targets[name] = jax.tree.map(_target, example)
    if targets:  # without arguments orbax would restore all that there is
        items = {name: ocp.args.StandardRestore(x) for name, x in targets.items()}
        trees = dict(manager.restore(step, args=ocp.args.Composite(**items)))
    for name, target in targets.items():
        # Orbax reads NumPy in any shape.
        if jax.tree.map(np.shape, trees[name]) != jax.tree.map(np.shape, target):
            raise ValueError(f"{name} has arrays of other shapes")
    return content, trees


def _target(example: Any) -> Any:
    """Returns what orbax reads an array into."""
    if isinstance(example, jax.ShapeDtypeStruct) and example.sharding is not None:
        return example
    return np.empty(example.shape, example.dtype)


# ------------------------------------------------------------------------------ checksums
def _seal(directory: pathlib.Path) -> None:
    """Writes the checksums of the step that is being saved in `directory`."""
    # A killed save may have left an older directory.
    step = max(directory.glob("*.orbax-checkpoint-tmp*"), key=lambda path: path.stat().st_mtime_ns)
    # Orbax writes into its file at the top once more when it renames the directory.
    files = [path for path in step.glob("*/**/*") if path.is_file()]
    names = [str(path.relative_to(step)) for path in files]
    (step / CHECKSUMS).write_text(json.dumps(_checksums(step, names), indent=1))


def _check(step: pathlib.Path) -> None:
    """Compares a step's files with their checksums; several processes share the work."""
    expected = json.loads((step / CHECKSUMS).read_text())
    share = sorted(expected)[jax.process_index() :: jax.process_count()]
    damaged = [name for name, x in _checksums(step, share).items() if x != expected[name]]
    if multihost_utils.process_allgather(np.array(bool(damaged))).any():
        raise ValueError(f"{', '.join(damaged) or 'a file'} is not what was saved")


def _checksums(step: pathlib.Path, names: Sequence[str]) -> dict[str, str]:
    """Returns the SHA-256 of files, by their names; threads read them at once."""

    def checksum(name: str) -> str:
        if not (step / name).is_file():
            return "missing"
        with (step / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with futures.ThreadPoolExecutor() as threads:
        return dict(zip(names, threads.map(checksum, names), strict=True))
