"""Validation of a training run on benchmarks' files: their prompts and rules, no judge."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence

from ml_collections import ConfigDict

from vade_jax.data import prompts, tokens
from vade_jax.evals import benchmarks, rules, runner
from vade_jax.evals.benchmarks import base
from vade_jax.rollout.engine import Sampling
from vade_jax.types import Item, Prompt


def paths(c: ConfigDict) -> dict[str, str]:
    """Returns the file of each benchmark in `eval.benchmarks`, "mathvista:FILE,chartqa:FILE".

    Raises:
      ValueError: a benchmark is unknown, named twice or cannot do without a judge, a file is
        missing, or the profile is unknown.
    """
    base.check_profile(c.eval.profile)
    found = {}
    for part in filter(None, c.eval.benchmarks.split(",")):
        name, _, path = part.partition(":")
        label = f"eval.benchmarks: {part!r}"
        if name not in benchmarks.BENCHMARKS:
            known = ", ".join(benchmarks.BENCHMARKS)
            raise ValueError(f"{label}: write BENCHMARK:FILE; benchmarks are {known}")
        if name in found:
            raise ValueError(f"{label}: {name} is there twice: remove one")
        if not os.path.exists(path):
            raise ValueError(f"{label}: {path!r} does not exist")
        rules.by_rules(benchmarks.BENCHMARKS[name], c.eval.profile)
        found[name] = path
    return found


def read(c: ConfigDict) -> dict[str, list[Item]]:
    """Returns the first `eval.benchmark_items` of each benchmark, 0 for all.

    Raises:
      ValueError: a file is not of its benchmark.
    """
    size = c.eval.benchmark_items or None
    found = paths(c).items()
    return {name: benchmarks.BENCHMARKS[name].read(path)[:size] for name, path in found}


def make(
    c: ConfigDict, tokenizer: tokens.Tokenizer, items: Mapping[str, Sequence[Item]]
) -> list[runner.Validate]:
    """Returns a validation for each benchmark: `val/<benchmark>/acc/mean@k`.

    Raises:
      ValueError: an item makes no prompt.
    """
    build = prompts.PromptBuilder(
        tokenizer,
        instruction="",  # the benchmark's prompt has one
        min_pixels=c.data.min_pixels,
        max_pixels=c.data.max_pixels,
        max_length=c.data.max_prompt_length,
    )
    return [
        runner.of_benchmark(
            benchmarks.BENCHMARKS[name],
            c.eval.profile,
            found,
            functools.partial(_build, build),
            tokenizer.decode,
            num_samples=c.eval.num_samples,
            sampling=Sampling(
                temperature=c.eval.temperature, max_tokens=c.eval.max_tokens
            ),
        )
        for name, found in items.items()
    ]


def _build(build: Callable[[Item], Prompt], item: Item) -> Prompt:
    try:
        return build(item)
    except prompts.RejectedItem as error:
        raise ValueError(
            f"eval.benchmarks: {item.uid} makes no prompt ({error.reason}: {error.detail}): "
            "raise data.max_prompt_length, or lower eval.benchmark_items"
        ) from error
