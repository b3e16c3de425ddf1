"""Makes the engine that samples answers, for a run or an evaluation: the built-in one or vLLM."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

from vade_jax import settings
from vade_jax.models.qwen import files, weights
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.rollout.leader import LeaderEngine
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import NamedTensors
from vade_jax.run import gpus
from vade_jax.trainer import processes
from vade_jax.trainer.policy import Policy


def make(run: settings.Run, policy: Policy, workdir: str) -> Engine:
    """Returns the engine of a run; vLLM starts with the checkpoint's weights.

    `policy` gives shapes and tokenizer; the loop sends weights before it asks for answers. `workdir` is for
    logs, and for the weights that vLLM reads.

    Raises:
        ValueError: the server cannot serve this run.
        EngineFailure: vLLM does not start, or the server does not answer.
    """
    sampling = Sampling(**run.sampling.to_dict())
    if run.engine.name != "local":
        return _vllm(run, policy, workdir, sampling)
    # The engine must not hold a copy of the first weights.
    policy, size = dataclasses.replace(policy, params=None), run.engine.prompts_per_call
    per_row, rows = run.batch.answers_per_row or run.num_rollouts, 0
    if per_row < run.num_rollouts:  # the most rows of a call if prompts have G answers on average
        rows = size + size * (run.num_rollouts - 1) // per_row
    return local(run.engine, run.data, policy, sampling, per_row, rows)


def _vllm(run: settings.Run, policy: Policy, workdir: str, sampling: Sampling) -> Engine:
    longest = run.data.max_prompt_length + max(run.sampling.max_tokens, run.eval.max_tokens)
    tensors = functools.partial(weights.from_params, policy.shape, dtype=policy.dtype)
    sections = run.engine, run.layout, run.data
    start = functools.partial(_server, *sections, policy, workdir, sampling, longest)
    if not processes.several():
        return start(tensors)
    servers = []
    processes.on_leader(lambda: servers.append(start(iter)))
    return LeaderEngine(servers[0] if servers else None, sampling, tensors, processes.on_leader)


def frozen_server(
    engine: settings.Engine,
    layout: settings.Layout,
    data: Any,
    policy: Policy,
    workdir: str,
    sampling: Sampling,
) -> Engine:
    """Returns vLLM with the weights of `policy.directory` as version 0, for an evaluation.

    vLLM reads the weights itself, so `policy` needs no parameters. Raises what `make` raises.
    """
    longest = data.max_prompt_length + sampling.max_tokens
    server = _server(engine, layout, data, policy, workdir, sampling, longest, iter)
    try:
        server.read(os.path.abspath(policy.directory), 0)
    except BaseException:  # also on Ctrl-C: the server must not keep running
        server.close()
        raise
    return server


def local(
    engine: settings.Engine,
    data: Any,
    policy: Policy,
    sampling: Sampling,
    answers_per_row: int,
    rows_per_call: int = 0,
) -> LocalEngine:
    """Returns the built-in engine; without parameters in `policy` it waits for weights."""
    return LocalEngine(
        policy.merge,
        None if policy.params is None else policy.whole(policy.params, policy.base),
        sampling=sampling,
        stop_ids=policy.tokenizer.stop_ids,
        banned_ids=policy.tokenizer.banned_ids,
        answers_per_row=answers_per_row,
        rows_per_call=rows_per_call,
        prompts_per_call=engine.prompts_per_call,
        length_multiple=data.length_multiple,
        mesh=policy.mesh,
    )


def _server(
    engine: settings.Engine,
    layout: settings.Layout,
    data: Any,  # the limits of prompts and pictures
    policy: Policy,
    workdir: str,
    sampling: Sampling,
    longest: int,
    tensors: Callable[[Any], NamedTensors],
) -> VllmServerEngine:
    """Returns the engine of the server at `engine.url`, or of one that it starts."""
    directory, launched = os.path.join(workdir, "weights"), None
    if engine.sync_directory:  # other runs may share it
        directory = os.path.join(engine.sync_directory, os.path.realpath(workdir).lstrip(os.sep))
    if not engine.url:
        options: dict[str, Any] = {"max_model_len": longest}
        if files.load_config(policy.directory).vision:
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
        launched = process.launch(
            policy.directory,
            log_path=os.path.join(workdir, "logs", "vllm.log"),
            options=options | dict(engine.options),  # the user's options win
            env={"CUDA_VISIBLE_DEVICES": ",".join(gpus.of_server(layout, engine))},
        )
    return VllmServerEngine(
        engine,
        launched,
        model=engine.model or policy.directory,
        sampling=sampling,
        stop_ids=policy.tokenizer.stop_ids,
        banned_ids=policy.tokenizer.banned_ids,
        tensors=tensors,
        directory=directory,
        dtype=policy.dtype,
        longest=longest,
        sleep=layout.sleep,
    )
