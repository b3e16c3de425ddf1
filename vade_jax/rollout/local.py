"""The built-in engine: the trainer's own weights, prompts prefilled once, one decode loop.

A prompt's images are encoded and its keys and values computed once, whatever the number of
answers; the answers read them in place. Decoding stops when every answer has ended.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays
from vade_jax.data import batching
from vade_jax.models import vocabulary
from vade_jax.rollout import sampling as draws
from vade_jax.rollout.engine import OnGroup, Sampling, ignore
from vade_jax.types import Metrics, Params, Prompt, Prompts, Rollouts


class LocalEngine:
    """Rollouts from a model in this process.

    Args:
        merge: params -> a model with `prefill`, `own_cache`, `decode` and `head`.
        params: the first weights; `sync` shares newer ones, it does not copy.
        sampling: how tokens are drawn.
        stop_ids: tokens that end an answer.
        banned_ids: tokens that can never be drawn (the vision tokens).
        answers_per_row: answers decoded against one prompt; a larger group takes more rows.
        prompts_per_call: prompts decoded together; more than that are done in turns.
        length_multiple: prompts are padded to few multiples of this.
        version: of `params`.
    """

    def __init__(
        self,
        merge: Callable[[Params], object],
        params: Params,
        *,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        banned_ids: tuple[int, ...],
        answers_per_row: int,
        prompts_per_call: int,
        length_multiple: int = 16,
        version: int = 0,
    ):
        self._params = params
        self._version = version
        self._sampling = sampling
        self._answers_per_row = answers_per_row
        self._prompts_per_call = prompts_per_call
        self._length_multiple = length_multiple
        decode = functools.partial(
            decode_answers, merge, stop_ids=stop_ids, banned_ids=banned_ids
        )
        self._decode = jax.jit(decode, static_argnames="sampling")

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """See `Engine.generate`. Answer n of the call draws from fold_in(key, n)."""
        if params_version != self._version:
            raise ValueError(
                f"rollouts of weights {params_version} were asked for, but the engine "
                f"holds version {self._version}: sync it first"
            )
        num_rollouts_M = np.asarray(num_rollouts_M)
        first_M = np.cumsum(num_rollouts_M) - num_rollouts_M
        size = self._prompts_per_call
        parts = []
        for i in range(0, len(prompts), size):
            counts = num_rollouts_M[i : i + size]
            part = self._call(prompts[i : i + size], counts, first_M[i], key, sampling)
            _report(on_group, i, counts, *part)
            parts.append(part)
        token_NT, logp_NT, length_N, finished_N = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        return Rollouts(
            token_NT=token_NT,
            length_N=length_N,
            logp_NT=logp_NT,
            group_N=np.repeat(np.arange(len(prompts), dtype=np.int32), num_rollouts_M),
            finished_N=finished_N,
            valid_N=np.ones(len(length_N), bool),
            params_version=np.int32(params_version),
        )

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`."""
        self._params, self._version = params, version

    def metrics(self) -> Metrics:
        """See `Engine.metrics`."""
        return {}

    def close(self) -> None:
        """See `Engine.close`."""
        self._params = None

    def _call(self, prompts, num_rollouts_M, first, key, sampling):
        """Decodes one call's prompts in fixed shapes and returns the flat answers."""
        size, capacity = self._prompts_per_call, self._answers_per_row
        num_rows = arrays.bucket(int((-(-num_rollouts_M // capacity)).sum()), size)
        group_R, slot_N = arrays.rows(num_rollouts_M, capacity, num_rows)
        answer_N = np.full(num_rows * capacity, -1, np.int32)
        answer_N[slot_N] = first + np.arange(len(slot_N))
        filled = [*prompts, *[prompts[-1]] * (size - len(prompts))]
        answers = self._decode(
            self._params,
            batching.collate(filled, multiple=self._length_multiple),
            group_R,
            answer_N,
            key,
            sampling=sampling or self._sampling,
        )
        return [x[slot_N] for x in jax.device_get(answers)]


def _report(on_group, first, num_rollouts_M, token_NT, _, length_N, __):
    answers = [x[:n] for x, n in zip(token_NT, length_N, strict=True)]
    stops = np.cumsum(num_rollouts_M)
    for m, (stop, count) in enumerate(zip(stops, num_rollouts_M, strict=True), first):
        on_group(m, answers[stop - count : stop])


def decode_answers(
    merge: Callable[[Params], object],
    params: Params,
    prompts: Prompts,
    group_R: jax.Array,
    answer_N: jax.Array,
    key: jax.Array,
    *,
    sampling: Sampling,
    stop_ids: tuple[int, ...],
    banned_ids: tuple[int, ...],
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns `token_NT, logp_NT, length_N, finished_N` for answers laid out in rows.

    Args:
        merge: params -> model.
        params: the weights.
        prompts: the prompts of the rows.
        group_R: prompt of each row.
        answer_N: which draw each slot makes; -1 for a slot without an answer.
        key: decides every draw, together with `answer_N` and the token's place.
        sampling: temperature, truncation and the longest answer.
        stop_ids: tokens that end an answer.
        banned_ids: tokens that are never drawn.
    """
    model = merge(params)
    N, T = answer_N.shape[0], sampling.max_tokens
    hidden_MD, cache = model.prefill(prompts)
    rows = cache.take(group_R)  # once, not in every step
    key_N = jax.vmap(jax.random.fold_in, (None, 0))(key, answer_N)
    stop = jnp.array(stop_ids, jnp.int32)

    def body(carry):
        t, hidden_ND, own, token_NT, logp_NT, length_N, done_N = carry
        logits_NV = vocabulary.logits(hidden_ND, model.head(), banned=banned_ids)
        token_N, logp_N = draws.draw(
            jax.vmap(jax.random.fold_in, (0, None))(key_N, t),
            logits_NV,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        token_N = jnp.where(done_N, stop[0], token_N)
        token_NT = token_NT.at[:, t].set(token_N)
        logp_NT = logp_NT.at[:, t].set(jnp.where(done_N, 0, logp_N))
        length_N = length_N + ~done_N
        done_N = done_N | jnp.isin(token_N, stop)
        hidden_ND, own = model.decode(rows, own, token_N, t)
        return t + 1, hidden_ND, own, token_NT, logp_NT, length_N, done_N

    start = (
        jnp.int32(0),
        jnp.repeat(hidden_MD[group_R], N // group_R.shape[0], axis=0),
        model.own_cache(N, T),
        jnp.full((N, T), stop_ids[0], jnp.int32),
        jnp.zeros((N, T), jnp.float32),
        jnp.zeros(N, jnp.int32),
        answer_N < 0,
    )
    unfinished = lambda carry: (carry[0] < T) & ~jnp.all(carry[-1])
    *_, token_NT, logp_NT, length_N, done_N = jax.lax.while_loop(
        unfinished, body, start
    )
    return token_NT, logp_NT, length_N, done_N
