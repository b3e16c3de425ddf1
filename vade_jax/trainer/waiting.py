"""A batch that waits to be learned from, as arrays and JSON for a checkpoint.

The weights that made it are gone, so it is kept whole: what the selector believed, tokens, log-probs, scores
and feedback. Prompts with their images are large and are built again.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import traverse_util

from vade_jax.trainer.choosing import Pool
from vade_jax.trainer.collect import StepData
from vade_jax.trainer.scoring import Scored
from vade_jax.types import Feedback, Rollouts

ARRAYS = ("rollouts", "feedback", "belief")
LISTS = {"keep_M": bool, "round_M": int, "learned_M": int}  # the last may be empty: no array then


def pack(data: StepData) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the arrays by path, and what is JSON."""
    trees = {"rollouts": vars(data.rollouts), "feedback": vars(data.feedback)}
    trees = {name: dict(x) for name, x in (trees | {"belief": data.belief}).items()}
    named = traverse_util.flatten_dict(trees, sep="/")
    plain = {name: np.asarray(vars(data)[name]).tolist() for name in LISTS}
    plain |= {"seconds": dict(data.seconds), "scored": [*map(dataclasses.asdict, data.scored)]}
    return {path: np.asarray(x) for path, x in named.items() if x is not None}, plain


def unpack(arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], pool: Pool) -> StepData:
    """Returns the batch, bit for bit; its prompts are built again."""
    fields = {name: {} for name in ARRAYS}
    for path, x in arrays.items():
        name, _, field = path.partition("/")
        fields[name][field] = x
    feedback = Feedback(**traverse_util.unflatten_dict(fields["feedback"], sep="/"))
    chosen = pool.take(feedback.index_M, 0)
    return StepData(
        items=chosen.items,
        prompts=chosen.prompts,
        rollouts=Rollouts(**fields["rollouts"]),
        scored=[Scored(**one) for one in plain["scored"]],
        feedback=feedback,
        belief=fields["belief"],
        seconds=plain["seconds"],
        **{name: np.array(plain[name], kind) for name, kind in LISTS.items()},
    )
