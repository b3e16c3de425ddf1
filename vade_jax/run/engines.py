"""Who makes the rollouts of a run, or the answers of an evaluation: the built-in engine or vLLM servers."""

import concurrent.futures
import contextlib
import functools
import os
from typing import Any, Protocol

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


class Sections(Protocol):
    """The settings that an engine is made from: those of a run or of an evaluation."""

    model: Any  # with `dtype`
    data: Any  # with the limits of prompts and pictures
    engine: settings.Engine
    layout: settings.Layout


def make(run: settings.Run, policy: Policy, workdir: str) -> Engine:
    """Returns the engine that the settings name; vLLM's first weights are the checkpoint's.

    Raises:
        ValueError: a server is missing, or cannot serve this run.
        EngineFailure: vLLM does not start.
    """
    sampling = make_sampling(run.sampling)
    if run.engine.name == "local":
        return _local(
            run,
            policy,
            sampling,
            answers_per_row=build.answers_per_row(run),
            rows_per_call=build.num_rows(run, run.engine.prompts_per_call),
        )
    longest = max(run.sampling.max_tokens, run.eval.max_tokens)
    start = functools.partial(_servers, run, policy, workdir, sampling, longest)
    dtype = build.compute_dtype(run.model)
    tensors = functools.partial(weights.from_params, policy.shape, dtype=dtype)
    if not processes.several():
        return start(tensors)
    # Only the leader talks to the servers; the tensors are made by all processes together.
    started = []
    processes.on_leader(lambda: started.append(start(lambda named: named)))
    return processes.LeaderEngine(started[0] if started else None, tensors)


def make_frozen(
    sections: Sections,
    policy: Policy,
    workdir: str,
    sampling: Sampling,
    num_samples: int,
) -> Engine:
    """Returns an engine that only answers, with the weights of `policy.directory` as version 0.

    Args:
        sections: the settings.
        policy: the checkpoint; vLLM reads the weights itself, and then it needs no parameters.
        workdir: where logs go.
        sampling: how answers are drawn; its `max_tokens` is the longest answer that is asked for.
        num_samples: answers to each prompt, for which the built-in engine is laid out.

    Raises:
        ValueError: a server is missing, or cannot serve this checkpoint.
        EngineFailure: vLLM does not start.
    """
    if sections.engine.name == "local":
        return _local(sections, policy, sampling, answers_per_row=num_samples, rows_per_call=0)
    with contextlib.ExitStack() as on_error:
        engine = _servers(
            *(sections, policy, workdir, sampling, sampling.max_tokens),
            tensors=lambda named: named,  # no weights are sent
        )
        on_error.callback(engine.close)
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
    sections: Sections,
    policy: Policy,
    sampling: Sampling,
    *,
    answers_per_row: int,
    rows_per_call: int,
) -> LocalEngine:
    return LocalEngine(
        policy.merge,
        policy.params,
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
    tensors,
) -> VllmServerEngine:
    """Returns the engine over servers that run already, or that are started here."""
    longest = sections.data.max_prompt_length + longest_answer
    directory = sections.engine.sync_directory or os.path.join(workdir, "weights")
    with contextlib.ExitStack() as on_error:
        servers = list(sections.engine.urls) or _launch(
            sections, policy, workdir, longest, on_error
        )
        engine = VllmServerEngine(
            servers,
            model=sections.engine.model or policy.directory,
            longest_prompt=longest - sampling.max_tokens,
            max_in_flight=sections.engine.max_in_flight,
            timeout_s=sections.engine.timeout_s,
            wait_s=sections.engine.wait_s,
            max_retries=sections.engine.retries,
            sleep=sections.layout.sleep,
            tensors=tensors,
            weights=WeightDirectory(directory, build.compute_dtype(sections.model)),
            sampling=sampling,
            stop_ids=policy.tokenizer.stop_ids,
            banned_ids=policy.tokenizer.banned_ids,
        )
        on_error.pop_all()  # the engine stops them from now on
    return engine


def _launch(
    sections: Sections,
    policy: Policy,
    workdir: str,
    longest: int,
    on_error: contextlib.ExitStack,
) -> list:
    """Starts all servers at once, since each takes minutes; one that fails stops the others."""

    def launch(number):
        gpus = cluster.gpus_of_server(sections.layout, sections.engine, number)
        server = process.launch(
            policy.directory,
            log_path=os.path.join(workdir, "logs", f"vllm_{number}.log"),
            options=_vllm_options(sections, longest),
            env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)},
        )
        on_error.callback(server.stop)
        return server

    with concurrent.futures.ThreadPoolExecutor(sections.engine.num_servers) as pool:
        return list(pool.map(launch, range(sections.engine.num_servers)))


def _vllm_options(sections: Sections, longest: int) -> dict[str, Any]:
    """Returns vLLM's options; those of the settings win."""
    options = {
        "max_model_len": longest,
        "mm_processor_kwargs": {
            "min_pixels": sections.data.min_pixels,
            "max_pixels": sections.data.max_pixels,
        },
    }
    if not process.is_cpu_build():
        options |= {
            "tensor_parallel_size": sections.engine.tensor_parallel,
            "gpu_memory_utilization": sections.layout.serve_memory,
        }
    if sections.layout.sleep:
        options["enable_sleep_mode"] = True
    return options | dict(sections.engine.options)
