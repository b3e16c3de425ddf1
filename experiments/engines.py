"""Who makes the rollouts: the built-in engine or vLLM servers."""

import concurrent.futures
import contextlib
import functools
import os
from typing import Any

from ml_collections import ConfigDict

from experiments import assemble, layout
from vade_jax.models.qwen25vl import weights
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import WeightDirectory
from vade_jax.trainer import processes


def make(c: ConfigDict, policy: assemble.Policy, workdir: str) -> Engine:
    """Returns the engine that the config names; vLLM's first weights are the checkpoint's.

    Raises:
        ValueError: a server is missing, or cannot serve this run.
        EngineFailure: vLLM does not start.
    """
    if c.engine.name == "local":
        return _local(c, policy)
    tensors = functools.partial(
        weights.from_params, policy.shape, dtype=assemble.compute_dtype(c)
    )
    if not processes.several():
        return _servers(c, policy, workdir, tensors)
    started = []
    as_they_are = lambda named: named  # made by all processes together
    processes.on_leader(
        lambda: started.append(_servers(c, policy, workdir, as_they_are))
    )
    return processes.LeaderEngine(started[0] if started else None, tensors)


def of_files(c: ConfigDict, policy: assemble.Policy, workdir: str) -> Engine:
    """Returns `make`'s engine with the weights of `policy.directory` as version 0.

    vLLM reads them itself: `policy` needs no parameters then.
    """
    with contextlib.ExitStack() as on_error:
        engine = make(c, policy, workdir)
        on_error.callback(engine.close)
        if c.engine.name == "vllm_server":
            engine.read(os.path.abspath(policy.directory), 0)
        on_error.pop_all()
    return engine


def _local(c, policy) -> LocalEngine:
    return LocalEngine(
        policy.merge,
        policy.params,
        sampling=Sampling(**c.sampling),
        stop_ids=policy.tokenizer.stop_ids,
        banned_ids=policy.tokenizer.banned_ids,
        **assemble.rows(c, "rows_per_call", c.engine.prompts_per_call),
        prompts_per_call=c.engine.prompts_per_call,
        length_multiple=c.data.length_multiple,
        mesh=policy.mesh,
    )


def _servers(c, policy, workdir, tensors) -> VllmServerEngine:
    with contextlib.ExitStack() as on_error:
        servers = list(c.engine.urls) or _launch(c, policy, workdir, on_error)
        directory = c.engine.sync_directory or os.path.join(workdir, "weights")
        engine = VllmServerEngine(
            servers,
            model=c.engine.model or policy.directory,
            longest_prompt=_longest(c) - c.sampling.max_tokens,
            max_in_flight=c.engine.max_in_flight,
            timeout_s=c.engine.timeout_s,
            wait_s=c.engine.wait_s,
            max_retries=c.engine.retries,
            sleep=c.layout.sleep,
            tensors=tensors,
            weights=WeightDirectory(directory, assemble.compute_dtype(c)),
            sampling=Sampling(**c.sampling),
            stop_ids=policy.tokenizer.stop_ids,
            banned_ids=policy.tokenizer.banned_ids,
        )
        on_error.pop_all()  # the engine stops them from now on
    return engine


def _launch(c, policy, workdir, on_error: contextlib.ExitStack) -> list:
    """Starts all servers at once; a failure of one stops the others."""

    def launch(number):
        server = process.launch(
            policy.directory,
            log_path=os.path.join(workdir, "logs", f"vllm_{number}.log"),
            options=_options(c),
            env=layout.of_server(c, number),
        )
        on_error.callback(server.stop)
        return server

    with concurrent.futures.ThreadPoolExecutor(c.engine.num_servers) as pool:
        return list(pool.map(launch, range(c.engine.num_servers)))


def _options(c) -> dict[str, Any]:
    """Returns vLLM's options; those of the config win."""
    options = {
        "max_model_len": _longest(c),
        "mm_processor_kwargs": {
            "min_pixels": c.data.min_pixels,
            "max_pixels": c.data.max_pixels,
        },
    }
    if not process.is_cpu_build():
        options |= {
            "tensor_parallel_size": c.engine.tensor_parallel,
            "gpu_memory_utilization": c.layout.serve_memory,
        }
    if c.layout.sleep:
        options["enable_sleep_mode"] = True
    return options | c.engine.options.to_dict()


def _longest(c) -> int:
    """Returns the tokens of the longest prompt and answer together."""
    return c.data.max_prompt_length + max(c.sampling.max_tokens, c.eval.max_tokens)
