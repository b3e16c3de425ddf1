"""The tasks of an evaluation: which items are asked, how often, how answers are drawn.

A task's record contains everything that comparable evaluations must share. It is written before the first
answer, and a resumed evaluation must have the same record.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import io
import json
import os
import pathlib
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from experiments.evals import decisions
from experiments.evals.benchmarks import BENCHMARKS, base
from experiments.evals.settings import Data, Evaluation
from vade_jax import settings, types
from vade_jax.data import prompts, tokens
from vade_jax.rollout.engine import Sampling

PACKAGES = ("vade_jax", "jax", "numpy", "pillow", "tokenizers", "vllm")
OWN_RULES = "the benchmark's rules"  # the scorer if there is no judge
# Parts of a record that may change on resumption, because no answer depends on them.
MAY_CHANGE = ("scoring", "files", "versions")


@dataclasses.dataclass(frozen=True)
class Task:
    """One benchmark of an evaluation."""

    benchmark: base.Benchmark
    path: str  # of its files
    profile: str  # "paper" or "cot"
    items: Sequence[types.Item]  # in the order of the files
    num_samples: int  # answers to each
    sampling: Sampling  # how they are drawn; temperature 0 is greedy

    @property
    def name(self) -> str:
        return self.benchmark.name

    @functools.cached_property
    def asked(self) -> list[types.Item]:
        """The items with the benchmark's complete prompt as question; see `opened`."""
        prompt = self.benchmark.prompt
        return [
            dataclasses.replace(item, question=prompt(item, self.profile)) for item in self.items
        ]

    @functools.cached_property
    def keys(self) -> list[tuple[str, int]]:
        """(uid, sample) of every required answer."""
        return [(i.uid, g) for i in self.items for g in range(self.num_samples)]


def read(evaluation: Evaluation) -> list[Task]:
    """Returns a task for each benchmark that has a file, with all its items, in the order of tables.

    Raises:
        ValueError: a file is missing, or not of its benchmark.
    """
    paths = {name: path for name, path in evaluation.benchmarks.items() if path}
    for name, path in paths.items():
        if not os.path.exists(path):
            raise ValueError(f"benchmarks.{name}={path} does not exist")
    if evaluation.skipped:
        print(f"without files, so skipped: {', '.join(evaluation.skipped)}")
    return [
        _task(evaluation, BENCHMARKS[name], paths[name]) for name in BENCHMARKS if name in paths
    ]


def _task(evaluation: Evaluation, benchmark: base.Benchmark, path: str) -> Task:
    protocol = benchmark.paper if evaluation.profile == "paper" else base.SAMPLED
    drawn, num_samples = evaluation.sampling, protocol.num_samples
    if protocol.greedy:
        sampling = Sampling(temperature=0.0, max_tokens=protocol.max_tokens)
    else:
        num_samples = drawn.num_samples or num_samples
        sampling = Sampling(
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            top_k=drawn.top_k,
            max_tokens=drawn.max_tokens or protocol.max_tokens,
        )
    items = benchmark.read(path)[: evaluation.num_items or None]
    return Task(benchmark, path, evaluation.profile, items, num_samples, sampling)


def opened(item: types.Item) -> types.Item:
    """Returns a copy of an item with separate images, which any thread may decode.

    PIL keeps decoded pixels, so decoding the images of all items of a task would fill the memory.
    """
    images = [Image.open(io.BytesIO(image.fp.getvalue())) for image in item.images]
    return dataclasses.replace(item, images=tuple(images))


def prompt_builder(
    data: Data | settings.Data, tokenizer: tokens.Tokenizer
) -> prompts.PromptBuilder:
    """Returns the function that makes prompts, without an instruction: the benchmark's prompt has one."""
    return prompts.PromptBuilder(
        tokenizer,
        instruction="",
        template=data.template,
        min_pixels=data.min_pixels,
        max_pixels=data.max_pixels,
        max_length=data.max_prompt_length,
    )


def built(
    build_prompt: Callable[[types.Item], types.Prompt], item: types.Item, label: str
) -> types.Prompt:
    """Returns the prompt of an item with the complete prompt as question; raises ValueError."""
    try:
        return build_prompt(opened(item))
    except prompts.RejectedItem as error:
        raise ValueError(
            f"{label}: {item.uid} makes no prompt ({error.reason}: {error.detail}), and no item may "
            "be left out: raise data.max_prompt_length"
        ) from error


# ------------------------------------------------------------------------------ records
def record(evaluation: Evaluation, task: Task, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of one task, as JSON; `policy` is a policy's own record."""
    data = evaluation.data
    return {
        "benchmark": task.name,
        "profile": task.profile,
        "policy": policy["is"],
        "data": {"sha256": sha256(task.path), "num_items": len(task.items)},
        "prompt": {
            "sha256": _digest([[item.uid, item.question] for item in task.asked]),
            "first": task.asked[0].question,
            "template": dict(data.template),
        },
        "sampling": {
            "num_samples": task.num_samples,
            "seed": evaluation.seed,
            **dataclasses.asdict(task.sampling),
        },
        "images": {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels},
        "scoring": _scoring(evaluation, task),
        "files": {"data": task.path, **policy["files"]},
        "versions": _versions(),
    }


def _scoring(evaluation: Evaluation, task: Task) -> dict[str, Any]:
    """Returns the scorer, including the prompts of a judge."""
    judge, item = task.benchmark.judge, task.items[0]
    if judge is None:
        return {"by": OWN_RULES}
    if evaluation.judge.rules:
        return {"by": "rules alone, ours where the benchmark has a judge"}
    prompts = (judge.extraction_prompt, judge.judge_prompt)
    return {
        "by": "judge",
        "model": evaluation.judge.model,
        "fields": evaluation.judge.request_fields(),
        "temperatures": list(decisions.TEMPERATURES),
        "max_tokens": judge.max_tokens,
        "prompts_sha256": _digest([p and p("ANSWER", item) for p in prompts]),
    }


def _versions() -> dict[str, str]:
    """Returns the versions of what makes and scores answers."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def sha256(path: str | os.PathLike) -> str:
    """Returns the hash of a file, or of the names and contents of all files under a directory.

    Hidden directories are ignored: downloads keep timestamps there, in .cache.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
        shown = [file for file in files if not any(x.startswith(".") for x in file.parts[:-1])]
        return _digest([[file.as_posix(), sha256(path / file)] for file in shown])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(value: Any) -> str:
    """Returns the hash of JSON data."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
