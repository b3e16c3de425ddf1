"""Compares the results in two directories bit for bit, except for times.

Files are read by the library's own code, so a file that it refuses is reported in its words.
"""

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from vade_jax import types
from vade_jax.models.qwen import files
from vade_jax.store import checkpoints, metrics, rollout_log

CLOCK = ("timing_s/", "perf/")  # metrics that differ between any two runs
# Files for people, made from the others, with times and dates in them. They must exist in both.
SHOWN = (".html", ".png", ".log", ".md")
# The results of a run. A run that has ended does not read its other files again.
RESULTS = (
    "metrics.jsonl",
    "rollouts",
    "checkpoints",
    "policy",
    "adapter",
    "tiny_model",
    "warm_start",
)
PRIVATE = re.compile(r"minutes|seconds|duration|_s$|time")  # keys of JSON with times


class Refused(ValueError):  # noqa: N818 (says what happened)
    """The library refuses to read a file, and says why."""


def differences(
    one: pathlib.Path, other: pathlib.Path, damaged: pathlib.Path | None = None
) -> Iterator[str]:
    """Yields a line for each difference; nothing if the results are the same.

    Args:
        one: the directory of an undisturbed run.
        other: the directory that is judged.
        damaged: a file of `other` that was changed; it is compared only if it is a result.

    Raises:
        Refused: a file of `other` is damaged, and the library says so.
    """
    left, right = (set(_listing(directory)) for directory in (one, other))
    for name in sorted(left ^ right):
        yield f"{name} is {'missing' if name in left else 'left over'}"
    for name in sorted(left & right):
        if name.endswith(files.CHECKSUMS):
            _reading(files.check, (other / name).parent)
    for name in sorted(left & right):
        a, b = one / name, other / name
        if b == damaged and name.partition("/")[0] not in RESULTS:
            continue
        if a.suffix in SHOWN or a.parent.name == "checkpoints":
            continue
        if a.name == "checkpoints":
            yield from _of_arrays(name, checkpoint(a), _reading(checkpoint, b))
        elif _content(a, one) != _reading(_content, b, other):
            yield f"{name} differs"


def _listing(directory: pathlib.Path) -> Iterator[str]:
    """Yields the names of files; of checkpoints, whose files have random names, only those of the steps."""
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        is_step = "checkpoints" in (path.name, path.parent.name)
        if is_step or (path.is_file() and "checkpoints" not in name.parts):
            yield str(name)


def _reading(read, path: pathlib.Path, *arguments) -> Any:
    try:
        return read(path, *arguments)
    except (ValueError, OSError) as error:
        raise Refused(f"error: {error}") from error


def _content(path: pathlib.Path, root: pathlib.Path) -> Any:
    """Returns the content of a file, without times and without the path of its run directory."""
    if path.name == metrics.FILE:
        return [
            {k: repr(v) for k, v in record.items() if not k.startswith(CLOCK)}
            for record in metrics.scan(path)[0]
        ]
    if path.parent.name == "rollouts":
        return repr(rollout_log.read(path))
    content = path.read_bytes().replace(str(root.absolute()).encode(), b".")
    if path.suffix == ".json":
        return _timeless(json.loads(content))
    return content


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: _timeless(v)
            for k, v in value.items()
            if not PRIVATE.search(k) and not k.startswith(CLOCK)
        }
    return [_timeless(x) for x in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------ checkpoints
def checkpoint(directory: pathlib.Path) -> dict[str, Any]:
    """Returns the arrays and counters of the newest checkpoint, by path."""
    saved = checkpoints.Checkpointer(directory)
    step = saved.latest_step()
    if step is None:
        raise FileNotFoundError(f"no complete checkpoint in {directory}")
    reader = ocp.StandardCheckpointer()

    def example(item):
        try:
            tree = reader.metadata(directory.absolute() / str(step) / item).item_metadata.tree
        except (AttributeError, OSError) as error:
            raise ValueError(f"{directory / str(step) / item} cannot be read") from error
        return jax.tree.map(lambda x: np.empty(x.shape, x.dtype), dict(tree))

    optimizer = example("optimizer")
    state = types.TrainState(
        params=example("policy"), opt_state=optimizer["opt_state"], step=optimizer["step"]
    )
    state, selector, progress = saved.restore(step, state, example("selector"))
    saved.close()
    trees = {"policy": state.params, "optimizer": state.opt_state, "selector": selector}
    leaves = jax.tree.leaves_with_path(trees)
    return progress | {jax.tree_util.keystr(path): np.asarray(x) for path, x in leaves}


def _of_arrays(name: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    for key in one.keys() | other.keys():
        a, b = one.get(key), other.get(key)
        if type(a) is not type(b) or np.asarray(a).tobytes() != np.asarray(b).tobytes():
            yield f"{name}: {key} differs"
