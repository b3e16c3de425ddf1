"""Answers of a checkpoint: through the built-in engine or vLLM, a chunk of prompts at a time.

A chunk draws from keys of its own, so an evaluation that was cut off goes on with what the
uninterrupted one would have drawn.
"""

import contextlib
import os
import zlib
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from ml_collections import ConfigDict

from configs import default
from experiments import assemble, checks, datasets, engines, layout
from experiments.evaluations.answers import Answer, Store
from experiments.evaluations.plan import Plan, opened
from vade_jax import types
from vade_jax.data import prompts, tokens
from vade_jax.models.qwen25vl import files
from vade_jax.rollout.engine import Engine
from vade_jax.trainer import processes

SECTIONS = ("model", "data", "engine", "layout", "mesh")  # as training has them


class Checkpoint:
    """Answers from a directory of weights.

    Every prompt is built once before anything is loaded.

    Raises:
      ValueError: it is no checkpoint, a field is out of its range, or an item makes no prompt.
    """

    def __init__(self, c: ConfigDict, plans: Sequence[Plan], workdir: str):
        if processes.several():
            raise ValueError(
                "an evaluation is one process: use vLLM servers, engine.name='vllm_server'"
            )
        self.directory = directory_of(c.model.checkpoint)
        longest = max(plan.sampling.max_tokens for plan in plans)
        self._run, self._chunk = run_config(c, longest), c.chunk
        self._seed, self._workdir = c.seed, workdir
        checks.config(self._run)
        layout.apply(self._run)
        self._shape = files.load_config(self.directory)
        self._tokenizer = tokens.Tokenizer.load(self.directory)
        self._prompt = datasets.prompt_builder(self._run, self._tokenizer)
        self._on_close = contextlib.ExitStack()
        self._engines: dict[int, Engine] = {}
        self._policy = None

    @property
    def template(self) -> str:
        """How a question stands in the prompt, system prompt and all."""
        content = [{"type": "text", "text": "QUESTION"}]
        return self._tokenizer.render([{"role": "user", "content": content}])

    def check(self, plan: Plan, store: Store) -> None:
        """Raises ValueError if an item that is still to be answered makes no prompt."""
        for item in _open_items(plan, store, range(len(plan.items))):
            self._build(plan, item)

    def ask(self, plan: Plan, store: Store) -> Iterator[int]:
        """Answers what the store lacks and yields how many answers each chunk had.

        Raises:
          EngineFailure: vLLM cannot go on.
        """
        base = jax.random.fold_in(
            jax.random.key(self._seed), zlib.crc32(plan.name.encode())
        )
        for start in range(0, len(plan.items), self._chunk):
            chunk = range(start, min(start + self._chunk, len(plan.items)))
            if any(True for _ in _open_items(plan, store, chunk)):
                made = self._answer(plan, chunk, jax.random.fold_in(base, start))
                store.add(made)
            yield len(chunk) * plan.num_samples

    def close(self) -> None:
        """Stops engines and the servers that they started."""
        self._on_close.close()

    # ------------------------------------------------------------------------- one chunk
    def _answer(self, plan: Plan, chunk: range, key: jax.Array) -> list[Answer]:
        built = [self._build(plan, plan.asked[i]) for i in chunk]
        counts_M = np.full(len(built), plan.num_samples)
        engine = self._engine(plan.num_samples)
        rollouts = engine.generate(built, counts_M, key, 0, plan.sampling)
        return [
            self._read(rollouts, n, built[n // plan.num_samples].uid, plan.num_samples)
            for n in np.flatnonzero(rollouts.valid_N)
        ]

    def _read(self, rollouts: types.Rollouts, n: int, uid: str, per_item: int):
        length = int(rollouts.length_N[n])
        return Answer(
            uid=uid,
            sample=int(n % per_item),
            text=self._tokenizer.decode(rollouts.token_NT[n, :length]),
            num_tokens=length,
            finished=bool(rollouts.finished_N[n]),
        )

    def _build(self, plan: Plan, item: types.Item) -> types.Prompt:
        try:
            return self._prompt(opened(item))
        except prompts.RejectedItem as error:
            raise ValueError(
                f"{plan.name}: {item.uid} makes no prompt ({error.reason}: {error.detail}); an "
                "evaluation leaves no item out"
            ) from error

    # ------------------------------------------------------------------------- engines
    def _engine(self, num_samples: int) -> Engine:
        """Returns the engine; the built-in one is another for other groups."""
        local = self._run.engine.name == "local"
        name = num_samples if local else 0
        if name not in self._engines:
            if self._policy is None:
                self._policy = self._load(weights=local)
            run = _with_groups(self._run, num_samples)
            engine = engines.of_files(run, self._policy, self._workdir)
            self._on_close.callback(engine.close)
            self._engines[name] = engine
        return self._engines[name]

    def _load(self, weights: bool) -> assemble.Policy:
        """Returns the policy; vLLM reads the weights itself."""
        if weights:
            return load(self._run, self.directory)
        unused = {"graphdef": None, "params": None, "shardings": None, "mesh": None}
        return assemble.Policy(
            directory=self.directory,
            shape=self._shape,
            tokenizer=self._tokenizer,
            **unused,
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


def run_config(c: ConfigDict, longest: int) -> ConfigDict:
    """Returns an evaluation's config in the form of a training run's, which engines take.

    Args:
      c: has `SECTIONS`, and `sampling` with temperature, top_p and top_k.
      longest: tokens of the longest answer.
    """
    run = default.get_config()
    for name in SECTIONS:
        run[name].update(c[name])
    run.data.train = run.data.validation = "procedural"  # neither is read
    run.data.num_train = run.data.num_validation = run.num_prompts
    run.sampling.max_tokens = run.eval.max_tokens = longest
    run.sampling.top_p, run.sampling.top_k = c.sampling.top_p, c.sampling.top_k
    run.eval.temperature = c.sampling.temperature
    return run


def load(run: ConfigDict, directory: str) -> assemble.Policy:
    """Returns the policy with its weights on the devices, for answers alone."""
    run.batch.prompts_per_microbatch = jax.device_count()  # of no update
    return assemble.policy(run, directory)


def _with_groups(run: ConfigDict, num_samples: int) -> ConfigDict:
    run = run.copy_and_resolve_references()
    run.num_rollouts = num_samples
    return run


def _open_items(plan: Plan, store: Store, where: Sequence[int]) -> Iterator[types.Item]:
    """Yields the items of `where` that lack an answer."""
    for item in (plan.asked[i] for i in where):
        if any((item.uid, g) not in store.answers for g in range(plan.num_samples)):
            yield item
