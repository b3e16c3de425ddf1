"""Saves and restores checkpoints: one orbax composite a step.

    checkpoints/42/policy, optimizer, ...   trees of arrays
                   content                  JSON: progress, config, and the checksums of all arrays

Nothing is pickled. A step is written to a temporary directory and renamed when it is complete; an incomplete
step is never listed.

Several processes share one directory. All call the same functions in the same order, and each writes and
reads the shards of its devices. Another number of processes restores the same values.

Orbax's files have no checksums, so a changed byte would be read as other numbers. Each array is therefore
saved with a sum of its bits.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from vade_jax.types import Array

Trees = Mapping[str, Any]  # trees of arrays, by name
TREES = ("policy", "optimizer", "selector", "waiting")
CONTENT = "content"


class Checkpointer:
    """Saves and restores the steps in one directory, which is created if missing.

    Args:
        directory: contains all steps.
        keep: the number of newest steps to keep.
        is_sole: nobody else writes there, so leftovers of a killed save are removed.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int = 2, is_sole: bool = False):
        self.directory = os.path.abspath(directory)
        handlers: dict[str, Any] = {name: ocp.StandardCheckpointHandler() for name in TREES}
        self._manager = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=is_sole),
            item_handlers=handlers | {CONTENT: ocp.JsonCheckpointHandler()},
        )
        if is_sole:
            # If orbax is killed while it removes an old step, half of it remains, is listed as a
            # complete one, and stays if no later step is saved.
            for step in sorted(self._manager.all_steps())[:-keep]:
                self._manager.delete(step)

    def save(self, step: int, trees: Trees, content: Mapping[str, Any]) -> None:
        """Saves a step: some of `TREES`, and JSON. A step that exists is not written again.

        Returns when the arrays are copied, so the caller may donate them; a thread writes the files (see
        `wait`).
        """
        # The step before may still be written. Until it is complete it is not in `all_steps`, and
        # its error, such as a full disk, would otherwise come up one save later or never.
        self.wait()
        if step in self._manager.all_steps():
            return
        # An uncommitted array is written from a copy on the host.
        trees = jax.tree.map(lambda x: x if _is_committed(x) else np.array(x), dict(trees))
        values = json.loads(json.dumps(dict(content), default=lambda x: np.asarray(x).item()))
        plain = {"values": values, "checksums": {name: _sums(x) for name, x in trees.items()}}
        items: dict[str, Any] = {name: ocp.args.StandardSave(x) for name, x in trees.items()}
        items[CONTENT] = ocp.args.JsonSave(plain | {"crc32": _crc32(plain)})
        self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def wait(self) -> None:
        """Blocks until the last `save` is complete on disk; raises its error if it failed."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then frees orbax's threads."""
        self._manager.close()

    def latest_step(self) -> int | None:
        """Returns the newest complete step; None if there is none."""
        return self._manager.latest_step()

    def restore(self, step: int, examples: Trees) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the JSON of `step` and the trees that `examples` names, bit for bit.

        An array comes with the sharding of its example, a `jax.ShapeDtypeStruct`; where the example has none
        or is an array, it comes as NumPy. None instead of an example stands for a tree of any structure: it
        comes as nested dicts of NumPy arrays, and is left out if the step has no such tree.

        Raises:
            ValueError: the step is damaged or missing, or its arrays have other names or shapes.
        """
        with self._reading(step):
            read = ocp.args.Composite(**{CONTENT: ocp.args.JsonRestore()})
            content = dict(self._manager.restore(step, args=read)[CONTENT])
            if content.pop("crc32") != _crc32(content):
                raise ValueError(f"{CONTENT} is not what was saved")
            metadata, targets, trees = self._manager.item_metadata(step), {}, {}
            # In the same order in all processes, whose checksums are computed together.
            for name in (x for x in examples if x in content["checksums"]):
                example = examples[name]
                example = dict(metadata[name].tree) if example is None else example
                targets[name] = jax.tree.map(_target, example)
            if targets:  # without arguments orbax would restore all that there is
                items = {name: ocp.args.StandardRestore(x) for name, x in targets.items()}
                trees = dict(self._manager.restore(step, args=ocp.args.Composite(**items)))
            for name, target in targets.items():
                tree = trees[name]
                if _shapes(tree) != _shapes(target):  # orbax reads NumPy in any shape
                    raise ValueError(f"{name} has arrays of other shapes or dtypes")
                if _sums(tree) != content["checksums"][name]:
                    raise ValueError(f"{name} is not what was saved")
        return content["values"], trees

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[None]:
        """Turns what orbax and tensorstore raise, which is of many kinds and pages long, into one line."""
        try:
            yield
        except Exception as error:
            path = os.path.join(self.directory, str(step))
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            older = max((x for x in self._manager.all_steps() if x < step), default=None)
            otherwise = "start anew" if older is None else f"resume from step {older}"
            raise ValueError(
                f"checkpoint {path} cannot be read ({type(error).__name__}: {reason}): if it is damaged, restore "
                f"it from a copy, or delete that directory to {otherwise}"
            ) from error


def _is_committed(x: Array) -> bool:
    """Returns whether an array was put on its devices, rather than left where it happens to be."""
    return isinstance(x, jax.Array) and x.committed


def _target(example: Any) -> Any:
    """Returns what orbax reads an array into."""
    if isinstance(example, jax.ShapeDtypeStruct) and example.sharding is not None:
        return example
    return np.empty(example.shape, example.dtype)


def _shapes(tree: Any) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [(x.shape, np.dtype(x.dtype)) for x in jax.tree.leaves(tree)]


# ------------------------------------------------------------------------------ checksums
def _sums(tree: Any) -> list[int]:
    """Returns the checksum of each array in a tree."""
    return [checksum(x) for x in jax.tree.leaves(tree)]


def checksum(x: Array) -> int:
    """Returns the sum, modulo 2^32, of the bits of each value times an odd number of its place.

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


def _crc32(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
