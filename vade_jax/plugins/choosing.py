"""What the plugins share: making a selector for rows of another trainer, and counting for it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from vade_jax import samplers
from vade_jax.selector import Selector


def make_selector(
    ids: Sequence[Any],
    name: str,
    *,
    seed: int,
    num_prompts: int,
    num_rollouts: int,
    options: Mapping[str, Any] | None = None,
) -> Selector:
    """Returns the selector of a trainer that rolls out `num_prompts` x `num_rollouts` answers.

    Args:
        ids: the stable id of every row.
        name: of the selector, a key of `samplers.SAMPLERS`.
        seed: of the draws, unless `options` has one.
        num_prompts: different rows of a step.
        num_rollouts: answers to each.
        options: what `Selector` takes besides, such as `decay_rest` or `arrays`.

    Raises:
        ValueError: an unfit or unknown selector, an unknown option, ids that are not unique, or fewer
            rows than a step needs.
    """
    given = {"seed": seed, "num_rollouts": num_rollouts, **(options or {})}
    if spec := (samplers.find(name) if ":" in name else samplers.SAMPLERS.get(name)):
        # What another trainer cannot give: it asks us for rows and for nothing else.
        selector = spec(**{x: given[x] for x in given if x in spec.option_names})
        if selector.needs.variants or selector.needs.uneven:
            variants = "makes variants of a row, which are other rows"
            why = (
                variants
                if selector.needs.variants
                else "asks for more answers to one row than to another"
            )
            raise ValueError(f"selector={name!r} {why}: choose another one here")
    if num_prompts > len(ids):
        raise ValueError(
            f"a step rolls out {num_prompts} different rows, the data set has {len(ids)}:"
            " use a smaller batch"
        )
    return Selector(ids, name, **given)


def observe(selector: Selector, ids_N: Sequence[Any], right_N: np.ndarray) -> float:
    """Tells the selector which answers were right, and returns the share of mixed groups.

    `ids_N` says whose answer each is; `right_N` is 1 for right, 0 for wrong and NaN without a
    verdict: such an answer counts as not given.
    """
    ids = list(dict.fromkeys(ids_N))
    place = {name: m for m, name in enumerate(ids)}
    group_N = np.array([place[name] for name in ids_N])
    judged_N = ~np.isnan(right_N)
    trials_M = np.bincount(group_N, judged_N, len(ids)).astype(int)
    right_M = np.bincount(group_N, np.where(judged_N, right_N, 0), len(ids))
    selector.observe(ids, right_M, trials_M)
    return float(np.mean((right_M > 0) & (right_M < trials_M)))


def above(score: np.ndarray, threshold: float) -> np.ndarray:
    """Returns 1 where the score is above, 0 where it is not, and NaN where it is NaN."""
    return np.where(np.isnan(score), np.nan, score > threshold)


def misfit(package: str, tested: str, problem: str) -> TypeError:
    """Returns the error of a version that lacks what a plugin needs; `tested` ones work."""
    return TypeError(
        f"{package} {metadata.version(package)} does not fit the selector: {problem}."
        f" Use {package} {tested}"
    )


def check_hooks(
    package: str, tested: str, hooks: Mapping[str, tuple[Callable | None, str]]
) -> None:
    """Raises `misfit` unless every hook exists with the parameters the plugin was written for.

    `hooks` has, for each name, the function found and its parameters in words: "self, inputs".
    """
    for name, (function, wanted) in hooks.items():
        found = "none"
        if function is not None:
            found = f"{name}({', '.join(inspect.signature(function).parameters)})"
        if found != f"{name}({wanted})":
            raise misfit(package, tested, f"it needs {name}({wanted}), found {found}")
