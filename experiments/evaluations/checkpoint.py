"""A checkpoint that answers in an evaluation."""

import contextlib
import functools
import os
from collections.abc import Sequence

import jax

from configs import default
from experiments import assemble, checks, datasets, engines, layout
from vade_jax.data import tokens
from vade_jax.evals import policies, tasks
from vade_jax.evals.evaluation import Evaluation
from vade_jax.models.qwen25vl import files
from vade_jax.rollout.engine import Engine
from vade_jax.trainer import processes

SECTIONS = ("model", "data", "engine", "layout", "mesh")  # as training has them


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
    run = default.get_config()
    for name in SECTIONS:
        run[name].update(getattr(e, name).to_dict())
    run.data.train = run.data.validation = "procedural"  # neither is read
    run.data.num_train = run.data.num_validation = run.num_prompts
    longest = max(task.sampling.max_tokens for task in found)
    run.sampling.max_tokens = run.eval.max_tokens = longest
    run.sampling.top_p, run.sampling.top_k = e.sampling.top_p, e.sampling.top_k
    run.eval.temperature = e.sampling.temperature
    run.batch.prompts_per_microbatch = jax.device_count()  # of no update
    checks.config(run)
    layout.apply(run)
    shape, tokenizer = files.load_config(directory), tokens.Tokenizer.load(directory)
    on_close, local = contextlib.ExitStack(), e.engine.name == "local"

    @functools.cache
    def policy() -> assemble.Policy:
        if local:
            return assemble.policy(run, directory)
        unused = {"graphdef": None, "params": None, "shardings": None, "mesh": None}
        return assemble.Policy(
            directory=directory, shape=shape, tokenizer=tokenizer, **unused
        )

    @functools.cache
    def engine_of(num_samples: int) -> Engine:
        own = run.copy_and_resolve_references()
        own.num_rollouts = num_samples
        engine = engines.of_files(own, policy(), workdir)
        on_close.callback(engine.close)
        return engine

    return policies.EnginePolicy(
        directory,
        tokenizer,
        datasets.prompt_builder(run, tokenizer),
        engine_of if local else lambda num_samples: engine_of(0),
        seed=e.seed,
        chunk=e.chunk,
        close_engines=on_close.close,
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
