"""Who makes the rollouts of a run: the built-in engine or vLLM servers."""

import concurrent.futures
import contextlib
import functools
import os
from typing import Any

from vade_jax import settings
from vade_jax.models.qwen25vl import weights
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import WeightDirectory
from vade_jax.run import build, cluster
from vade_jax.run.build import Policy
from vade_jax.trainer import processes


def make(run: settings.Run, policy: Policy, workdir: str) -> Engine:
    """Returns the engine that the settings name; vLLM's first weights are the checkpoint's.

    Raises:
        ValueError: a server is missing, or cannot serve this run.
        EngineFailure: vLLM does not start.
    """
    if run.engine.name == "local":
        return _local(
            run,
            policy,
            answers_per_row=build.answers_per_row(run),
            rows_per_call=build.num_rows(run, run.engine.prompts_per_call),
        )
    dtype = build.compute_dtype(run.model)
    tensors = functools.partial(weights.from_params, policy.shape, dtype=dtype)
    if not processes.several():
        return _servers(run, policy, workdir, tensors)
    # Only the leader talks to the servers; the tensors are made by all processes together.
    started = []
    processes.on_leader(
        lambda: started.append(_servers(run, policy, workdir, lambda named: named))
    )
    return processes.LeaderEngine(started[0] if started else None, tensors)


def of_files(
    run: settings.Run, policy: Policy, workdir: str, num_samples: int
) -> Engine:
    """Returns an engine for evaluation, with the weights of `policy.directory` as version 0.

    Args:
        run: the settings.
        policy: the checkpoint; vLLM reads the weights itself, and then it needs no parameters.
        workdir: where logs go.
        num_samples: answers to each prompt, for which the built-in engine is laid out.
    """
    with contextlib.ExitStack() as on_error:
        if run.engine.name == "local":
            engine = _local(run, policy, answers_per_row=num_samples, rows_per_call=0)
        else:
            engine = make(run, policy, workdir)
        on_error.callback(engine.close)
        if run.engine.name == "vllm_server":
            engine.read(os.path.abspath(policy.directory), 0)
        on_error.pop_all()
    return engine


def make_sampling(sampling: settings.Sampling) -> Sampling:
    """Returns how an engine draws the answers of training."""
    return Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=sampling.max_tokens,
    )


def _local(
    run: settings.Run, policy: Policy, *, answers_per_row: int, rows_per_call: int
) -> LocalEngine:
    return LocalEngine(
        policy.merge,
        policy.params,
        sampling=make_sampling(run.sampling),
        stop_ids=policy.tokenizer.stop_ids,
        banned_ids=policy.tokenizer.banned_ids,
        answers_per_row=answers_per_row,
        rows_per_call=rows_per_call,
        prompts_per_call=run.engine.prompts_per_call,
        length_multiple=run.data.length_multiple,
        mesh=policy.mesh,
    )


def _servers(run: settings.Run, policy: Policy, workdir: str, tensors):
    """Returns the engine over servers that run already, or that are started here."""
    directory = run.engine.sync_directory or os.path.join(workdir, "weights")
    with contextlib.ExitStack() as on_error:
        servers = list(run.engine.urls) or _launch(run, policy, workdir, on_error)
        engine = VllmServerEngine(
            servers,
            model=run.engine.model or policy.directory,
            longest_prompt=_longest(run) - run.sampling.max_tokens,
            max_in_flight=run.engine.max_in_flight,
            timeout_s=run.engine.timeout_s,
            wait_s=run.engine.wait_s,
            max_retries=run.engine.retries,
            sleep=run.layout.sleep,
            tensors=tensors,
            weights=WeightDirectory(directory, build.compute_dtype(run.model)),
            sampling=make_sampling(run.sampling),
            stop_ids=policy.tokenizer.stop_ids,
            banned_ids=policy.tokenizer.banned_ids,
        )
        on_error.pop_all()  # the engine stops them from now on
    return engine


def _launch(
    run: settings.Run, policy: Policy, workdir: str, on_error: contextlib.ExitStack
) -> list:
    """Starts all servers at once, since each takes minutes; one that fails stops the others."""

    def launch(number):
        gpus = cluster.gpus_of_server(run.layout, run.engine, number)
        server = process.launch(
            policy.directory,
            log_path=os.path.join(workdir, "logs", f"vllm_{number}.log"),
            options=_vllm_options(run),
            env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)},
        )
        on_error.callback(server.stop)
        return server

    with concurrent.futures.ThreadPoolExecutor(run.engine.num_servers) as pool:
        return list(pool.map(launch, range(run.engine.num_servers)))


def _vllm_options(run: settings.Run) -> dict[str, Any]:
    """Returns vLLM's options; those of the settings win."""
    options = {
        "max_model_len": _longest(run),
        "mm_processor_kwargs": {
            "min_pixels": run.data.min_pixels,
            "max_pixels": run.data.max_pixels,
        },
    }
    if not process.is_cpu_build():
        options |= {
            "tensor_parallel_size": run.engine.tensor_parallel,
            "gpu_memory_utilization": run.layout.serve_memory,
        }
    if run.layout.sleep:
        options["enable_sleep_mode"] = True
    return options | dict(run.engine.options)


def _longest(run: settings.Run) -> int:
    """Returns the tokens of the longest prompt and answer together."""
    answer = max(run.sampling.max_tokens, run.eval.max_tokens)
    return run.data.max_prompt_length + answer
