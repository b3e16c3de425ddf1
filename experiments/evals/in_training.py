"""Benchmarks as validation of a run: their prompts and rules, without a judge model.

The two functions implement `run.Hooks.benchmarks`.
"""

import dataclasses
import os

from experiments.evals import benchmarks, decisions, tasks
from vade_jax import settings
from vade_jax.data import tokens
from vade_jax.rewards import functions
from vade_jax.rewards.functions import Judgement
from vade_jax.rollout.engine import Sampling
from vade_jax.trainer import validation
from vade_jax.trainer.scoring import Scorer
from vade_jax.types import Item, Prompt


def paths(section: settings.Eval) -> dict[str, str]:
    """Returns the file of each benchmark in `eval.benchmarks`, "mathvista:FILE,chartqa:FILE".

    Raises:
        ValueError: a benchmark is unknown or named twice, or a file is missing.
    """
    files = {}
    for part in filter(None, section.benchmarks.split(",")):
        name, _, path = part.partition(":")
        label, path = f"eval.benchmarks: {part!r}", os.path.expanduser(path)
        if name not in benchmarks.BENCHMARKS:
            known = ", ".join(benchmarks.BENCHMARKS)
            raise ValueError(f"{label}: write BENCHMARK:FILE; benchmarks are {known}")
        if name in files:
            raise ValueError(f"{label}: {name} is there twice: remove one")
        if not os.path.exists(path):
            raise ValueError(f"{label}: {path!r} does not exist")
        files[name] = path
    return files


def make(
    section: settings.Eval, data: settings.Data, tokenizer: tokens.Tokenizer
) -> list[validation.Validate]:
    """Returns a validation by its prompts and rules for each benchmark of `eval.benchmarks`.

    It uses the first `eval.benchmark_items` of each, 0 for all.

    Raises:
        ValueError: a file is not of its benchmark, or an item makes no prompt.
    """
    build_prompt = tasks.prompt_builder(data, tokenizer)

    def of_benchmark(name: str, path: str) -> validation.Validate:
        benchmark = benchmarks.BENCHMARKS[name]
        decide = decisions.by_rules(benchmark, section.profile)

        def build(item: Item) -> Prompt:
            question = benchmark.prompt(item, section.profile)
            asked = dataclasses.replace(item, question=question)
            return tasks.built(build_prompt, asked, "eval.benchmarks")

        def judge(item: Item, texts: functions.Texts, _: functions.Tokens) -> list[Judgement]:
            decided = [decide(item, text) for text in texts]
            return [Judgement(float(x.correct), x.correct, x.extracted) for x in decided]

        return validation.of_items(
            name,
            benchmark.read(path)[: section.benchmark_items or None],
            build,
            Scorer(tokenizer.decode, judge),
            num_samples=section.num_samples,
            sampling=Sampling(temperature=section.temperature, max_tokens=section.max_tokens),
        )

    return [of_benchmark(name, path) for name, path in paths(section).items()]
