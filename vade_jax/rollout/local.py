"""The built-in engine: it samples in this process, with the trainer's own weights.

A prompt's images, keys and values are computed once, however many answers it gets, and all answers
read them in place. Decoding stops when every answer has ended. On a mesh each device decodes its share
of the rows, and every process gets all answers.

A *call* is one execution of the compiled program (`decode.answers`), over a fixed number of prompts. A
*row* is one prompt with slots for a fixed number of answers; a larger group takes several rows. Groups
of all sizes are cut into such rows, so uneven group sizes need only a few compiled programs.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vade_jax import arrays
from vade_jax.data import batching
from vade_jax.rollout import decode
from vade_jax.rollout.engine import OnGroup, Sampling, check_version, flat, ignore
from vade_jax.types import Params, Prompt, Rollouts


class LocalEngine:
    """Makes rollouts with a model in this process.

    Args:
        merge: params -> a model with `prefill`, `text`, `ends_apart`, `own_cache` and `decode`.
        params: the first weights. Like those given to `sync` later, they are shared and not copied.
        sampling: how tokens are drawn.
        stop_ids: tokens that end an answer.
        banned_ids: tokens that are never drawn.
        answers_per_row: slots for answers in a row; a larger group takes several rows.
        prompts_per_call: prompts that are decoded together; more prompts take several calls.
        rows_per_call: rows that are decoded together, for groups of uneven sizes; only a single prompt
            may take more rows than this. 0: as many rows as the prompts of a call need.
        length_multiple: prompts are padded to one of a few multiples of this.
        version: the version of `params`.
        mesh: the mesh that `params` are on. Prompts, images and rows are split over all its axes except
            `tensor`, and padded to a multiple of the number of parts. None: one device.
    """

    def __init__(
        self,
        merge: Callable[[Params], Any],
        params: Params,
        *,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        banned_ids: tuple[int, ...],
        answers_per_row: int,
        prompts_per_call: int,
        rows_per_call: int = 0,
        length_multiple: int = 16,
        version: int = 0,
        mesh: Mesh | None = None,
    ):
        self._params, self._version = params, version
        self._sampling = sampling
        self._answers_per_row = answers_per_row
        self._length_multiple = length_multiple
        self._sharding, self._num_shards = None, 1
        if mesh is not None:
            self._sharding = rows_sharding(mesh)
            self._num_shards = math.prod(mesh.shape[axis] for axis in self._sharding.spec[0])
        # Rounded up: arrays of prompts and rows are split into this many equal parts.
        self._prompts_per_call = prompts_per_call + -prompts_per_call % self._num_shards
        self._rows_per_call = rows_per_call + -rows_per_call % self._num_shards
        self._apart = Apart(merge)
        self._decode = compile_answers(merge, mesh, stop_ids=stop_ids, banned_ids=banned_ids)

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """See `Engine.generate`. Answer n draws with fold_in(key, n), whichever call makes it."""
        check_version(params_version, self._version)
        num_rollouts_M = np.asarray(num_rollouts_M)
        end_M = np.cumsum(num_rollouts_M)
        # Made once for all calls, and freed at the end, as the trainer needs the memory.
        weights, arrays_CN = self._apart(self._params), []
        for start, stop in self._calls(num_rollouts_M):
            counts_M = num_rollouts_M[start:stop]
            # Answers are numbered over all calls, because the numbers decide the draws.
            number_N = np.arange(end_M[start] - counts_M[0], end_M[stop - 1])
            arrays_N = self._call(weights, prompts[start:stop], counts_M, number_N, key, sampling)
            arrays_CN.append(arrays_N)
            # Groups are reported after each call, so that they are scored while later calls decode.
            token_NT, _, length_N, _ = arrays_N
            tokens_N = [x[:n] for x, n in zip(token_NT, length_N, strict=True)]
            ends = zip(np.cumsum(counts_M), counts_M, strict=True)
            for m, (end, count) in enumerate(ends, start):
                on_group(m, tokens_N[end - count : end])
        token_NT, logp_NT, length_N, finished_N = map(np.concatenate, zip(*arrays_CN, strict=True))
        return flat(token_NT, logp_NT, length_N, finished_N, num_rollouts_M, params_version)

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`. The arrays are shared: the trainer must not donate them during `generate`."""
        self._params, self._version = params, version

    def close(self) -> None:
        """See `Engine.close`."""
        self._params = None

    def _calls(self, num_rollouts_M: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yields the first prompt of each call and the end of its prompts.

        A call takes as many prompts as fit, by the number of prompts and of rows. A prompt that needs
        more rows than a call has is a call alone.
        """
        rows_M = -(-num_rollouts_M // self._answers_per_row)
        end_M, start = np.cumsum(rows_M), 0
        while start < len(rows_M):
            before = end_M[start] - rows_M[start]  # rows of earlier calls
            fit = np.searchsorted(end_M, before + (self._rows_per_call or math.inf), "right")
            stop = min(start + self._prompts_per_call, max(int(fit), start + 1))
            yield start, stop
            start = stop

    def _call(self, weights, prompts, num_rollouts_M, number_N, key, sampling):
        """Decodes one call's prompts in fixed shapes; returns what `decode.answers` does, on the host.

        There are at most `prompts_per_call` prompts. `weights` are from `Apart`, and `number_N` numbers the
        answers among all answers of `generate`. Empty slots are left out.
        """
        size, capacity = self._prompts_per_call, self._answers_per_row
        rows_M = -(-num_rollouts_M // capacity)
        # Rounded up to one of a few numbers, so that calls of similar sizes share a compiled program.
        num_rows = arrays.bucket(int(rows_M.sum()), self._rows_per_call or size)
        group_R, slot_N = arrays.rows(num_rollouts_M, capacity, num_rows)
        # Here N counts all slots in `answer_N`, but only the answers in `number_N` and `slot_N`.
        answer_N = np.full(num_rows * capacity, -1, np.int32)
        answer_N[slot_N] = number_N
        # Repeats of the last prompt, without answers, fill a smaller call up to the fixed shape.
        prompts = [*prompts, *[prompts[-1]] * (size - len(prompts))]
        sizes = batching.shapes(prompts, multiple=self._length_multiple, ways=self._num_shards)
        # If every prompt has exactly one row, row r is prompt r: then `decode.answers` need not gather
        # the prompts' caches, which would copy them.
        one_row_each = num_rows == size and bool(np.all(rows_M == 1))
        inputs = (
            batching.collate(prompts, **sizes),
            None if one_row_each else group_R,
            answer_N,
        )
        if self._sharding is not None:
            inputs = jax.tree.map(self._put, inputs)
        arguments = (self._params, weights, *inputs, key)
        answers = self._decode(*arguments, sampling=sampling or self._sampling)
        return [x[slot_N] for x in jax.device_get(answers)]

    def _put(self, x: np.ndarray) -> jax.Array:
        """Splits a host array, which is the same in all processes, over the mesh."""
        assert self._sharding is not None
        return jax.make_array_from_callback(x.shape, self._sharding, x.__getitem__)


class Apart:
    """Makes the weights of the decode loop from parameters, a layer at a time.

    One program for all layers would hold each of them twice, and would have to be compiled for every depth.

    Attributes:
        layer: the jitted function from parameters and a layer's number to that layer.
        ends: the jitted function from parameters to all else.
    """

    def __init__(self, merge: Callable[[Params], Any]):
        self._merge = merge
        layer = lambda params, stack, number: merge(params).text.apart(stack, number)
        self.layer = jax.jit(layer, static_argnums=1)
        self.ends = jax.jit(lambda params: merge(params).ends_apart())

    def __call__(self, params: Params):
        """Returns the weights of all layers."""
        order = self._merge(params).text.order
        return self.ends(params)._replace(layers=[self.layer(params, *one) for one in order])


def compile_answers(
    merge: Callable[[Params], Any],
    mesh: Mesh | None,
    *,
    stop_ids: tuple[int, ...],
    banned_ids: tuple[int, ...],
):
    """Returns `decode.answers`, jitted for the devices of `mesh`.

    Its results are replicated, so that every process can read all answers.
    """
    sharding = None if mesh is None else rows_sharding(mesh)
    everywhere = None if mesh is None else NamedSharding(mesh, P())
    run = functools.partial(
        decode.answers,
        merge,
        stop_ids=stop_ids,
        banned_ids=banned_ids,
        sharding=sharding,
    )
    return jax.jit(run, static_argnames="sampling", out_shardings=everywhere)


def rows_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of prompts, images and rows: over all axes except `tensor`."""
    return NamedSharding(mesh, P(tuple(axis for axis in mesh.axis_names if axis != "tensor")))
