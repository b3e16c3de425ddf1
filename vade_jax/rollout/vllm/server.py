"""Rollouts from vLLM servers over HTTP: at given URLs, launched by this run, or both.

A server is started on the policy's checkpoint (its tokenizer and processor are used) with
VLLM_SERVER_DEV_MODE=1 in its environment and, on the command line,

    --trust-request-chat-template --logprobs-mode processed_logprobs

with --max-model-len for the longest prompt and answer, --limit-mm-per-prompt for the images of a
prompt, and --mm-processor-kwargs '{"min_pixels": ..., "max_pixels": ...}' of the run unless the
checkpoint's preprocessor_config.json has them. vLLM 0.32 or newer; on a CPU also with
--no-enable-chunked-prefill, because that build's seeded draws do not survive it. It serves one run:
its weights change, and whatever else it is asked is ended then.

New weights go through a directory that every server can read (see `sync`). A server that restarts
has the checkpoint's weights again; that is noticed, and its answers are thrown away.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np

from vade_jax.rollout.engine import Answer, OnGroup, Sampling, check_version, ignore, to_rollouts
from vade_jax.rollout.vllm import client
from vade_jax.rollout.vllm.client import Request, VllmClient
from vade_jax.rollout.vllm.pool import ServerPool
from vade_jax.rollout.vllm.process import LaunchedServer
from vade_jax.rollout.vllm.sync import WeightDirectory
from vade_jax.types import Array, Metrics, Params, Prompt, Rollouts

NamedTensors = Iterable[tuple[str, Array]]
MAX_ANSWERS = 64  # of one request
_TICK = 0.2  # seconds


class VllmServerEngine:
    """Rollouts from vLLM servers.

    A prompt's answers are one request (`MAX_ANSWERS` at most), to the server with the fewest. The
    same call gives the same answers up to the rounding of the servers' batches.

    Args:
        servers: URLs, and servers launched by `process.launch`, which `close` stops.
        model: the name they serve the policy under.
        sampling: how tokens are drawn; `stop_ids` end an answer, `banned_ids` are never drawn.
        tensors: params -> (published name, tensor) pairs.
        weights: where new weights are written; every server can read it.
        longest_prompt: tokens, image tokens included.
        max_in_flight: requests at a time, over all servers.
        timeout_s: the longest wait for a request's answers, in the server's queue included, and
            for a server to take new weights.
        max_retries: of each request; whatever fails more often ends the run.
        wait_s: the longest wait for a given URL: at first, and when it goes down.
        control_s: the longest wait for a server to tell its state; one that this run launched
            is started again after it.
        backoff_s: the first pause before a retry; each is twice as long.
        sleep: free the servers' memory on the device after each `generate` (servers that share
            their device with the trainer, started with --enable-sleep-mode).

    Raises:
        ValueError: a server does not answer or cannot serve this run; the message has the fix.
    """

    def __init__(
        self,
        servers: Sequence[str | LaunchedServer],
        *,
        model: str,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        banned_ids: tuple[int, ...],
        tensors: Callable[[Params], NamedTensors],
        weights: WeightDirectory,
        longest_prompt: int,
        max_in_flight: int = 64,
        timeout_s: float = 1800.0,
        max_retries: int = 3,
        wait_s: float = 300.0,
        control_s: float = 30.0,
        backoff_s: float = 1.0,
        sleep: bool = False,
    ):
        if not servers:
            raise ValueError("there are no vLLM servers: give URLs, or launch one")
        clients = [VllmClient(server, control_s) for server in servers]

        def check(server: VllmClient) -> int:
            return server.check(
                model=model,
                length=longest_prompt + sampling.max_tokens,
                stop_id=stop_ids[0],
                wait_s=wait_s,
                timeout_s=timeout_s,
            )

        with futures.ThreadPoolExecutor(len(clients)) as threads:
            self._max_model_len = min(threads.map(check, clients))
        self._pool = ServerPool(
            clients,
            wait_s=wait_s,
            timeout_s=timeout_s,
            max_retries=max_retries,
            backoff_s=backoff_s,
            sleep=sleep,
        )
        self._model, self._sampling = model, sampling
        self._stop_ids, self._banned_ids = stop_ids, banned_ids
        self._tensors, self._weights = tensors, weights
        self._max_in_flight, self._timeout_s = max_in_flight, timeout_s
        self._sleep = sleep
        # Names of weights are unique among runs and loads: a server that another run gave its own
        # weights is noticed, and so is the same version in other files.
        self._run, self._num_loads = uuid.uuid4().hex[:8], 0
        self._version: int | None = None  # of the servers' weights; None: not known
        self._seconds: Metrics = {}

    # ------------------------------------------------------------------------- weights
    def sync(self, params: Params, version: int) -> None:
        """Writes the weights once and has every server read them.

        Raises:
            EngineFailure: no server took them. One that did not is left out until the next
                sync, and counted in `rollout/servers_lost`.
        """
        start = time.perf_counter()
        directory = self._weights.write(self._tensors(params), version)
        self._add_seconds("timing_s/sync_write", time.perf_counter() - start)
        self.read(directory, version)

    def read(self, directory: str, version: int) -> None:
        """Has every server read a checkpoint that is there already; otherwise as `sync`."""
        start = time.perf_counter()
        self._version, self._num_loads = None, self._num_loads + 1
        self._pool.load(directory, f"{self._run}-{self._num_loads}-of-step-{version}")
        self._version = version  # not before: a load that failed leaves none
        self._add_seconds("timing_s/sync_load", time.perf_counter() - start)

    # ------------------------------------------------------------------------- answers
    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """See `Engine.generate`."""
        sampling = sampling or self._sampling
        num_rollouts_M = np.asarray(num_rollouts_M)
        check_version(params_version, self._version)
        longest = max(prompts, key=lambda prompt: prompt.length, default=None)
        if longest and longest.length + sampling.max_tokens > self._max_model_len:
            raise ValueError(
                f"prompt {longest.uid!r} of {longest.length} tokens and max_tokens="
                f"{sampling.max_tokens} do not fit the servers' max_model_len="
                f"{self._max_model_len}: start them with a greater --max-model-len"
            )
        requests = make_requests(num_rollouts_M, key)
        self._pool.refresh()  # servers may have restarted since the last call
        answers_N = self._answers(prompts, num_rollouts_M, requests, sampling, on_group)
        if self._sleep:
            self._pool.sleep()
        return to_rollouts(
            answers_N,
            num_rollouts_M,
            max_tokens=sampling.max_tokens,
            pad=self._stop_ids[0],
            params_version=params_version,
        )

    def _answers(self, prompts, num_rollouts_M, requests, sampling, on_group):
        """Returns every answer in order; reports each prompt once, when its last one is here."""
        answers_N: list[Any] = [None] * int(num_rollouts_M.sum())  # of `Answer`, once it is here
        missing_M = num_rollouts_M.copy()
        stop_M = np.cumsum(num_rollouts_M)

        def report(m):
            group = answers_N[stop_M[m] - num_rollouts_M[m] : stop_M[m]]
            on_group(m, [answer.token_T for answer in group])

        for m in np.flatnonzero(missing_M == 0):
            report(int(m))
        # `closing` ends what is in flight at once when a report or a request fails.
        with contextlib.closing(self._finished(prompts, requests, sampling)) as finished:
            for request, answers in finished:
                answers_N[request.first : request.first + request.count] = answers
                missing_M[request.m] -= request.count
                if missing_M[request.m] == 0:
                    report(request.m)
        return answers_N

    def _finished(self, prompts, requests, sampling) -> Generator[tuple[Request, list[Answer]]]:
        """Yields requests with their answers as they arrive.

        When it is left early, what waits is cancelled and what is in flight is hung up on. That is
        repeated until all threads have ended: one may open its connection after an `abort`.
        """
        ended = threading.Event()
        with futures.ThreadPoolExecutor(self._max_in_flight) as threads:
            asked = {
                threads.submit(self._ask, prompts[r.m], r, sampling, ended): r for r in requests
            }
            try:
                for done in futures.as_completed(asked):
                    yield asked[done], done.result()
            finally:
                ended.set()
                for waiting in asked:
                    waiting.cancel()
                while futures.wait(asked, _TICK).not_done:
                    self._pool.abort()

    def _ask(self, prompt, request, sampling, ended) -> list[Answer]:
        # In the request's thread: compressing its pictures takes a while.
        body = client.chat_body(
            prompt,
            request,
            model=self._model,
            sampling=sampling,
            stop_ids=self._stop_ids,
            banned_ids=self._banned_ids,
        )

        def call(server: VllmClient) -> list[Answer]:
            reply = server.chat(body, self._timeout_s)
            return client.read_answers(reply, prompt, request, sampling)

        return self._pool.ask(call, f"prompt {prompt.uid!r}", request.count, ended)

    # ------------------------------------------------------------------------- the rest
    def metrics(self) -> Metrics:
        """Returns `pool.COUNTS`, lost servers and the seconds of syncs since the last call."""
        seconds, self._seconds = self._seconds, {}
        return self._pool.counts() | seconds

    def close(self) -> None:
        """Stops the servers that this run launched, and removes the weights on their way."""
        self._pool.close()
        self._weights.clear()

    def _add_seconds(self, name, seconds):
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds


def make_requests(num_rollouts_M: np.ndarray, key: jax.Array) -> list[Request]:
    """Returns the requests that ask for `num_rollouts_M[m]` answers to each prompt m.

    A request's seed comes from `key` and the number of its first answer, so it does not depend on
    which server is asked, or when, or how often.
    """
    first_M = np.cumsum(num_rollouts_M) - num_rollouts_M
    found = [
        (m, int(first + done), int(min(count - done, MAX_ANSWERS)))
        for m, (first, count) in enumerate(zip(first_M, num_rollouts_M, strict=True))
        for done in range(0, count, MAX_ANSWERS)
    ]

    def bits(first):
        return jax.random.bits(jax.random.fold_in(key, first), (2,), "uint32")

    first_J = np.array([first for _, first, _ in found], np.uint32)
    high_J, low_J = np.asarray(jax.vmap(bits)(first_J), np.int64).T
    # Below 2^62: with an answer's place in the request added it is still an int64.
    seeds = ((high_J >> 2 << 32) + low_J).tolist()
    return [Request(*one, seed) for one, seed in zip(found, seeds, strict=True)]
