"""Makes the engine that samples answers, for a run or an evaluation: the built-in one or vLLM servers."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import threading
from typing import Any

import numpy as np

from vade_jax import settings
from vade_jax.models.qwen import files, weights
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import pool, process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import WeightDirectory
from vade_jax.run import cluster
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
        workdir: for logs, and for the weights that servers read.
        sampling: of the rollouts.
        longest_answer: tokens, of rollouts and of validation.
        answers_per_row: of the built-in engine: answers that share one copy of their prompt.
        rows_per_call: of the built-in engine: rows for groups of uneven sizes; 0 if all are even.

    Raises:
        ValueError: a server is missing, or cannot serve this run.
        EngineFailure: vLLM does not start.
    """
    # It must not hold a copy of the first weights.
    policy = dataclasses.replace(policy, params=None)
    if sections.engine.name == "local":
        return _local(sections, policy, sampling, answers_per_row, rows_per_call)
    return _synced_servers(sections, policy, workdir, sampling, longest_answer)


def _synced_servers(
    sections: Sections, policy: Policy, workdir: str, sampling: Sampling, longest_answer: int
) -> Engine:
    """Returns the engine over vLLM servers, which gets the weights after each step."""
    start = functools.partial(
        _servers, sections, policy, workdir, sampling, longest_answer, policy.dtype
    )
    tensors = functools.partial(weights.from_params, policy.shape, dtype=policy.dtype)
    if not processes.several():
        return start(tensors)
    # Only the leader talks to the servers; all processes together gather the tensors.
    started = []
    processes.on_leader(lambda: started.append(start(lambda named: named)))
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
    nothing = {
        "dtype": np.float32,
        "tensors": lambda named: named,
    }  # this engine never sends weights
    engine = _servers(sections, policy, workdir, sampling, sampling.max_tokens, **nothing)
    try:
        engine.read(os.path.abspath(policy.directory), 0)
    except BaseException:  # also on Ctrl-C: servers must not keep running
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


def _servers(
    sections: Sections,
    policy: Policy,
    workdir: str,
    sampling: Sampling,
    longest_answer: int,
    dtype,
    tensors,
) -> VllmServerEngine:
    """Returns the engine over running servers, or over servers that it starts."""
    engine, longest = sections.engine, sections.data.max_prompt_length + longest_answer
    with contextlib.ExitStack() as on_error:
        servers = list(engine.urls)
        if not servers:
            servers = _launch(sections, policy.directory, workdir, longest, on_error)
        made = VllmServerEngine(
            servers,
            model=engine.model or policy.directory,
            longest_prompt=longest - sampling.max_tokens,
            max_in_flight=engine.max_in_flight,
            timeout_s=engine.timeout_s,
            wait_s=engine.wait_s,
            max_retries=engine.retries,
            sleep=sections.layout.sleep,
            tensors=tensors,
            weights=WeightDirectory(
                _sync_directory(engine.sync_directory, workdir),
                dtype,
            ),
            sampling=sampling,
            stop_ids=policy.tokenizer.stop_ids,
            banned_ids=policy.tokenizer.banned_ids,
        )
        on_error.pop_all()  # from here on the engine stops them
    return made


def _sync_directory(shared: str, workdir: str) -> str:
    """Returns the directory where this run writes its weights: its own folder if runs share the place.

    Otherwise another run at the same step would replace the files under the same name.
    """
    if not shared:
        return os.path.join(workdir, "weights")
    path = os.path.realpath(workdir)
    digest = hashlib.sha256(path.encode()).hexdigest()[:8]
    return os.path.join(shared, f"{os.path.basename(path)}_{digest}")


def _launch(
    sections: Sections,
    directory: str,
    workdir: str,
    longest: int,
    on_error: contextlib.ExitStack,
) -> list[process.LaunchedServer]:
    """Starts all servers at once, since each takes minutes.

    If one fails, or at Ctrl-C, the others are stopped.
    """
    engine, layout, data = sections.engine, sections.layout, sections.data
    options: dict[str, Any] = {"max_model_len": longest}
    if files.load_config(directory).vision:
        limits = {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels}
        options["mm_processor_kwargs"] = limits
    else:  # a text model accepts no option about images
        options["limit_mm_per_prompt"] = None
    if not process.is_cpu_build():
        options["tensor_parallel_size"] = engine.tensor_parallel
        options["gpu_memory_utilization"] = layout.serve_memory
    if layout.sleep:
        options["enable_sleep_mode"] = True

    ended = threading.Event()

    def launch(number):
        gpus = cluster.gpus_of_server(layout, engine, number)
        server = process.launch(
            directory,
            log_path=os.path.join(workdir, "logs", f"vllm_{number}.log"),
            options=options | dict(engine.options),  # the user's options win
            env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)},
            start_s=engine.start_s,
            ended=ended,
        )
        on_error.callback(server.stop)
        return server

    return pool.at_once(launch, range(engine.num_servers), ended)
