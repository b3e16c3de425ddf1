"""Validation while training: the mean accuracy of k sampled answers to items that are not trained on.

It also says what was forgotten. A question is known once all of its k answers were right, and forgotten
while fewer than half are: in between, chance decides what k answers say.

A run validates on its own items, scored as in training, and may add benchmarks: their prompts and
rules, without a judge model.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from vade_jax import fields, settings
from vade_jax.data import prompts, tokens
from vade_jax.evals import benchmarks, decisions, tasks
from vade_jax.evals.benchmarks import base
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.trainer.loop import Validate
from vade_jax.trainer.scoring import Scored, Scorer, ScoringThread
from vade_jax.types import Item, Metrics, Prompt

Known = frozenset[str]  # questions that were once answered right every time


def of_items(
    name: str,
    items: Sequence[Item],
    build_prompt: Callable[[Item], Prompt],
    score: Scorer,
    *,
    num_samples: int,
    sampling: Sampling,
) -> Validate:
    """Returns a validation with the metric `val/<name>/acc/mean@k`, k answers to each item.

    Metadata "family" or "subset", where there is one, adds `val-aux/<name>/<family>/acc/mean@k`. Where
    questions are known, `val-aux/<name>/forgotten` is the share of them that is forgotten, in all and by
    family.
    Items are read once, here; their images are not kept. Of scores only `correct` is looked at. An
    answer without a verdict is wrong; `val-aux/<name>/unknown` is the share of them, where there are any.
    """
    built, kept = [], []
    # A source decodes an item's images each time it is read: one pass.
    for i in range(len(items)):
        item = items[i]
        built.append(build_prompt(item))
        kept.append(item.without_images())
    names = [x.metadata.get("family") or x.metadata.get("subset", "") for x in kept]
    family_M = np.array([str(family) for family in names])

    uid_M = [f"{name}/{item.uid}" for item in kept]

    def validate(
        engine: Engine, key: jax.Array, version: int, known: Known
    ) -> tuple[Metrics, Known]:
        num_rollouts_M = np.full(len(kept), num_samples)
        with ScoringThread(score, kept) as scoring_thread:
            rollouts = engine.generate(
                built, num_rollouts_M, key, version, sampling, on_group=scoring_thread
            )
            scores = scoring_thread.scores(rollouts)
        correct_N = scores.correct_N
        rate_M = np.bincount(rollouts.group_N, correct_N, len(kept)) / num_samples
        known_M = np.array([uid in known for uid in uid_M])
        metrics = {f"val/{name}/acc/mean@{num_samples}": float(np.mean(correct_N))}
        if not scores.known_N.all():
            metrics[f"val-aux/{name}/unknown"] = float(np.mean(~scores.known_N))
        if known_M.any():
            metrics[f"val-aux/{name}/forgotten"] = float(np.mean(rate_M[known_M] < 0.5))
        for family in filter(None, np.unique(family_M)):
            inside_M = family_M == family
            aux = f"val-aux/{name}/{family}"
            accuracy = np.mean(correct_N[inside_M[rollouts.group_N]])
            metrics[f"{aux}/acc/mean@{num_samples}"] = float(accuracy)
            if (inside_M & known_M).any():
                metrics[f"{aux}/forgotten"] = float(np.mean(rate_M[inside_M & known_M] < 0.5))
        return metrics, known.union(np.array(uid_M)[rate_M == 1].tolist())

    return validate


def together(validations: Sequence[Validate]) -> Validate:
    """Returns a validation that makes several others, one after another, and joins their metrics."""

    def validate(
        engine: Engine, key: jax.Array, version: int, known: Known
    ) -> tuple[Metrics, Known]:
        metrics = {}
        for each in validations:
            found, known = each(engine, key, version, known)
            metrics |= found
        return metrics, known

    return validate


# ------------------------------------------------------------------------------ a run's benchmarks
def paths(section: settings.Eval) -> dict[str, str]:
    """Returns the file of each benchmark in `eval.benchmarks`, "mathvista:FILE,chartqa:FILE".

    Raises:
        ValueError: a benchmark is unknown, named twice or needs a judge model, a file is missing,
            or the profile is unknown.
    """
    base.check_profile(section.profile)
    found = {}
    for part in filter(None, section.benchmarks.split(",")):
        name, _, path = part.partition(":")
        label = f"eval.benchmarks: {part!r}"
        path = fields.at_home("eval.benchmarks", path)
        if name not in benchmarks.BENCHMARKS:
            known = ", ".join(benchmarks.BENCHMARKS)
            raise ValueError(f"{label}: write BENCHMARK:FILE; benchmarks are {known}")
        if name in found:
            raise ValueError(f"{label}: {name} is there twice: remove one")
        if not os.path.exists(path):
            raise ValueError(f"{label}: {path!r} does not exist")
        decisions.by_rules(benchmarks.BENCHMARKS[name], section.profile)
        found[name] = path
    return found


def read(section: settings.Eval) -> dict[str, list[Item]]:
    """Returns the first `eval.benchmark_items` of each benchmark, 0 for all.

    Raises:
        ValueError: a file is not of its benchmark.
    """
    size = section.benchmark_items or None
    return {
        name: benchmarks.BENCHMARKS[name].read(path)[:size] for name, path in paths(section).items()
    }


def make(
    run: settings.Run, tokenizer: tokens.Tokenizer, items: Mapping[str, Sequence[Item]]
) -> list[Validate]:
    """Returns a validation by its prompts and rules for each benchmark that `read` has returned.

    The images of `items` are not decoded: see `tasks.opened`.

    Raises:
        ValueError: an item makes no prompt.
    """
    build_prompt = prompts.PromptBuilder(
        tokenizer,
        instruction="",  # the benchmark's prompt has one
        template=run.data.template,
        min_pixels=run.data.min_pixels,
        max_pixels=run.data.max_pixels,
        max_length=run.data.max_prompt_length,
    )

    def of_benchmark(benchmark: base.Benchmark, found: Sequence[Item]) -> Validate:
        decide = decisions.by_rules(benchmark, run.eval.profile)

        def build(item: Item) -> Prompt:
            question = benchmark.prompt(item, run.eval.profile)
            try:
                return build_prompt(dataclasses.replace(tasks.opened(item), question=question))
            except prompts.RejectedItem as error:
                raise ValueError(
                    f"eval.benchmarks: {item.uid} makes no prompt ({error.reason}: {error.detail}): "
                    "raise data.max_prompt_length, or lower eval.benchmark_items"
                ) from error

        def score(item: Item, answers: Sequence[np.ndarray]) -> list[Scored]:
            texts = [tokenizer.decode(tokens) for tokens in answers]
            decided = [decide(item, text) for text in texts]
            return [
                Scored(text, decision.extracted, float(decision.correct), decision.correct)
                for text, decision in zip(texts, decided, strict=True)
            ]

        return of_items(
            benchmark.name,
            found,
            build,
            Scorer(score),
            num_samples=run.eval.num_samples,
            sampling=Sampling(temperature=run.eval.temperature, max_tokens=run.eval.max_tokens),
        )

    return [of_benchmark(benchmarks.BENCHMARKS[name], found) for name, found in items.items()]
