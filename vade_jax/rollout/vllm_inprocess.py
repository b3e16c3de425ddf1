"""vLLM inside this process, through its `LLM` class: one node, no server.

The trainer and vLLM share the machine. On one GPU both must fit: lower `gpu_memory_utilization` in
the options and XLA_PYTHON_CLIENT_MEM_FRACTION in the environment. With `tensor_parallel_size` above
1 vLLM's workers are children of this process, and Ctrl-C reaches them before the run has saved; the
server engine has no such trouble.
"""

import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image

from vade_jax.rollout import vllm_requests as requests
from vade_jax.rollout import vllm_setup
from vade_jax.rollout.engine import (
    EngineFailure,
    OnGroup,
    Sampling,
    check_version,
    ignore,
)
from vade_jax.rollout.sync import WeightDirectory
from vade_jax.types import Metrics, Params, Prompt, Rollouts

Tensors = Callable[[Params], Iterable[tuple[str, Any]]]


class VllmInProcessEngine:
    """Rollouts from a vLLM in this process.

    Args:
      model_dir: a Hugging Face checkpoint with tokenizer: the weights of `version`.
      tensors: params -> (Hugging Face name, values), all of the model's.
      weights: where new weights pass through.
      sampling: how tokens are drawn.
      stop_ids: tokens that end an answer.
      banned_ids: tokens that can never be drawn (the vision tokens).
      options: of vLLM's `LLM`, over the defaults of `vllm_setup`.
      version: of the weights in `model_dir`.

    Raises:
      EngineFailure: vLLM is not installed or does not start.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike,
        *,
        tensors: Tensors,
        weights: WeightDirectory,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        banned_ids: tuple[int, ...],
        options: Mapping[str, Any] = {},
        version: int = 0,
    ):
        self._tensors = tensors
        self._weights = weights
        self._sampling = sampling
        self._stop_ids, self._banned_ids = stop_ids, banned_ids
        self._version: int | None = version
        self._metrics: Metrics = {}
        self._llm = _start(os.fspath(model_dir), options)

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """See `Engine.generate`. Up to rounding the answers do not depend on the batching."""
        check_version(params_version, self._version)
        sampling = sampling or self._sampling
        self._check_lengths(prompts, sampling)
        num_rollouts_M = np.asarray(num_rollouts_M)
        jobs = requests.plan(num_rollouts_M, key)
        answers_M = self._collect(prompts, num_rollouts_M, jobs, sampling, on_group)
        return requests.lay_out(
            [answer for answers in answers_M for answer in answers],
            num_rollouts_M,
            max_tokens=sampling.max_tokens,
            pad=self._stop_ids[0],
            params_version=params_version,
        )

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`. Through files; all that vLLM cached of the old weights is dropped.

        Raises:
          EngineFailure: the weights could not be written or read; the engine then holds none.
        """
        self._version = None
        start = time.monotonic()
        path = self._weights.write(self._tensors(params), version)
        written = time.monotonic()
        try:
            self._reload(path)
        except Exception as error:
            raise EngineFailure(f"vLLM did not load {path}: {error}") from error
        self._version = version
        self._metrics["timing_s/sync_write"] = written - start
        self._metrics["timing_s/sync_load"] = time.monotonic() - written

    def metrics(self) -> Metrics:
        """See `Engine.metrics`."""
        taken, self._metrics = self._metrics, {}
        return taken

    def close(self) -> None:
        """See `Engine.close`."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
            self._weights.clear()

    def _reload(self, path: str) -> None:
        config = self._llm.model_config
        model_dir = config.model
        try:
            reload = {"weights_path": path}
            self._llm.collective_rpc("reload_weights", kwargs=reload)
        finally:
            config.model = model_dir  # the processor is looked for there
        self._llm.reset_prefix_cache()
        self._llm.llm_engine.reset_mm_cache()
        self._llm.llm_engine.reset_encoder_cache()

    def _check_lengths(self, prompts, sampling) -> None:
        limit = self._llm.model_config.max_model_len
        longest = max(prompts, key=lambda prompt: prompt.length)
        if longest.length + sampling.max_tokens > limit:
            raise ValueError(
                f"prompt {longest.uid!r} of {longest.length} tokens and answers of "
                f"{sampling.max_tokens} exceed vLLM's max_model_len {limit}: raise it in "
                "the options"
            )

    def _collect(self, prompts, num_rollouts_M, jobs, sampling, on_group):
        """Returns the answers to each prompt; reports a prompt when its last has come."""
        parts_M = [{} for _ in prompts]
        left_M = np.bincount([job.m for job in jobs], minlength=len(prompts))
        for m in np.flatnonzero(left_M == 0):
            on_group(int(m), [])
        for job, output in self._finished(prompts, jobs, sampling):
            requests.check_prompt(output.prompt_token_ids, prompts[job.m])
            answers = [_answer(o) for o in output.outputs]
            parts_M[job.m][job.first] = answers * (job.count // len(answers))
            left_M[job.m] -= 1
            if left_M[job.m] == 0:
                on_group(job.m, [a.token_T for a in _in_order(parts_M[job.m])])
        answers_M = [_in_order(parts) for parts in parts_M]
        if [len(answers) for answers in answers_M] != list(num_rollouts_M):
            raise EngineFailure(
                "vLLM gave fewer answers than were asked for; see its log"
            )
        return answers_M

    def _finished(self, prompts, jobs, sampling):
        """Yields (job, vLLM's output) as they come; what is not taken is called off."""
        engine = self._llm.llm_engine
        job_of = {str(job.first): job for job in jobs}
        try:
            for name, job in job_of.items():
                prompt, params = _show(prompts[job.m]), self._params(job, sampling)
                engine.add_request(name, prompt, params)
            while engine.has_unfinished_requests():
                for output in engine.step():
                    yield job_of[output.request_id], output
        except Exception as error:
            raise EngineFailure(f"vLLM could not answer: {error}") from error
        finally:
            if engine.has_unfinished_requests():
                engine.abort_request(list(job_of))

    def _params(self, job, sampling):
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=job.count if sampling.temperature else 1,  # all of them would be the same
            seed=job.seed,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=0.0,
            repetition_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            logit_bias=dict.fromkeys(self._banned_ids, -100.0),
            stop_token_ids=list(self._stop_ids),
            ignore_eos=True,  # no other token ends an answer
            logprobs=0,  # of the drawn token alone
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _start(model_dir: str, options: Mapping[str, Any]):
    """Returns vLLM's `LLM`. Its engine runs in this process, so it cannot outlive it."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    on_cpu = vllm_setup.is_cpu_build()
    os.environ.update(vllm_setup.default_env(on_cpu, os.environ))
    if on_cpu:
        _install_hook()
    defaults = vllm_setup.default_options(on_cpu)
    chosen = {k: v for k, v in {**defaults, **options}.items() if v is not None}
    try:
        from vllm import LLM

        return LLM(model_dir, **chosen)
    except ImportError as error:
        fix = vllm_setup.fix_for(str(error)) or "repair its installation"
        raise EngineFailure(f"vLLM cannot be imported ({error}): {fix}") from error
    except (RuntimeError, ValueError, OSError, AssertionError) as error:
        fix = vllm_setup.fix_for(str(error)) or "see what vLLM printed above"
        raise EngineFailure(f"vLLM did not start ({error}): {fix}") from error


def _install_hook() -> None:
    """Does in this process what PYTHONPATH does in vLLM's children."""
    path = vllm_setup.TORCHVISION_HOOK / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("torchvision_cpu", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _show(prompt: Prompt) -> dict[str, Any]:
    images = [Image.fromarray(image) for image in prompt.images]
    return {
        "prompt": prompt.text,
        **({"multi_modal_data": {"image": images}} if images else {}),
    }


def _answer(output) -> requests.Answer:
    token_T = np.array(output.token_ids, np.int32)
    drawn = zip(output.token_ids, output.logprobs, strict=True)
    logp_T = np.array([of[token].logprob for token, of in drawn], np.float32)
    if output.finish_reason not in ("stop", "length"):
        raise EngineFailure(f"vLLM ended an answer early: {output.finish_reason}")
    return requests.Answer(token_T, logp_T, output.finish_reason == "stop")


def _in_order(parts: Mapping[int, list[requests.Answer]]) -> list[requests.Answer]:
    return [answer for first in sorted(parts) for answer in parts[first]]
