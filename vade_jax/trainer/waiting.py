"""A batch that waits to be learned from, as arrays and JSON for a checkpoint.

The weights that made it are gone, so it is kept whole: what the selector believed, tokens, log-probs, scores
and feedback. Prompts with their images are large and are built again.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from vade_jax.trainer.choosing import Pool
from vade_jax.trainer.collect import StepData
from vade_jax.trainer.scoring import Scored
from vade_jax.types import Feedback, Rollouts

LISTS = {"keep_M": bool, "round_M": int, "learned_M": int}  # the last may be empty: no array then


def pack(data: StepData) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a tree of arrays, and what is JSON."""
    feedback = {name: x for name, x in vars(data.feedback).items() if x is not None}
    belief = traverse_util.unflatten_dict(dict(data.belief), sep="/")
    tree = {"rollouts": dict(vars(data.rollouts)), "feedback": feedback, "belief": belief}
    plain = {name: np.asarray(vars(data)[name]).tolist() for name in LISTS}
    plain |= {"seconds": dict(data.seconds), "scored": [*map(dataclasses.asdict, data.scored)]}
    return jax.tree.map(np.asarray, tree), plain


def unpack(tree: Mapping[str, Any], plain: Mapping[str, Any], pool: Pool) -> StepData:
    """Returns the batch, bit for bit; its prompts are built again."""
    chosen = pool.take(tree["feedback"]["index_M"], 0)
    return StepData(
        items=chosen.items,
        prompts=chosen.prompts,
        rollouts=Rollouts(**tree["rollouts"]),
        scored=[Scored(**one) for one in plain["scored"]],
        feedback=Feedback(**tree["feedback"]),
        belief=traverse_util.flatten_dict(tree.get("belief", {}), sep="/"),
        seconds=plain["seconds"],
        **{name: np.array(plain[name], kind) for name, kind in LISTS.items()},
    )
