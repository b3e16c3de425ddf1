"""Validation during training: the mean accuracy of k sampled answers to held-out items.

It also measures forgetting. A question counts as known once all its k answers were right, and as forgotten
while fewer than half are right. In between, k answers are too few to decide.
"""

from collections.abc import Callable, Sequence

import jax
import numpy as np

from vade_jax.data import loading
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.trainer import scoring
from vade_jax.trainer.choosing import Pool
from vade_jax.trainer.hardware import Clock
from vade_jax.trainer.progress import Known
from vade_jax.trainer.scoring import Scorer
from vade_jax.types import Item, Metrics, Prompt

# (engine, key, version of the weights, questions known so far) -> metrics, questions known now
Validate = Callable[[Engine, jax.Array, int, Known], tuple[Metrics, Known]]


def of_items(
    name: str,
    items: Sequence[Item],
    build_prompt: Callable[[Item], Prompt],
    score: Scorer,
    *,
    num_samples: int,
    sampling: Sampling,
    map: loading.Map = map,
) -> Validate:
    """Returns a validation with the metric `val/<name>/acc/mean@k`, k answers to each item.

    Items with metadata "family" or "subset" add `val-aux/<name>/<family>/acc/mean@k`. Once questions are
    known, `val-aux/<name>/forgotten` is the forgotten share of them, in total and by family.

    Items are read once, here, by `map`. Their prompts are kept with their images, cut to size: 3 bytes a
    pixel, so 2,500 pictures of a million pixels take 7.5 GB of each process.

    Of the scores only `correct` is used. An answer without a verdict counts as wrong;
    `val-aux/<name>/unknown` is the share of such answers, if there are any.
    """
    asked = Pool(items, build_prompt, map).take(np.arange(len(items)), num_samples)
    uid_M = np.array([f"{name}/{item.uid}" for item in asked.items])
    names = [str(x.metadata.get("family") or x.metadata.get("subset", "")) for x in asked.items]
    # Suffixes of the metrics' names; "" is for all items.
    families = {"": np.ones(len(items), bool)}
    families |= {f"{x}/": np.array(names) == x for x in sorted({*names} - {""})}

    def validate(
        engine: Engine, key: jax.Array, version: int, known: Known
    ) -> tuple[Metrics, Known]:
        rollouts, scored = scoring.generate(engine, score, asked, key, version, Clock(), sampling)
        known_N = np.array([one.is_known for one in scored])
        correct_N = np.array([one.correct if one.is_known else 0 for one in scored], np.float32)
        rate_M = np.bincount(rollouts.group_N, correct_N, len(items)) / num_samples
        was_known_M = np.array([uid in known for uid in uid_M])
        metrics = {}
        if not known_N.all():
            metrics[f"val-aux/{name}/unknown"] = float(np.mean(~known_N))
        for family, inside_M in families.items():
            accuracy = float(np.mean(correct_N[inside_M[rollouts.group_N]]))
            area = "val-aux" if family else "val"
            metrics[f"{area}/{name}/{family}acc/mean@{num_samples}"] = accuracy
            if (inside_M & was_known_M).any():
                forgotten = float(np.mean(rate_M[inside_M & was_known_M] < 0.5))
                metrics[f"val-aux/{name}/{family}forgotten"] = forgotten
        return metrics, known.union(uid_M[rate_M == 1].tolist())

    return validate
