"""Makes the engine that samples answers, for a run or an evaluation: the built-in one or vLLM."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

from vade_jax import settings
from vade_jax.models.qwen import files, weights
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import NamedTensors
from vade_jax.run import gpus
from vade_jax.trainer import processes
from vade_jax.trainer.policy import Policy


@dataclasses.dataclass(frozen=True)
class Sections:
    """The settings of an engine, from a run or from an evaluation."""

    data: Any  # the limits of prompts and pictures
    engine: settings.Engine
    layout: settings.Layout


def make(
    sections: Sections,
    policy: Policy,
    workdir: str,
    sampling: Sampling,
    *,
    longest_answer: int,
    answers_per_row: int,
    rows_per_call: int,
) -> Engine:
    """Returns the engine that the settings name; vLLM starts with the checkpoint's weights.

    Args:
        sections: of the run.
        policy: gives shapes and tokenizer; the loop sends weights before it asks for answers.
        workdir: for logs, and for the weights that vLLM reads.
        sampling: of the rollouts.
        longest_answer: tokens, of rollouts and of validation.
        answers_per_row: of the built-in engine: answers that share one copy of their prompt.
        rows_per_call: of the built-in engine: rows for groups of uneven sizes; 0 if all are even.

    Raises:
        ValueError: the server cannot serve this run.
        EngineFailure: vLLM does not start, or the server does not answer.
    """
    if sections.engine.name == "local":
        # It must not hold a copy of the first weights.
        policy = dataclasses.replace(policy, params=None)
        return _local(sections, policy, sampling, answers_per_row, rows_per_call)
    start = functools.partial(_server, sections, policy, workdir, sampling, longest_answer)
    tensors = functools.partial(weights.from_params, policy.shape, dtype=policy.dtype)
    if not processes.several():
        return start(tensors)
    # Only the leader talks to the server; all processes together gather the tensors.
    started = []
    processes.on_leader(lambda: started.append(start(iter)))
    return processes.LeaderEngine(started[0] if started else None, tensors)


def make_frozen(
    sections: Sections, policy: Policy, workdir: str, sampling: Sampling, num_samples: int
) -> Engine:
    """Returns an engine that only answers, with the weights of `policy.directory` as version 0.

    vLLM reads the weights itself, so then `policy` needs no parameters. The built-in engine is made for
    `num_samples` answers to each prompt. Raises what `make` raises.
    """
    if sections.engine.name == "local":
        return _local(sections, policy, sampling, num_samples, rows_per_call=0)
    engine = _server(sections, policy, workdir, sampling, sampling.max_tokens, iter)
    try:
        engine.read(os.path.abspath(policy.directory), 0)
    except BaseException:  # also on Ctrl-C: the server must not keep running
        engine.close()
        raise
    return engine


def _local(
    sections: Sections, policy: Policy, sampling: Sampling, answers_per_row: int, rows_per_call: int
) -> LocalEngine:
    return LocalEngine(
        policy.merge,
        None if policy.params is None else policy.whole(policy.params, policy.base),
        sampling=sampling,
        stop_ids=policy.tokenizer.stop_ids,
        banned_ids=policy.tokenizer.banned_ids,
        answers_per_row=answers_per_row,
        rows_per_call=rows_per_call,
        prompts_per_call=sections.engine.prompts_per_call,
        length_multiple=sections.data.length_multiple,
        mesh=policy.mesh,
    )


def _server(
    sections: Sections,
    policy: Policy,
    workdir: str,
    sampling: Sampling,
    longest_answer: int,
    tensors: Callable[[Any], NamedTensors],
) -> VllmServerEngine:
    """Returns the engine over the server of `engine.url`, or over one that it starts."""
    engine, longest = sections.engine, sections.data.max_prompt_length + longest_answer
    directory = os.path.join(workdir, "weights")
    if engine.sync_directory:  # other runs may share it
        directory = os.path.join(engine.sync_directory, os.path.realpath(workdir).lstrip(os.sep))
    return VllmServerEngine(
        engine,
        None if engine.url else _launch(sections, policy.directory, workdir, longest),
        model=engine.model or policy.directory,
        sampling=sampling,
        stop_ids=policy.tokenizer.stop_ids,
        banned_ids=policy.tokenizer.banned_ids,
        tensors=tensors,
        directory=directory,
        dtype=policy.dtype,
        longest=longest,
        sleep=sections.layout.sleep,
    )


def _launch(
    sections: Sections, directory: str, workdir: str, longest: int
) -> process.LaunchedServer:
    engine, layout, data = sections.engine, sections.layout, sections.data
    options: dict[str, Any] = {"max_model_len": longest}
    if files.load_config(directory).vision:
        limits = {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels}
        options["mm_processor_kwargs"] = limits
    else:  # a text model accepts no option about images
        options["limit_mm_per_prompt"] = None
    if engine.data_parallel > 1:
        options["data_parallel_size"] = engine.data_parallel
    if not process.is_cpu_build():
        options["tensor_parallel_size"] = engine.tensor_parallel
        options["gpu_memory_utilization"] = layout.serve_memory
    if layout.sleep:
        options["enable_sleep_mode"] = True
    return process.launch(
        directory,
        log_path=os.path.join(workdir, "logs", "vllm.log"),
        options=options | dict(engine.options),  # the user's options win
        env={"CUDA_VISIBLE_DEVICES": ",".join(gpus.of_server(layout, engine))},
    )
