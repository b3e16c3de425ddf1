"""The engine that gets rollouts from one vLLM server, which this run launched or which runs elsewhere.

vLLM's own tensor and data parallelism serves several GPUs or nodes behind one URL: its front end divides the
requests, and new weights and cache resets reach every rank.

A server serves one run only: the run replaces its weights, and aborts all other requests when it does.
docs/scale_out.md has the options that it needs. New weights go through a directory that the server can read
(see `sync`). A dead server is not restarted: the run saves and ends, and can then be started again.
"""

import functools
import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np

from vade_jax import settings
from vade_jax.client import Client, Failure
from vade_jax.rollout.engine import (
    EngineFailure,
    EngineLost,
    OnGroup,
    Sampling,
    check_version,
    ignore,
    to_rollouts,
)
from vade_jax.rollout.vllm import requests, sync
from vade_jax.rollout.vllm.process import LaunchedServer
from vade_jax.types import Params, Prompt, Rollouts

_CHAT = "/v1/chat/completions"
_POLL_S = 0.5
_HEALTH_S = 5.0  # the longest wait for a reply of /health


class VllmServerEngine:
    """Gets rollouts from a vLLM server; each request asks for all answers to one prompt.

    The same call gives the same answers, except that a server batches requests differently each time, which
    changes the rounding.

    Args:
        engine: the settings of requests and waits, and the server's URL.
        launched: the server if this run has launched it; the engine stops it.
        model: the name that the server serves the policy under.
        sampling: how tokens are drawn.
        stop_ids: tokens that end an answer.
        banned_ids: tokens that are never drawn.
        tensors: params -> (published name, tensor) pairs.
        directory: used by this run alone; new weights are written there for the server.
        dtype: the compute dtype of the server.
        longest: tokens of the longest prompt and answer together, image tokens included.
        sleep: free the server's device memory after each `generate`. For a server that shares its
            device with the trainer; it must be started with --enable-sleep-mode.

    Raises:
        ValueError: the server cannot serve this run; the message says how to fix it.
        EngineFailure: the launched server ended.
        EngineLost: the server does not answer.
    """

    def __init__(
        self,
        engine: settings.Engine,
        launched: LaunchedServer | None = None,
        *,
        model: str,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        banned_ids: tuple[int, ...],
        tensors: Callable[[Params], sync.NamedTensors],
        directory: str | os.PathLike[str],
        dtype: np.dtype,
        longest: int,
        sleep: bool = False,
    ):
        self._launched = launched
        self._client = Client(
            launched.url if launched else engine.url,
            concurrency=engine.max_in_flight,
            retries=engine.retries,
            timeout_s=engine.timeout_s,
        )
        self._body = functools.partial(
            requests.chat_body, model=model, stop_ids=stop_ids, banned_ids=banned_ids
        )
        self._sampling, self._pad = sampling, stop_ids[0]
        self._tensors, self._directory, self._dtype = tensors, directory, dtype
        self._sleep = sleep
        self._version: int | None = None  # version of the server's weights; None: unknown
        self._tag = ""  # unique tag of the server's weights, which detects other runs and restarts
        try:
            self._wait(engine.start_s)
            self._check(requests.probe_body(model, stop_ids[0], longest))
        except BaseException:  # also on Ctrl-C: the server must not keep running
            self.close()
            raise

    def __str__(self) -> str:
        log = f", log {self._launched.log_path}" if self._launched else ""
        return f"vLLM server {self._client.url}{log}"

    # ------------------------------------------------------------------------- the start
    def _wait(self, start_s: float) -> None:
        """Waits until the server is ready."""
        health = Client(self._client.url, retries=0, timeout_s=_HEALTH_S)
        end = time.monotonic() + start_s
        while isinstance(reply := health.submit("/health").result(), Failure):
            if self._launched and not self._launched.alive():
                raise EngineFailure(
                    f"{self}, has ended without being ready: its log says why; its memory is "
                    "layout.serve_memory, its other options are engine.options"
                )
            if time.monotonic() > end:
                raise EngineLost(
                    f"{self} is not ready after {start_s:.0f} s (engine.start_s): {reply.why}"
                )
            time.sleep(_POLL_S)

    def _check(self, probe: dict[str, Any]) -> None:
        """Raises ValueError if the server cannot load weights or answers `probe` wrongly."""
        try:
            self._ask("/weight_info")
            self._wake()  # a killed run may have left it asleep
            is_processed = self._ask(_CHAT, probe, requests.has_processed_logprobs)
        except EngineLost:
            raise
        except EngineFailure as error:
            raise ValueError(
                f"{error}: start it with VLLM_SERVER_DEV_MODE=1 and the options that docs/scale_out.md "
                "lists"
            ) from error
        if not is_processed:
            raise ValueError(
                f"{self} returns log-probs of the raw logits, not of the distribution "
                "drawn from: start it with --logprobs-mode processed_logprobs"
            )

    # ------------------------------------------------------------------------- weights
    def sync(self, params: Params, version: int) -> None:
        """Writes the weights and makes the server load them.

        Raises:
            EngineFailure: they could not be written.
            EngineLost: the server did not load them.
        """
        self.read(sync.write(self._tensors(params), self._directory, version, self._dtype), version)

    def read(self, directory: str, version: int) -> None:
        """Makes the server load a checkpoint that is on disk already; otherwise like `sync`.

        Its caches from the old weights (keys, values, image features) are dropped. The tag is set last and
        lost on a restart, so it proves that the weights are those of the directory.
        """
        self._version = None  # until they are loaded
        if self._sleep:
            self._wake()
        self._ask("/abort_requests", {})
        reload = {"method": "reload_weights", "kwargs": {"weights_path": directory}}
        self._ask("/collective_rpc", reload)
        self._ask("/reset_prefix_cache?reset_running_requests=true", {})
        self._ask("/reset_encoder_cache", {})
        self._tag = f"step-{version}-{uuid.uuid4().hex[:8]}"
        self._ask("/update_weight_version", {"new_version": self._tag})
        self._version = version

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
        check_version(params_version, self._version)
        sampling, num_rollouts_M = sampling or self._sampling, np.asarray(num_rollouts_M)
        if self._sleep:
            self._wake()
        pending, answers_M = {}, [[] for _ in prompts]
        for m, seed in enumerate(requests.seeds(num_rollouts_M, key)):
            if (count := int(num_rollouts_M[m])) == 0:
                on_group(m, [])
                continue
            # Made in a thread just before it is sent, because compressing images takes time and memory.
            body = functools.partial(self._body, prompts[m], count, seed, sampling)
            asked = {"prompt": prompts[m], "count": count, "sampling": sampling}
            read = functools.partial(requests.read_answers, **asked)
            pending[self._client.submit(_CHAT, body, read)] = m
        try:
            for done in futures.as_completed(pending):
                m = pending[done]
                answers_M[m] = self._result(done)
                on_group(m, [answer.token_T for answer in answers_M[m]])
        finally:  # after a failure, the other requests are not needed
            for future in pending:
                future.cancel()
        # Only `read` sets the tag, so it shows that the server has not restarted since.
        tag = self._ask("/weight_info", read=lambda reply: reply["weight_version"])
        if tag != self._tag:
            raise EngineLost(f"{self} lost its weights: it has {tag!r} instead of {self._tag!r}")
        if self._sleep:
            self._ask("/sleep?level=1", {})
        return to_rollouts(
            [answer for answers in answers_M for answer in answers],
            num_rollouts_M,
            max_tokens=sampling.max_tokens,
            pad=self._pad,
            params_version=params_version,
        )

    # ------------------------------------------------------------------------- the rest
    def _ask(self, path: str, body: Any = None, read: Callable[[Any], Any] = lambda x: x) -> Any:
        return self._result(self._client.submit(path, body, read))

    def _result(self, future: futures.Future[Any]) -> Any:
        """Waits for a request and returns its parsed reply."""
        result = future.result()
        if not isinstance(result, Failure):
            return result
        if result.status:
            raise EngineFailure(f"{self} refuses a request: {result.why}")
        raise EngineLost(f"{self} does not answer: {result.why}")

    def _wake(self) -> None:
        """Undoes the sleep; does nothing if the server is awake."""
        if self._ask("/is_sleeping", read=lambda reply: reply["is_sleeping"]):
            self._ask("/wake_up", {})

    def close(self) -> None:
        """Stops the server if this run launched it, and removes the weights that were written for it."""
        self._client.close()
        if self._launched:
            self._launched.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
