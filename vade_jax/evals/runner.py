"""Validation: the mean accuracy of k sampled answers."""

from collections.abc import Callable, Sequence

import jax
import numpy as np

from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.trainer.scoring import Ahead, Judge
from vade_jax.types import Item, Metrics, Prompt


def make(
    name: str,
    items: Sequence[Item],
    build_prompt: Callable[[Item], Prompt],
    judge: Judge,
    *,
    num_samples: int,
    sampling: Sampling,
) -> Callable[[Engine, jax.Array, int], Metrics]:
    """Returns `validate(engine, key, version)`: `val/<name>/acc/mean@k`, and `val-aux/` a family.

    Items and prompts are made once. Metadata "family", where there is one, splits the score.
    """
    items = [items[i] for i in range(len(items))]
    prompts = [build_prompt(item) for item in items]
    family_M = np.array([item.metadata.get("family", "") for item in items])

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
