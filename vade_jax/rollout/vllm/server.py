"""The engine that gets rollouts from vLLM servers: at given URLs, launched by this run, or both.

A server must be started on the policy's checkpoint, because it uses the tokenizer and processor of that
directory. It needs VLLM_SERVER_DEV_MODE=1 in its environment and, on the command line,

    --trust-request-chat-template --logprobs-mode processed_logprobs

together with --max-model-len for the longest prompt and answer, --limit-mm-per-prompt for the images of
a prompt, and --mm-processor-kwargs '{"min_pixels": ..., "max_pixels": ...}' with the run's values,
unless the checkpoint's preprocessor_config.json has them. vLLM must be 0.32 or newer. On a CPU the server
also needs --no-enable-chunked-prefill, because that build's seeded draws do not survive it.

A server serves one run only: the run replaces its weights, and aborts all other requests when it does.

New weights go through a directory that every server can read (see `sync`). A server that restarts has
the checkpoint's weights again. The engine notices that and discards the answers.
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
from vade_jax.rollout.vllm import client, pool
from vade_jax.rollout.vllm.client import Request, VllmClient
from vade_jax.rollout.vllm.pool import ServerPool
from vade_jax.rollout.vllm.process import LaunchedServer
from vade_jax.rollout.vllm.sync import WeightDirectory
from vade_jax.types import Array, Metrics, Params, Prompt, Rollouts

NamedTensors = Iterable[tuple[str, Array]]
MAX_ANSWERS = 64  # per request
_TICK = 0.2  # seconds between attempts to abort requests


class VllmServerEngine:
    """Gets rollouts from vLLM servers.

    One request asks for the answers to one prompt, at most `MAX_ANSWERS`, and goes to the server with
    the fewest requests. The same call gives the same answers, except that servers batch requests
    differently each time, which changes the rounding.

    Args:
        servers: URLs, and servers launched by `process.launch`, which `close` stops.
        model: the name that the servers serve the policy under.
        sampling: how tokens are drawn.
        stop_ids: tokens that end an answer.
        banned_ids: tokens that are never drawn.
        tensors: params -> (published name, tensor) pairs.
        weights: where new weights are written; every server must be able to read it.
        longest_prompt: length of the longest prompt in tokens, image tokens included.
        max_in_flight: most requests at a time, over all servers.
        timeout_s: the longest wait for the answers of a request, time in the server's queue included,
            and for a server to load new weights, in seconds.
        max_retries: retries of each request; if it still fails, the run ends.
        wait_s: the longest wait for a server at a given URL, at the start and when it is down.
        control_s: the longest wait for a reply about a server's state. A server that this run launched
            is restarted after that.
        backoff_s: the first pause before a retry, in seconds; pauses double.
        sleep: free the servers' device memory after each `generate`. For servers that share their
            device with the trainer; they must be started with --enable-sleep-mode.

    Raises:
        ValueError: a server does not answer or cannot serve this run; the message says how to fix it.
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
        ended = threading.Event()

        def check(server: VllmClient) -> int:
            return server.check(
                model=model,
                length=longest_prompt + sampling.max_tokens,
                stop_id=stop_ids[0],
                wait_s=wait_s,
                timeout_s=timeout_s,
                ended=ended,
            )

        self._max_model_len = min(pool.at_once(check, clients, ended))
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
        # Tags of weights contain the run and the number of the load, so they are unique. The engine thus
        # notices a server that got weights from another run, or the same version from other files.
        self._run, self._num_loads = uuid.uuid4().hex[:8], 0
        self._version: int | None = None  # version of the servers' weights; None: unknown
        self._seconds: Metrics = {}

    # ------------------------------------------------------------------------- weights
    def sync(self, params: Params, version: int) -> None:
        """Writes the weights once and makes every server load them.

        A server that cannot load them gets no requests until the next sync, and is counted in
        `rollout/servers_lost`.

        Raises:
            EngineFailure: no server loaded them, or they could not be written.
        """
        start = time.perf_counter()
        directory = self._weights.write(self._tensors(params), version)
        self._add_seconds("timing_s/sync_write", time.perf_counter() - start)
        self.read(directory, version)

    def read(self, directory: str, version: int) -> None:
        """Makes every server load a checkpoint that is on disk already; otherwise like `sync`."""
        start = time.perf_counter()
        self._version, self._num_loads = None, self._num_loads + 1
        self._pool.load(directory, f"{self._run}-{self._num_loads}-of-step-{version}")
        self._version = version  # set last: after a failed load the version is unknown
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
        """Returns all answers in order, and reports each prompt when its last answer arrives."""
        answers_N: list[Any] = [None] * int(num_rollouts_M.sum())  # each an `Answer` in the end
        missing_M = num_rollouts_M.copy()
        stop_M = np.cumsum(num_rollouts_M)

        def report(m):
            group = answers_N[stop_M[m] - num_rollouts_M[m] : stop_M[m]]
            on_group(m, [answer.token_T for answer in group])

        # No request will report prompts that get no answers.
        for m in np.flatnonzero(missing_M == 0):
            report(int(m))
        # When a report or a request fails, `closing` ends all requests in flight at once.
        with contextlib.closing(self._finished(prompts, requests, sampling)) as finished:
            for request, answers in finished:
                answers_N[request.first : request.first + request.count] = answers
                missing_M[request.m] -= request.count
                if missing_M[request.m] == 0:
                    report(request.m)
        return answers_N

    def _finished(self, prompts, requests, sampling) -> Generator[tuple[Request, list[Answer]]]:
        """Yields each request with its answers, in the order in which they arrive.

        If the generator is closed early, it cancels the requests that wait and aborts those in flight.
        It aborts again until all threads have ended, because a thread may open its connection after an
        `abort`.
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
        # Built in the request's thread, because compressing the images takes time.
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
        """Returns `pool.COUNTS` and the seconds of syncs since the last call, and the lost servers now."""
        seconds, self._seconds = self._seconds, {}
        return self._pool.counts() | seconds

    def close(self) -> None:
        """Stops the servers that this run launched, and removes the weights that were written for them."""
        self._pool.close()
        self._weights.clear()

    def _add_seconds(self, name, seconds):
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds


def make_requests(num_rollouts_M: np.ndarray, key: jax.Array) -> list[Request]:
    """Returns the requests that ask for `num_rollouts_M[m]` answers to each prompt m.

    A request's seed depends only on `key` and the number of its first answer. It is the same on every
    server and in every retry.
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
    # Seeds are below 2^62, so they still fit an int64 after the server adds the index of an answer.
    seeds = ((high_J >> 2 << 32) + low_J).tolist()
    return [Request(*one, seed) for one, seed in zip(found, seeds, strict=True)]
