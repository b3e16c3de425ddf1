"""Communication between the processes of a run.

Every process runs the same loop on the same data with the same keys, so all choose the same prompts
independently; only the arrays on the mesh are divided among them. Process 0, the leader, writes the files.
All processes call the communicating functions below in the same order, one at a time. With one process
nothing is communicated.
"""

import itertools
import json
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from vade_jax.rewards.functions import RewardFailure

Tree = TypeVar("Tree")
# The others raise an error of the leader as the first of these types that matches.
KINDS = (RewardFailure, ValueError, OSError, Exception)
LONGEST_WAIT_MS = 24 * 3600 * 1000  # a lost process is noticed much earlier
_BARRIERS = itertools.count()  # every barrier needs its own name


# ------------------------------------------------------------------------------ who
def several() -> bool:
    """Returns whether the run has more than one process; touches no device if it has one."""
    # In this order, because counting processes initializes the devices, and a run first chooses its GPUs.
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_leader() -> bool:
    """Returns whether this process is the leader, which writes the files."""
    return not several() or jax.process_index() == 0


# ------------------------------------------------------------------------------ arrays
def put(tree: Tree, sharding: jax.sharding.Sharding) -> Tree:
    """Returns host arrays, equal in all processes, as arrays on the mesh; JAX arrays stay where they are.

    `jax.jit` does not accept NumPy arrays for a sharding that spans several processes, and `jax.device_put`
    would compare all values.
    """

    def put_one(x):
        if isinstance(x, jax.Array):
            return x
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, x.__getitem__)

    return jax.tree.map(put_one, tree)


# ------------------------------------------------------------------------------ agreement
def any_of(flag: bool) -> bool:
    """Returns whether `flag` is true in any process."""
    return bool(multihost_utils.process_allgather(np.array(flag)).any()) if several() else flag


def agree(name: str, value: Any) -> None:
    """Checks that all processes hold the same `value`, JSON; `name` describes it in the message.

    Raises:
        ValueError: in every process; names those that differ from process 0.
    """
    if not several():
        return
    digests = multihost_utils.process_allgather(np.uint32(zlib.crc32(json.dumps(value).encode())))
    if others := np.flatnonzero(digests != digests[0]).tolist():
        raise ValueError(
            f"{name}: processes {others} of {jax.process_count()} differ from process 0: start all with the same "
            "config, files and versions (compare `pip freeze`)"
        )


# ------------------------------------------------------------------------------ the leader
def on_leader(function: Callable[[], Any]) -> Any:
    """Runs `function` in the leader and returns its result (JSON) in every process.

    Raises:
        Exception: in every process, the error that `function` raised; see `KINDS`.
    """
    if not several():
        return function()
    result = error = kind = None
    if is_leader():
        try:
            result = function()
        except Exception as caught:
            error = caught
            kind = next(i for i, kind in enumerate(KINDS) if isinstance(error, kind))
    barrier()
    text = np.frombuffer(json.dumps([result, kind, str(error)]).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    text = text if is_leader() else np.zeros(size, np.uint8)
    result, kind, message = json.loads(bytes(multihost_utils.broadcast_one_to_all(text)))
    if error is not None:
        raise error
    if kind is not None:
        raise KINDS[kind](f"process 0: {message}")
    return result


def barrier() -> None:
    """Waits for the other processes on the host; a waiting collective would keep the GPU busy for minutes."""
    if not several():
        return
    from orbax.checkpoint import multihost

    wait = multihost.get_barrier_sync_fn()
    wait(key=f"vade_jax_{next(_BARRIERS)}", timeout_ms=LONGEST_WAIT_MS)
