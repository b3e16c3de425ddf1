"""The record of an evaluation: everything that another run must share to be compared with it."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from experiments.evaluations import checkpoint, server
from experiments.evaluations.plan import Plan
from vade_jax.evals.benchmarks import base

PACKAGES = ("vade_jax", "jax", "numpy", "pillow", "tokenizers", "vllm")
# What may be another when a directory is gone on with: answers stay what they are.
MAY_CHANGE = ("scoring", "files", "versions")


def record(c: ConfigDict, plan: Plan, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of one benchmark, as JSON.

    Args:
      c: the config.
      plan: the benchmark.
      policy: of `policy`, made once as it reads all weights.
    """
    prompts = [[item.uid, item.question] for item in plan.asked]
    return {
        "benchmark": plan.name,
        "profile": plan.profile,
        "policy": policy["is"],
        "data": {"sha256": sha256(plan.path), "num_items": len(plan.items)},
        "prompt": {
            "sha256": digest(prompts),
            "first": plan.asked[0].question,
            "instruction": c.data.instruction,
        },
        "sampling": _sampling(c, plan),
        "images": {name: c.data[name] for name in ("min_pixels", "max_pixels")},
        "scoring": scoring(c, plan),
        "files": {"data": plan.path, **policy["files"]},
        "versions": versions(),
    }


def policy(c: ConfigDict, template: str) -> dict[str, Any]:
    """Returns what the policy "is", and "files" that name it without changing it.

    Args:
      c: the config.
      template: how a question stands in the prompt, for a checkpoint.
    """
    if c.answers:
        given = {"answers": c.answers, "answers_sha256": sha256(c.answers)}
        return {"is": {"from": "answers"}, "files": given}
    if c.server.url:
        asked = {"model": c.server.model, "fields": server.fields(c.server, "server")}
        return {"is": {"from": "server", **asked}, "files": {"server": c.server.url}}
    directory = checkpoint.directory_of(c.model.checkpoint)
    made = {"engine": c.engine.name, "dtype": c.model.dtype, "template": template}
    found = {"from": "checkpoint", "sha256": sha256(directory), **made}
    return {"is": found, "files": {"checkpoint": directory}}


def _sampling(c: ConfigDict, plan: Plan) -> dict[str, Any]:
    if c.answers:
        return {"num_samples": plan.num_samples, "others": "unknown, of saved answers"}
    drawn = plan.sampling
    made = {
        "num_samples": plan.num_samples,
        "temperature": drawn.temperature,
        "top_p": drawn.top_p,
        "max_tokens": drawn.max_tokens,
        "seed": c.seed,
    }
    if c.server.url:
        return made
    more = {"top_k": drawn.top_k, "repetition_penalty": 1.0, "chunk": c.chunk}
    return made | more


def scoring(c: ConfigDict, plan: Plan) -> dict[str, Any]:
    """Returns who scores, down to the prompts of a judge."""
    judge = plan.benchmark.judge
    if judge is None:
        return {"by": "the benchmark's rules"}
    if c.judge.rules:
        return {"by": "rules alone, ours where the benchmark has a judge"}
    item = plan.items[0]
    prompts = (judge.extraction_prompt, judge.judge_prompt)
    return {
        "by": "judge",
        "model": c.judge.model,
        "fields": server.fields(c.judge, "judge"),
        "temperatures": list(base.TEMPERATURES),
        "max_tokens": judge.max_tokens,
        "prompts_sha256": digest([p and p("ANSWER", item) for p in prompts]),
    }


def versions() -> dict[str, str]:
    """Returns the versions of what makes and scores answers."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def sha256(path: str | os.PathLike) -> str:
    """Returns the hash of a file, or of the names and contents of a directory's files."""
    path = pathlib.Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        return digest([[file.name, sha256(file)] for file in files])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Returns the hash of JSON data."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
