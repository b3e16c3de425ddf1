"""Communication between the processes of a run.

Every process runs the same loop on the same data with the same keys, so all choose the same prompts
independently; only the arrays on the mesh are divided among them. Process 0, the leader, writes the files.
All processes call the communicating functions below in the same order, from the main thread. With one
process nothing is communicated.
"""

import collections
import functools
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import Engine, EngineFailure, EngineLost, OnGroup, Sampling, ignore
from vade_jax.types import Params, Prompt, Rollouts

Tree = TypeVar("Tree")
# Errors of the leader that the others raise too, as the first of these that they are.
KINDS = (EngineLost, EngineFailure, RewardFailure, ValueError, OSError, Exception)
LONGEST_WAIT_MS = 24 * 3600 * 1000  # a lost process is noticed much earlier
_BARRIERS = itertools.count()  # every barrier needs its own name


class Disagreement(ValueError):  # noqa: N818 (says what happened)
    """The processes have different programs or data."""


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
    """Checks that all processes hold the same `value`, by its checksum.

    Args:
        name: what is compared and at which step, for the message.
        value: JSON.

    Raises:
        Disagreement: in every process; names those that differ from process 0.
    """
    if not several():
        return
    digests = multihost_utils.process_allgather(np.uint32(zlib.crc32(json.dumps(value).encode())))
    if others := np.flatnonzero(digests != digests[0]).tolist():
        raise Disagreement(
            f"{name}: processes {others} of {jax.process_count()} differ from process 0. Start "
            "all of them with the same config, the same files and the same versions of "
            "everything (compare `pip freeze`); the last checkpoint is from before it"
        )


# ------------------------------------------------------------------------------ the leader
def from_leader(tree: Tree) -> Tree:
    """Returns the leader's arrays; in the other processes `tree` gives shapes and types."""
    return multihost_utils.broadcast_one_to_all(tree) if several() else tree


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
    size = int(from_leader(np.int32(len(text))))
    text = bytes(from_leader(text if is_leader() else np.zeros(size, np.uint8)))
    result, kind, message = json.loads(text)
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


class LeaderEngine:
    """An engine that all processes share, such as a set of servers; only the leader talks to it.

    Args:
        engine: the engine; None in the other processes. Its `sync` takes what `tensors` returns.
        tensors: params -> (name, array) pairs, which all processes make together, such as
            `weights.from_params`.
    """

    def __init__(self, engine: Engine | None, tensors: Callable[[Params], Iterable[Any]]):
        self._engine, self._tensors = engine, tensors

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """See `Engine.generate`. Only the leader reports groups: it scores them."""
        made: list[Rollouts] = []

        def lead():
            assert self._engine is not None
            args = prompts, num_rollouts_M, key, params_version, sampling, on_group
            made.append(self._engine.generate(*args))
            fields = vars(made[0]).items()
            return {name: (np.shape(x), np.asarray(x).dtype.name) for name, x in fields}

        shapes = on_leader(lead)
        fields = vars(made[0]) if made else {name: np.zeros(*x) for name, x in shapes.items()}
        return Rollouts(**from_leader(dict(fields)))

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`. If it fails or stops early, the others do not keep waiting."""
        tensors = iter(self._tensors(params))
        all_of = functools.partial(collections.deque, tensors, maxlen=0)

        def lead():
            assert self._engine is not None
            try:
                self._engine.sync(tensors, version)
            finally:
                all_of()

        if not is_leader():
            all_of()
        on_leader(lead)

    def close(self) -> None:
        """See `Engine.close`."""
        if self._engine is not None:
            self._engine.close()
