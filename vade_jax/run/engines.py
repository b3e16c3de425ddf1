"""Who makes the rollouts of a run, or the answers of an evaluation: the built-in engine or vLLM servers."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import os
from typing import Any

import numpy as np

from vade_jax import settings
from vade_jax.models.qwen import files, weights
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import WeightDirectory
from vade_jax.run import cluster
from vade_jax.run.policy import Policy
from vade_jax.trainer import processes
from vade_jax.types import Params


@dataclasses.dataclass(frozen=True)
class Sections:
    """The settings that an engine is made from: those of a run or of an evaluation."""

    data: Any  # with the limits of prompts and pictures
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
    """Returns the engine that the settings name; vLLM's first weights are the checkpoint's.

    Args:
        sections: of the run.
        policy: its shapes and its tokenizer; the loop gives weights before it asks.
        workdir: for logs, and weights on their way to servers.
        sampling: of the rollouts.
        longest_answer: tokens, of rollouts and of validation.
        answers_per_row: of the built-in engine: answers that share one copy of their prompt.
        rows_per_call: of the built-in engine: rows where groups are uneven, 0 where none is.

    Raises:
        ValueError: a server is missing, or cannot serve this run.
        EngineFailure: vLLM does not start.
    """
    # Of the first weights it is to hold no copy.
    policy = dataclasses.replace(policy, params=None)
    if sections.engine.name == "local":
        engine = _local(sections, policy, sampling, answers_per_row, rows_per_call)
    else:
        engine = _synced_servers(sections, policy, workdir, sampling, longest_answer)
    return engine if policy.adapter is None else WithBase(engine, policy)


class WithBase:
    """An engine for a policy of which an adapter alone learns: it is given all weights."""

    def __init__(self, engine: Engine, policy: Policy):
        self._engine, self._policy = engine, policy
        self.generate, self.metrics, self.close = engine.generate, engine.metrics, engine.close

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`; `params` are the adapter's."""
        self._engine.sync(self._policy.whole(params), version)


def _synced_servers(
    sections: Sections, policy: Policy, workdir: str, sampling: Sampling, longest_answer: int
) -> Engine:
    """Returns the engine over vLLM's servers that gets the weights of each step."""
    start = functools.partial(
        _servers, sections, policy, workdir, sampling, longest_answer, policy.dtype
    )
    tensors = functools.partial(weights.from_params, policy.shape, dtype=policy.dtype)
    if not processes.several():
        return start(tensors)
    # Only the leader talks to the servers; the tensors are made by all processes together.
    started = []
    processes.on_leader(lambda: started.append(start(lambda named: named)))
    return processes.LeaderEngine(started[0] if started else None, tensors)


def make_frozen(
    sections: Sections, policy: Policy, workdir: str, sampling: Sampling, num_samples: int
) -> Engine:
    """Returns an engine that only answers, with the weights of `policy.directory` as version 0.

    vLLM reads the weights itself: then `policy` needs no parameters. The built-in engine is laid out
    for `num_samples` answers to each prompt. Raises as `make`.
    """
    if sections.engine.name == "local":
        return _local(sections, policy, sampling, num_samples, rows_per_call=0)
    nothing = {"dtype": np.float32, "tensors": lambda named: named}  # no weights are sent
    engine = _servers(sections, policy, workdir, sampling, sampling.max_tokens, **nothing)
    try:
        engine.read(os.path.abspath(policy.directory), 0)
    except BaseException:  # Ctrl-C too: servers must not stay
        engine.close()
        raise
    return engine


def _local(
    sections: Sections, policy: Policy, sampling: Sampling, answers_per_row: int, rows_per_call: int
) -> LocalEngine:
    return LocalEngine(
        policy.merge_gathered,
        None if policy.params is None else policy.whole(policy.params),
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
    """Returns the engine over servers that run already, or that are started here."""
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
        on_error.pop_all()  # the engine stops them from now on
    return made


def _sync_directory(shared: str, workdir: str) -> str:
    """Returns where this run writes its weights: in a place that runs share, a folder of its own.

    Another run of the same step would otherwise replace them under the same name.
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
    """Starts all servers at once, since each takes minutes; one that fails stops the others."""
    engine, layout, data = sections.engine, sections.layout, sections.data
    options: dict[str, Any] = {"max_model_len": longest}
    if files.load_config(directory).vision:
        limits = {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels}
        options["mm_processor_kwargs"] = limits
    else:  # a text model takes no options about images, not even that there are none
        options["limit_mm_per_prompt"] = None
    if not process.is_cpu_build():
        options["tensor_parallel_size"] = engine.tensor_parallel
        options["gpu_memory_utilization"] = layout.serve_memory
    if layout.sleep:
        options["enable_sleep_mode"] = True

    def launch(number):
        gpus = cluster.gpus_of_server(layout, engine, number)
        server = process.launch(
            directory,
            log_path=os.path.join(workdir, "logs", f"vllm_{number}.log"),
            options=options | dict(engine.options),  # the settings' own win
            env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)},
            start_s=engine.start_s,
        )
        on_error.callback(server.stop)
        return server

    with concurrent.futures.ThreadPoolExecutor(engine.num_servers) as threads:
        return list(threads.map(launch, range(engine.num_servers)))
