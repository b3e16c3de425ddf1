"""Saves and restores checkpoints: policy, optimizer, selector, progress and config in one orbax composite.

    checkpoints/42/policy      the parameters, a nested dict
                   optimizer   opt_state and step, nested by path
                   selector    the selector's arrays, nested by path
                   progress    JSON: step, seed, rollouts_total, ...
                   config      JSON: the config of the run at this step
                   queue       arrays of batches that wait to be learned from; only with a lag
                   queued      JSON: what belongs to them and is no array
                   checksums   JSON: of every array and of the JSONs

Trees are stored as nested dicts, with each array under the path of its leaf. So nothing is pickled, and an
optax namedtuple or a selector's dataclass needs no special code. A step is written to a temporary directory
and renamed when it is complete; an incomplete step is never listed.

Several processes share one directory. All call the same functions in the same order, and each writes and
reads the shards of its devices. Another number of processes restores the same values.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import traverse_util

from vade_jax import types
from vade_jax.store import checksums

ARRAY_ITEMS = ("policy", "optimizer", "selector")
JSON_ITEMS = ("progress", "config", "checksums")
QUEUE, QUEUED = "queue", "queued"
NO_ARRAYS = {"no_arrays": np.zeros((), bool)}  # orbax rejects an empty item
# Orbax measures its timeouts (20 minutes; 5 for directories made in the background) with the wall clock. If
# someone sets the clock ahead during a save, the default timeouts would end the run.
PATIENT = ocp.AsyncOptions(timeout_secs=7 * 24 * 3600, create_directories_asynchronously=False)
# Errors of reading, from Python and tensorstore, that do not mean damage.
HINDERED = (MemoryError, PermissionError)
HINDRANCES = ("RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "UNAVAILABLE")


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
        if keep < 1 or every < 1:
            raise ValueError(f"keep={keep} and every={every}: both count steps, from 1 up")
        self.directory = os.path.abspath(directory)
        self._keep, self._every, self._is_sole = keep, every, is_sole
        self._opened: ocp.CheckpointManager | None = None

    def is_due(self, step: int) -> bool:
        """Returns whether `save` saves this step without `force`."""
        return step % self._every == 0

    def save(
        self,
        step: int,
        state: types.TrainState,
        selector_state: Any,
        progress: Mapping[str, Any],
        config: Mapping[str, Any],
        *,
        waiting: tuple[Mapping[str, np.ndarray], Any] | None = None,
        force: bool = False,
    ) -> bool:
        """Saves every `every`-th step, or any with `force`; returns whether it did.

        `waiting` are arrays and JSON of batches that wait, if there are any: see `waiting`.

        Returns when the arrays are copied, so the caller may donate them; a thread writes the files (see
        `wait`). A step that exists is not written again.
        """
        if not force and not self.is_due(step):
            return False
        manager = self._manager()
        # The step before may still be written. Until it is complete it is not in `all_steps`, and
        # its error, a full disk for one, would otherwise come up one save later or never.
        manager.wait_until_finished()
        if step in manager.all_steps():
            return False
        args, sums = {}, {}
        for name, tree in _items_of(state, selector_state).items():
            # An uncommitted array is written from a copy on the host.
            named = {
                path: leaf if _sharding(leaf) is not None else np.array(leaf)
                for path, leaf in _named(tree).items()
            }
            sums[name] = {path: checksums.of_array(leaf) for path, leaf in named.items()}
            args[name] = ocp.args.StandardSave(
                traverse_util.unflatten_dict(named or NO_ARRAYS, sep="/")
            )
        plain: dict[str, Any] = {"progress": progress, "config": config}
        if waiting is not None:
            arrays, plain[QUEUED] = dict(waiting[0]), {"batches": waiting[1]}
            sums[QUEUE] = {path: checksums.of_array(x) for path, x in arrays.items()}
            args[QUEUE] = ocp.args.StandardSave(traverse_util.unflatten_dict(arrays, sep="/"))
        for name, content in plain.items():
            args[name] = ocp.args.JsonSave(_plain(content))
            sums[name] = checksums.of_json(_plain(content))
        args["checksums"] = ocp.args.JsonSave(sums)
        # force: skips orbax's own schedule, because `every` decides.
        return manager.save(step, args=ocp.args.Composite(**args), force=True)

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

    def restore(
        self, step: int, abstract_state: types.TrainState, abstract_selector: Any
    ) -> tuple[types.TrainState, Any, dict[str, Any]]:
        """Returns (state, selector_state, progress) of `step`, bit for bit.

        The leaves of the two examples are `jax.ShapeDtypeStruct` or arrays. A leaf with a sharding gets
        that sharding, and a NumPy array stays NumPy. Any other leaf, such as one of a fresh selector state,
        is uncommitted, so that it can be combined with arrays on any mesh.

        Raises:
            FileNotFoundError: the step does not exist or is incomplete.
            ValueError: the step is damaged, or its arrays have other names, shapes or types.
        """
        examples = _items_of(abstract_state, abstract_selector)
        wanted = {name: _named(tree) for name, tree in examples.items()}
        with self._reading(step) as manager:
            stored = _stored(manager.item_metadata(step))
        # Checked before any array is read: orbax's own message is much longer, or missing.
        _check_structure(stored, wanted, self._path(step))
        args: dict[str, Any] = {"progress": ocp.args.JsonRestore()}
        for name, named in wanted.items():
            if named:  # a tree that was saved without arrays has no item
                into = {path: _to_read_into(leaf) for path, leaf in named.items()}
                args[name] = ocp.args.StandardRestore(traverse_util.unflatten_dict(into, sep="/"))
        with self._reading(step) as manager:
            found = dict(manager.restore(step, args=ocp.args.Composite(**args)).items())
            check(self._path(step), found)
        trees = {name: _like(tree, found.get(name)) for name, tree in examples.items()}
        state = abstract_state.replace(params=trees["policy"], **trees["optimizer"])
        return state, trees["selector"], found["progress"]

    def waiting(self, step: int) -> tuple[dict[str, np.ndarray], Any] | None:
        """Returns the arrays and the JSON of the batches that waited at `step`; None if none did.

        Raises:
            ValueError: they are damaged.
        """
        if not os.path.exists(os.path.join(self._path(step), QUEUED)):
            return None
        wanted = {QUEUE: ocp.args.StandardRestore(), QUEUED: ocp.args.JsonRestore()}
        with self._reading(step) as manager:
            restored = manager.restore(step, args=ocp.args.Composite(**wanted))
            found = {name: restored[name] for name in wanted}
            check(self._path(step), found)
        arrays = {path: np.asarray(x) for path, x in _named(found[QUEUE]).items()}
        return arrays, found[QUEUED]["batches"]

    def config(self, step: int | None = None) -> dict[str, Any]:
        """Returns the config that `step` (default: the latest) was saved with."""
        return self._read_json("config", step)

    def progress(self, step: int | None = None) -> dict[str, Any]:
        """Returns the progress that `step` (default: the latest) was saved with; reads no arrays."""
        return self._read_json("progress", step)

    def _read_json(self, name: str, step: int | None) -> dict[str, Any]:
        step = self.latest_step() if step is None else step
        if step is None:
            raise FileNotFoundError(f"no complete checkpoint in {self.directory}")
        wanted = ocp.args.Composite(**{name: ocp.args.JsonRestore()})
        with self._reading(step) as manager:
            found = {name: manager.restore(step, args=wanted)[name]}
            check(self._path(step), found)
        return found[name]

    def _manager(self) -> ocp.CheckpointManager:
        if self._opened is None:
            if os.path.exists(self.directory) and not os.path.isdir(self.directory):
                raise NotADirectoryError(
                    f"{self.directory} is a file; give a directory for checkpoints"
                )
            handlers = {name: ocp.StandardCheckpointHandler() for name in (*ARRAY_ITEMS, QUEUE)}
            handlers |= {name: ocp.JsonCheckpointHandler() for name in (*JSON_ITEMS, QUEUED)}
            self._opened = ocp.CheckpointManager(
                self.directory,
                options=ocp.CheckpointManagerOptions(
                    max_to_keep=self._keep,
                    cleanup_tmp_directories=self._is_sole,
                    async_options=PATIENT,
                ),
                item_handlers=handlers,
            )
            if self._is_sole:
                # If orbax is killed while it removes an old step, half of it remains, is listed as a
                # complete one, and stays if no later step is saved.
                for step in sorted(self._opened.all_steps())[: -self._keep]:
                    self._opened.delete(step)
        return self._opened

    def _path(self, step: int) -> str:
        return os.path.join(self.directory, str(step))

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[ocp.CheckpointManager]:
        """Yields orbax's manager; a missing or damaged step is one error with its path."""
        path = self._path(step)
        steps = self._manager().all_steps() if os.path.exists(self.directory) else []
        if step not in steps:
            raise FileNotFoundError(
                f"no complete checkpoint {path}; complete steps: {sorted(steps)}"
            )
        try:
            yield self._manager()
        except Exception as error:
            older = max((other for other in steps if other < step), default=None)
            otherwise = "start anew" if older is None else f"resume from step {older}"
            fix = f"restore it from a copy, or delete that directory to {otherwise}"
            raise unreadable(f"checkpoint {path}", error, fix) from error


def unreadable(what: str, error: Exception, fix: str) -> ValueError:
    """Returns the error for arrays that orbax could not read: they are damaged, or this machine is at fault.

    Orbax and tensorstore raise many kinds of errors, with pages of text.
    """
    said = (str(error).strip().splitlines() or [""])[0][:200]
    said = f"{type(error).__name__}: {said}"
    if isinstance(error, HINDERED) or any(word in said for word in HINDRANCES):
        return ValueError(f"{what} cannot be read here ({said}); keep it")
    return ValueError(f"{what} is damaged ({said}); {fix}")


def check(directory: str | os.PathLike[str], found: Mapping[str, Any]) -> None:
    """Raises ValueError unless `found`, some items of the step in `directory`, has the saved checksums."""
    path = pathlib.Path(directory, "checksums")
    saved = json.loads((path / "metadata").read_text())
    for item, content in found.items():
        if item in (*ARRAY_ITEMS, QUEUE):
            sums = {name: checksums.of_array(x) for name, x in _named(content).items()}
        else:
            sums = checksums.of_json(content)
        if sums != saved[item]:
            raise ValueError(f"{directory}: {item} is not what was saved")


# ------------------------------------------------------------------------------ trees and paths
def _items_of(state: types.TrainState, selector_state: Any) -> dict[str, Any]:
    """Returns the trees of `ARRAY_ITEMS`."""
    optimizer = {"opt_state": state.opt_state, "step": state.step}
    return {"policy": state.params, "optimizer": optimizer, "selector": selector_state}


def _named(tree: Any) -> dict[str, Any]:
    """Returns {path: leaf} of any pytree; paths read like `layers/0/kernel`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    keystr = jax.tree_util.keystr
    return {keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _stored(metadata: Any) -> dict[str, dict[str, Any]]:
    """Returns {item: {path: shape and dtype}} from orbax's metadata, without reading arrays."""
    items = {}
    for name in ARRAY_ITEMS:
        if metadata.get(name) is None or not metadata[name].tree:
            raise FileNotFoundError(f"{name} is missing or has no _METADATA")
        named = _named(dict(metadata[name].tree))
        items[name] = {} if named.keys() == NO_ARRAYS.keys() else named
    return items


def _like(example: Any, tree: Any) -> Any:
    """Returns the leaves of `tree` in the structure and kind of `example`."""
    stored, leaves = _named(tree), []
    for name, leaf in _named(example).items():
        is_numpy = isinstance(leaf, np.ndarray | np.generic)
        # What has no place of its own was read as NumPy: `asarray` makes it a jax array that is
        # not committed, as fresh ones are. A committed one could not meet arrays on a mesh.
        as_read = is_numpy or _sharding(leaf) is not None
        leaves.append(stored[name] if as_read else jnp.asarray(stored[name]))
    return jax.tree.unflatten(jax.tree.structure(example), leaves)


def _sharding(leaf: Any) -> jax.sharding.Sharding | None:
    """Returns the sharding that a leaf must have; None if any will do."""
    if isinstance(leaf, jax.Array) and not leaf.committed:
        return None  # its sharding only says where it happens to be
    return getattr(leaf, "sharding", None)


def _to_read_into(leaf: Any) -> Any:
    """Returns the target for orbax's reading: a sharded struct, or NumPy."""
    sharding = _sharding(leaf)
    if sharding is None:
        return np.empty(leaf.shape, leaf.dtype)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _check_structure(stored: Any, wanted: Any, path: str) -> None:
    """Raises ValueError for the first leaf whose name, shape or type differs."""

    def describe(named: Mapping[str, Any], name: str) -> str:
        if name not in named:
            return "absent"
        return f"{np.dtype(named[name].dtype)}{list(named[name].shape)}"

    for item in ARRAY_ITEMS:
        for name in {**wanted[item], **stored[item]}:
            there, here = describe(stored[item], name), describe(wanted[item], name)
            if there != here:
                raise ValueError(
                    f"checkpoint {path} does not fit this run: {item}/{name} is {there} "
                    f"in the checkpoint and {here} here; use the config it was made "
                    "with (Checkpointer.config), or another workdir"
                )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `values` in JSON's types; array scalars become numbers."""
    return json.loads(json.dumps(dict(values), default=lambda x: np.asarray(x).item()))
