"""Rollouts from vLLM servers over HTTP: at given URLs, launched by this run, or both.

A server is started on the policy's checkpoint (its tokenizer and processor are used) with
VLLM_SERVER_DEV_MODE=1 and the options of `vllm_requests.SERVER_OPTIONS`, on the command line

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
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures

import jax
import numpy as np

from vade_jax.rollout import vllm_requests as requests
from vade_jax.rollout.engine import OnGroup, Sampling, check_version, ignore
from vade_jax.rollout.sync import WeightDirectory
from vade_jax.rollout.vllm_client import Launched, Server
from vade_jax.rollout.vllm_pool import Pool
from vade_jax.types import Array, Metrics, Params, Prompt, Rollouts

NamedTensors = Iterable[tuple[str, Array]]
_TICK = 0.2  # seconds


class VllmServerEngine:
    """Rollouts from vLLM servers.

    A prompt's answers are one request (`MAX_ANSWERS` at most), to the server with the fewest. The
    same call gives the same answers up to the rounding of the servers' batches.

    Args:
        servers: URLs, and servers launched by `vllm_process.launch`, which `close` stops.
        model: the name they serve the policy under.
        sampling: how tokens are drawn.
        stop_ids: tokens that end an answer.
        banned_ids: tokens that can never be drawn (the vision tokens).
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
        servers: Sequence[str | Launched],
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
        wrapped = [Server(server, control_s) for server in servers]
        self._limit = _check(
            wrapped,
            model=model,
            length=longest_prompt + sampling.max_tokens,
            stop_id=stop_ids[0],
            wait_s=wait_s,
            timeout_s=timeout_s,
        )
        self._pool = Pool(
            wrapped,
            timeout_s=timeout_s,
            wait_s=wait_s,
            max_retries=max_retries,
            backoff_s=backoff_s,
            sleep=sleep,
        )
        self._model, self._sampling = model, sampling
        self._stop_ids, self._banned_ids = stop_ids, banned_ids
        self._tensors, self._weights = tensors, weights
        self._max_in_flight, self._timeout_s = max_in_flight, timeout_s
        self._sleep = sleep
        self._run, self._num_syncs = uuid.uuid4().hex[:8], 0
        self._version: int | None = None
        self._seconds: Metrics = {}

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
        self._check_call(prompts, params_version, sampling)
        jobs = requests.plan(num_rollouts_M, key)
        self._pool.refresh()
        answers = self._answers(prompts, num_rollouts_M, jobs, sampling, on_group)
        if self._sleep:
            self._pool.sleep()
        return requests.lay_out(
            answers,
            num_rollouts_M,
            max_tokens=sampling.max_tokens,
            pad=self._stop_ids[0],
            params_version=params_version,
        )

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
        """Has every server read a checkpoint that is there already; as `sync` else."""
        start = time.perf_counter()
        give = lambda server, tag: server.load(directory, tag, self._timeout_s)
        self._version, self._num_syncs = None, self._num_syncs + 1
        self._pool.load(give, f"{self._run}-{self._num_syncs}-of-step-{version}")
        self._version = version
        self._add_seconds("timing_s/sync_load", time.perf_counter() - start)

    def metrics(self) -> Metrics:
        """Returns `vllm_pool.COUNTS`, lost servers and the seconds of syncs since the last call."""
        seconds, self._seconds = self._seconds, {}
        return self._pool.counts() | seconds

    def close(self) -> None:
        """Stops the servers that this run launched, and removes the weights on their way."""
        self._pool.close()
        self._weights.clear()

    def _check_call(self, prompts, params_version, sampling):
        check_version(params_version, self._version)
        longest = max(prompts, key=lambda prompt: prompt.length, default=None)
        if longest and longest.length + sampling.max_tokens > self._limit:
            raise ValueError(
                f"prompt {longest.uid!r} of {longest.length} tokens and max_tokens="
                f"{sampling.max_tokens} do not fit the servers' max_model_len="
                f"{self._limit}: start them with a greater --max-model-len"
            )

    def _answers(self, prompts, num_rollouts_M, jobs, sampling, on_group):
        """Returns every answer in order; reports each prompt once, when its last one is here."""
        found_N = [None] * int(num_rollouts_M.sum())
        missing_M = num_rollouts_M.copy()
        stop_M = np.cumsum(num_rollouts_M)
        report = lambda m: on_group(
            m,
            [a.token_T for a in found_N[stop_M[m] - num_rollouts_M[m] : stop_M[m]]],
        )
        for m in np.flatnonzero(missing_M == 0):
            report(int(m))
        with contextlib.closing(self._finished(prompts, jobs, sampling)) as finished:
            for job, answers in finished:
                found_N[job.first : job.first + job.count] = answers
                missing_M[job.m] -= job.count
                if missing_M[job.m] == 0:
                    report(job.m)
        return found_N

    def _finished(self, prompts, jobs, sampling):
        """Yields (job, answers) as they arrive; ends what is in flight when it is left."""
        stop = threading.Event()
        one = lambda job: self._one(prompts[job.m], job, sampling, stop)
        with futures.ThreadPoolExecutor(self._max_in_flight) as threads:
            asked = {threads.submit(one, job): job for job in jobs}
            try:
                for done in futures.as_completed(asked):
                    yield asked[done], done.result()
            finally:
                stop.set()
                for waiting in asked:
                    waiting.cancel()
                while futures.wait(asked, _TICK).not_done:
                    self._pool.abort()

    def _one(self, prompt, job, sampling, stop):
        body = requests.chat(
            prompt,
            job,
            model=self._model,
            sampling=sampling,
            stop_ids=self._stop_ids,
            banned_ids=self._banned_ids,
        )

        def call(server):
            reply = server.chat(body, self._timeout_s)
            return requests.read(reply, prompt, job, sampling)

        return self._pool.ask(call, f"prompt {prompt.uid!r}", job.count, stop)

    def _add_seconds(self, name, seconds):
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds


def _check(servers, **needs):
    """Returns the least max_model_len of servers that can all serve the run."""
    with futures.ThreadPoolExecutor(len(servers)) as threads:
        return min(threads.map(lambda server: server.check(**needs), servers))
