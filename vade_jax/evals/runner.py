"""Validation: the mean accuracy of k sampled answers, on items of training's kind or a benchmark's."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from vade_jax.evals import rules
from vade_jax.evals.benchmarks import base
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.trainer.scoring import Ahead, Judge, Judged
from vade_jax.types import Item, Metrics, Prompt

Validate = Callable[[Engine, jax.Array, int], Metrics]


def make(
    name: str,
    items: Sequence[Item],
    build_prompt: Callable[[Item], Prompt],
    judge: Judge,
    *,
    num_samples: int,
    sampling: Sampling,
) -> Validate:
    """Returns `validate(engine, key, version)`: `val/<name>/acc/mean@k`, and `val-aux/` a family.

    Items and prompts are made once. Metadata "family" or "subset", where there is one, splits the
    score.
    """
    prompts, kept = [], []
    for i in range(len(items)):
        item = items[i]
        prompts.append(build_prompt(item))
        kept.append(item.without_images())
    items = kept
    family_M = np.array([_family(item.metadata) for item in items])

    def validate(engine: Engine, key: jax.Array, version: int) -> Metrics:
        num_rollouts_M = np.full(len(items), num_samples)
        ahead = Ahead(judge, items)
        rollouts = engine.generate(
            prompts, num_rollouts_M, key, version, sampling, on_group=ahead
        )
        correct_N = ahead.scores(rollouts).correct_N
        metrics = {f"val/{name}/acc/mean@{num_samples}": float(np.mean(correct_N))}
        for family in filter(None, np.unique(family_M)):
            inside_N = family_M[rollouts.group_N] == family
            metrics[f"val-aux/{name}/{family}/acc/mean@{num_samples}"] = float(
                np.mean(correct_N[inside_N])
            )
        return metrics

    return validate


def _family(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("family") or metadata.get("subset", ""))


def of_benchmark(
    benchmark: base.Benchmark,
    profile: str,
    items: Sequence[Item],
    build_prompt: Callable[[Item], Prompt],
    decode: Callable[[Sequence[int]], str],
    *,
    num_samples: int,
    sampling: Sampling,
    decide: rules.Decide | None = None,
) -> Validate:
    """Returns `make`'s validation with a benchmark's prompts and scores: `val/<its name>/...`.

    Args:
      benchmark: in `BENCHMARKS`.
      profile: "paper" or "cot".
      items: as `benchmark.read` returns them.
      build_prompt: item whose question is the benchmark's prompt -> prompt.
      decode: tokens to text, special tokens left out.
      num_samples: answers to each item.
      sampling: how they are drawn.
      decide: (item, text) -> verdict; by default the rules alone, see `rules.by_rules`.

    Raises:
      ValueError: the benchmark cannot do without a judge.
    """
    decide = decide or rules.by_rules(benchmark, profile)

    def build(item: Item) -> Prompt:
        question = benchmark.prompt(item, profile)
        return build_prompt(dataclasses.replace(item, question=question))

    def judge(item: Item, answers: Sequence[np.ndarray]) -> list[Judged]:
        texts = [decode(tokens) for tokens in answers]
        verdicts = [decide(item, text) for text in texts]
        return [
            Judged(text, verdict.extracted, float(verdict.correct), verdict.correct)
            for text, verdict in zip(texts, verdicts, strict=True)
        ]

    return make(
        benchmark.name,
        items,
        build,
        judge,
        num_samples=num_samples,
        sampling=sampling,
    )


def together(validations: Sequence[Validate]) -> Validate:
    """Returns the validation that makes several, one after another, and joins their metrics."""

    def validate(engine: Engine, key: jax.Array, version: int) -> Metrics:
        metrics = {}
        for each in validations:
            metrics |= each(engine, key, version)
        return metrics

    return validate
