"""Saves and restores checkpoints: one orbax composite a step.

    checkpoints/42/policy, optimizer, ...   each a tree of arrays, by name
                   content                  JSON: progress, config, and the checksums of all arrays

Trees are stored as nested dicts, with each array under the path of its leaf. So nothing is pickled, and an
optax namedtuple or a selector's dataclass needs no special code. A step is written to a temporary directory
and renamed when it is complete; an incomplete step is never listed.

Several processes share one directory. All call the same functions in the same order, and each writes and
reads the shards of its devices. Another number of processes restores the same values.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import traverse_util

from vade_jax.store import checksums

Trees = Mapping[str, Any]  # trees of arrays, by name
TREES = ("policy", "optimizer", "selector", "waiting")
CONTENT = "content"
NO_ARRAYS = {"no_arrays": np.zeros((), bool)}  # orbax rejects an empty item
# Orbax measures its timeouts (20 minutes; 5 for directories made in the background) with the wall clock. If
# someone sets the clock ahead during a save, the default timeouts would end the run.
PATIENT = ocp.AsyncOptions(timeout_secs=7 * 24 * 3600, create_directories_asynchronously=False)
# Words of errors of reading that do not mean damage.
HINDRANCES = (
    "MemoryError",
    "PermissionError",
    "RESOURCE_EXHAUSTED",
    "PERMISSION_DENIED",
    "UNAVAIL",
)


class Checkpointer:
    """Saves and restores the steps in one directory; reading does not create the directory.

    Args:
        directory: contains all steps.
        keep: the number of newest steps to keep.
        every: save every so many steps.
        is_sole: nobody else writes there, so leftovers of a killed save are removed.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        keep: int = 2,
        every: int = 1,
        is_sole: bool = False,
    ):
        self.directory = os.path.abspath(directory)
        self._keep, self._every, self._is_sole = keep, every, is_sole
        self._opened: ocp.CheckpointManager | None = None

    def is_due(self, step: int) -> bool:
        """Returns whether a run saves this step even if it goes on."""
        return step % self._every == 0

    def save(self, step: int, trees: Trees, content: Mapping[str, Any]) -> None:
        """Saves a step: some of `TREES`, and JSON. A step that exists is not written again.

        Returns when the arrays are copied, so the caller may donate them; a thread writes the files (see
        `wait`).
        """
        manager = self._manager()
        # The step before may still be written. Until it is complete it is not in `all_steps`, and
        # its error, a full disk for one, would otherwise come up one save later or never.
        manager.wait_until_finished()
        if step in manager.all_steps():
            return
        args, sums = {}, {}
        for name, tree in trees.items():
            # An uncommitted array is written from a copy on the host.
            named = {
                path: leaf if _sharding(leaf) is not None else np.array(leaf)
                for path, leaf in _named(tree).items()
            }
            sums[name] = _checksums(named)
            args[name] = ocp.args.StandardSave(_nested(named or NO_ARRAYS))
        plain = json.loads(json.dumps(dict(content), default=lambda x: np.asarray(x).item()))
        plain = {"values": plain, "checksums": sums}
        args[CONTENT] = ocp.args.JsonSave(plain | {"crc32": checksums.of_json(plain)})
        # force: skips orbax's own schedule, because `every` decides.
        manager.save(step, args=ocp.args.Composite(**args), force=True)

    def wait(self) -> None:
        """Blocks until the last `save` is complete on disk; raises its error if it failed."""
        if self._opened is not None:
            self._opened.wait_until_finished()

    def close(self) -> None:
        """Waits, then frees orbax's threads."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def latest_step(self) -> int | None:
        """Returns the newest complete step; None if there is none or no directory."""
        if self._opened is None and not os.path.exists(self.directory):
            return None
        return self._manager().latest_step()

    def content(self, step: int | None = None) -> dict[str, Any]:
        """Returns the JSON of `step` (default: the latest); reads no arrays.

        Raises:
            FileNotFoundError: the step does not exist or is incomplete.
            ValueError: it is damaged.
        """
        step = self.latest_step() if step is None else step
        if step is None:
            raise FileNotFoundError(f"no complete checkpoint in {self.directory}")
        with self._reading(step) as manager:
            return self._content(manager, step)["values"]

    def restore(self, step: int, examples: Trees) -> dict[str, Any]:
        """Returns the trees of `step` that `examples` names, bit for bit.

        The leaves of the examples are `jax.ShapeDtypeStruct` or arrays. A leaf with a sharding gets
        that sharding, and a NumPy array stays NumPy. Any other leaf, such as one of a fresh selector state,
        is uncommitted, so that it can be combined with arrays on any mesh. In the place of a tree None stands
        for one of any structure: it comes as nested dicts of NumPy arrays, or as {} where there is none.

        Raises:
            FileNotFoundError: the step does not exist or is incomplete.
            ValueError: the step is damaged, or its arrays have other names, shapes or types.
        """
        with self._reading(step) as manager:
            sums = self._content(manager, step)["checksums"]
            metadata = manager.item_metadata(step)
            stored = {name: _stored(metadata, name) for name in examples if name in sums}
        args, trees = {}, {}
        for name, example in examples.items():
            named = stored.get(name, {}) if example is None else _named(example)
            # Checked before any array is read: orbax's own message is much longer, or missing.
            self._check_structure(step, name, stored.get(name, {}), named)
            if named:  # a tree that was saved without arrays has no item
                into = {path: _to_read_into(leaf, example) for path, leaf in named.items()}
                args[name] = ocp.args.StandardRestore(_nested(into))
        with self._reading(step) as manager:
            # Without arguments orbax would restore all that there is.
            restored = manager.restore(step, args=ocp.args.Composite(**args)) if args else {}
            found = {name: restored[name] for name in args}
            for name, tree in found.items():
                if _checksums(_named(tree)) != sums[name]:
                    raise ValueError(f"{name} is not what was saved")
        for name, example in examples.items():
            tree = found.get(name, {})
            trees[name] = tree if example is None else _like(example, tree)
        return trees

    def _content(self, manager: ocp.CheckpointManager, step: int) -> dict[str, Any]:
        """Returns the JSON of a step with its checksums; raises ValueError if it was changed."""
        read = ocp.args.Composite(**{CONTENT: ocp.args.JsonRestore()})
        content = dict(manager.restore(step, args=read)[CONTENT])
        if content.pop("crc32") != checksums.of_json(content):
            raise ValueError(f"{CONTENT} is not what was saved")
        return content

    def _manager(self) -> ocp.CheckpointManager:
        if self._opened is None:
            handlers: dict[str, Any] = {name: ocp.StandardCheckpointHandler() for name in TREES}
            self._opened = ocp.CheckpointManager(
                self.directory,
                options=ocp.CheckpointManagerOptions(
                    max_to_keep=self._keep,
                    cleanup_tmp_directories=self._is_sole,
                    async_options=PATIENT,
                ),
                item_handlers=handlers | {CONTENT: ocp.JsonCheckpointHandler()},
            )
            if self._is_sole:
                # If orbax is killed while it removes an old step, half of it remains, is listed as a
                # complete one, and stays if no later step is saved.
                for step in sorted(self._opened.all_steps())[: -self._keep]:
                    self._opened.delete(step)
        return self._opened

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[ocp.CheckpointManager]:
        """Yields orbax's manager; a missing or damaged step is one error with its path.

        Orbax and tensorstore raise many kinds of errors, with pages of text.
        """
        path = os.path.join(self.directory, str(step))
        steps = self._manager().all_steps() if os.path.exists(self.directory) else []
        if step not in steps:
            raise FileNotFoundError(
                f"no complete checkpoint {path}; complete steps: {sorted(steps)}"
            )
        try:
            yield self._manager()
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0][:200]
            reason = f"{type(error).__name__}: {first_line}"
            if any(word in reason for word in HINDRANCES):
                raise ValueError(
                    f"checkpoint {path} cannot be read here ({reason}); keep it"
                ) from error
            older = max((other for other in steps if other < step), default=None)
            otherwise = "start anew" if older is None else f"resume from step {older}"
            raise ValueError(
                f"checkpoint {path} is damaged ({reason}); restore it from a copy, or delete that directory "
                f"to {otherwise}"
            ) from error

    def _check_structure(self, step: int, item: str, stored: Trees, expected: Trees) -> None:
        """Raises ValueError for the first leaf of a tree whose name, shape or type differs."""

        def describe(named: Trees, name: str) -> str:
            if name not in named:
                return "absent"
            return f"{np.dtype(named[name].dtype)}{list(named[name].shape)}"

        for name in {**expected, **stored}:
            there, here = describe(stored, name), describe(expected, name)
            if there != here:
                raise ValueError(
                    f"checkpoint {self.directory}/{step} does not fit this run: {item}/{name} is {there} in "
                    f"the checkpoint and {here} here; use the settings that it was made with, or another workdir"
                )


# ------------------------------------------------------------------------------ trees and paths
def _named(tree: Any) -> dict[str, Any]:
    """Returns {path: leaf} of any pytree; paths read like `layers/0/kernel`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    keystr = jax.tree_util.keystr
    return {keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _nested(named: Trees) -> dict[str, Any]:
    return traverse_util.unflatten_dict(dict(named), sep="/")


def _checksums(named: Trees) -> dict[str, int]:
    return {path: checksums.of_array(leaf) for path, leaf in named.items() if path not in NO_ARRAYS}


def _stored(metadata: Any, name: str) -> dict[str, Any]:
    """Returns {path: shape and dtype} of a tree from orbax's metadata, without reading arrays."""
    if metadata.get(name) is None or not metadata[name].tree:
        raise FileNotFoundError(f"{name} is missing or has no _METADATA")
    named = _named(dict(metadata[name].tree))
    return {} if named.keys() == NO_ARRAYS.keys() else named


def _like(example: Any, tree: Any) -> Any:
    """Returns the leaves of `tree` in the structure and kind of `example`."""
    stored, leaves = _named(tree), []
    for name, leaf in _named(example).items():
        is_numpy = isinstance(leaf, np.ndarray | np.generic)
        # A leaf without a sharding of its own was read as NumPy: `asarray` makes it a jax array that is
        # not committed, as fresh ones are. A committed one could not meet arrays on a mesh.
        as_read = is_numpy or _sharding(leaf) is not None
        leaves.append(stored[name] if as_read else jnp.asarray(stored[name]))
    return jax.tree.unflatten(jax.tree.structure(example), leaves)


def _sharding(leaf: Any) -> jax.sharding.Sharding | None:
    """Returns the sharding that a leaf must have; None if any will do."""
    if isinstance(leaf, jax.Array) and not leaf.committed:
        return None  # its sharding only says where it happens to be
    return getattr(leaf, "sharding", None)


def _to_read_into(leaf: Any, example: Any) -> Any:
    """Returns the target for orbax's reading: a sharded struct, or NumPy."""
    sharding = None if example is None else _sharding(leaf)
    if sharding is None:
        return np.empty(leaf.shape, leaf.dtype)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
