"""A checkpoint that answers in an evaluation."""

import contextlib
import functools
import os
from collections.abc import Sequence

import jax

from vade_jax import settings
from vade_jax.data import tokens
from vade_jax.evals import policies, tasks
from vade_jax.evals.evaluation import Evaluation
from vade_jax.models.qwen25vl import files
from vade_jax.rollout.engine import Engine
from vade_jax.run import build, checks, cluster, datasets, engines
from vade_jax.trainer import processes


def make(
    e: Evaluation, found: Sequence[tasks.Task], workdir: str
) -> policies.EnginePolicy:
    """Returns the policy; no weights are read before it is asked.

    Raises:
        ValueError: it is no checkpoint, or a field is out of its range.
    """
    if processes.several():
        raise ValueError(
            "an evaluation is one process: use vLLM servers, engine.name='vllm_server'"
        )
    directory = directory_of(e.model.checkpoint)
    run = _as_run(e, max(task.sampling.max_tokens for task in found))
    checks.check(run)
    cluster.take_gpus(run.layout)
    shape, tokenizer = files.load_config(directory), tokens.Tokenizer.load(directory)
    on_close, local = contextlib.ExitStack(), e.engine.name == "local"

    @functools.cache
    def policy() -> build.Policy:
        if local:
            return build.load_policy(run, directory)
        # vLLM reads the weights itself.
        return build.Policy(
            directory=directory,
            shape=shape,
            tokenizer=tokenizer,
            **dict.fromkeys(("graphdef", "params", "shardings", "mesh")),
        )

    @functools.cache
    def engine_of(num_samples: int) -> Engine:
        engine = engines.of_files(run, policy(), workdir, num_samples)
        on_close.callback(engine.close)
        return engine

    return policies.EnginePolicy(
        directory,
        tokenizer,
        datasets.prompt_builder(run.data, tokenizer),
        # The built-in engine is laid out for the size of a group; a server takes any.
        engine_of if local else lambda num_samples: engine_of(0),
        seed=e.seed,
        chunk=e.chunk,
        close_engines=on_close.close,
    )


def _as_run(e: Evaluation, longest: int) -> settings.Run:
    """Returns the settings of a run that engines and policies are built from, as in training."""
    size = jax.device_count()  # of no update, but the mesh divides it
    return settings.Run.from_dict(
        {
            "num_prompts": size,
            "model": e.model.to_dict(),
            "data": e.data.to_dict()
            | {"train": "procedural", "validation": "procedural"}  # neither is read
            | {"num_train": size, "num_validation": 1},
            "engine": e.engine,
            "layout": e.layout,
            "mesh": e.mesh,
            "sampling": {
                "max_tokens": longest,
                "top_p": e.sampling.top_p,
                "top_k": e.sampling.top_k,
            },
            "eval": {"max_tokens": longest, "temperature": e.sampling.temperature},
            "batch": {"prompts_per_minibatch": size, "prompts_per_microbatch": size},
        }
    )


def directory_of(path: str) -> str:
    """Returns the Hugging Face directory that a path means: a run's is its `policy`."""
    if os.path.exists(os.path.join(path, "policy", files.CONFIG)):
        return os.path.join(path, "policy")
    if os.path.isdir(os.path.join(path, "checkpoints")):
        raise ValueError(
            f"--checkpoint={path} is a run that has not finished: export its policy by python "
            f"-m experiments.convert --source={path} --target=DIR"
        )
    return path
