"""Checkpoints in orbax's `CheckpointManager`: one composite a step, with a checksum of every array.

    checkpoints/42/policy, optimizer, ...   trees of arrays
                   content                  a text in JSON: progress, config, the checksums of all arrays

Nothing is pickled. Orbax writes a step to a temporary directory and renames it when it is complete; an
incomplete step is never listed.

Several processes share one directory. All call the same functions in the same order, and each writes and
reads the shards of its devices. Another number of processes restores the same values.

Orbax's files have no checksums, so a changed byte would be read as other numbers. Each array is therefore
saved with a sum of its bits.
"""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from vade_jax.types import Array, PathLike

Trees = Mapping[str, Any]  # trees of arrays, by name
TREES = ("policy", "optimizer", "selector", "waiting")
CONTENT = "content"


def manager_of(
    directory: PathLike, *, keep: int = 2, is_sole: bool = False
) -> ocp.CheckpointManager:
    """Returns orbax's manager of the steps in one directory, which is created if missing.

    Args:
        directory: contains all steps.
        keep: the number of newest steps to keep.
        is_sole: no other process writes there, so leftovers of a killed save are removed.
    """
    handlers: dict[str, Any] = {name: ocp.StandardCheckpointHandler() for name in TREES}
    manager = ocp.CheckpointManager(
        os.path.abspath(directory),
        options=ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=is_sole),
        item_handlers=handlers | {CONTENT: ocp.JsonCheckpointHandler()},
    )
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
    # An uncommitted array is written from a copy on the host.
    trees = jax.tree.map(lambda x: x if _is_committed(x) else np.array(x), dict(trees))
    plain = {"values": content, "checksums": {name: _sums(x) for name, x in trees.items()}}
    text = json.dumps(plain, default=lambda x: np.asarray(x).item())
    items: dict[str, Any] = {name: ocp.args.StandardSave(x) for name, x in trees.items()}
    items[CONTENT] = ocp.args.JsonSave({"text": text, "crc32": zlib.crc32(text.encode())})
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
    saved = manager.restore(step, args=read)[CONTENT]
    if saved["crc32"] != zlib.crc32(saved["text"].encode()):
        raise ValueError(f"{CONTENT} is not what was saved")
    content = json.loads(saved["text"])
    metadata, targets, trees = manager.item_metadata(step), {}, {}
    # In the same order in all processes, because they compute checksums together.
    for name in (x for x in examples if x in content["checksums"]):
        example = dict(metadata[name].tree) if examples[name] is None else examples[name]
        targets[name] = jax.tree.map(_target, example)
    if targets:  # without arguments orbax would restore all that there is
        items = {name: ocp.args.StandardRestore(x) for name, x in targets.items()}
        trees = dict(manager.restore(step, args=ocp.args.Composite(**items)))
    for name, target in targets.items():
        # Orbax reads NumPy in any shape.
        if jax.tree.map(np.shape, trees[name]) != jax.tree.map(np.shape, target):
            raise ValueError(f"{name} has arrays of other shapes")
        if _sums(trees[name]) != content["checksums"][name]:
            raise ValueError(f"{name} is not what was saved")
    return content["values"], trees


def _is_committed(x: Array) -> bool:
    """Returns whether an array was explicitly placed on its devices."""
    return isinstance(x, jax.Array) and x.committed


def _target(example: Any) -> Any:
    """Returns what orbax reads an array into."""
    if isinstance(example, jax.ShapeDtypeStruct) and example.sharding is not None:
        return example
    return np.empty(example.shape, example.dtype)


# ------------------------------------------------------------------------------ checksums
def _sums(tree: Any) -> list[int]:
    """Returns the checksum of each array in a tree."""
    return [checksum(x) for x in jax.tree.leaves(tree)]


def checksum(x: Array) -> int:
    """Returns the sum, modulo 2^32, of the bits of each value times an odd number for its position.

    One changed value always changes it. The order of a sum does not matter: each device sums its shard, and
    another mesh gets the same number.
    """
    if not _is_committed(x):
        # First on the host: without x64, JAX would cut 64-bit values in half.
        x = np.atleast_1d(np.asarray(x))
        x = x.view(f"u{min(x.dtype.itemsize, 4)}")
    return int(_sum(x))


@jax.jit
def _sum(x: Array) -> Array:
    x = jax.device_put(x, jax.memory.Space.Device)  # an offloaded array is in the host's memory
    x = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    bits = jax.lax.bitcast_convert_type(x, f"u{x.dtype.itemsize}").astype(jnp.uint32)
    place = jnp.zeros((), jnp.uint32)
    for axis, size in enumerate(bits.shape):
        iota = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        place = place * np.uint32(size % 2**32) + iota
    return jnp.sum(bits * (2 * place + 1), dtype=jnp.uint32)
