"""Batches that wait to be learned from, as arrays and JSON for a checkpoint.

The weights that made them are gone, so they are kept whole: what the selector proposed and believed, tokens,
log-probs, scores and feedback of every round. Prompts with their images are large and are built again.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from flax import traverse_util

from vade_jax.trainer.choosing import ChoosePrompts
from vade_jax.trainer.collect import Round, StepData
from vade_jax.trainer.progress import Made
from vade_jax.trainer.scoring import Scores
from vade_jax.trainer.timing import Clock
from vade_jax.types import Feedback, Proposal, Rollouts

T = TypeVar("T")
SLASH = "|"  # for the one in a belief's name, such as informed/strength: in a path it would begin a level
TEXTS = ("text_N", "extracted_N", "reason_N")  # fields of `Scores` that are lists


class Packed(NamedTuple):
    """Batches for a checkpoint: arrays by path, and what is no array."""

    arrays: dict[str, np.ndarray]
    plain: list[
        dict[str, Any]
    ]  # of each batch: step, seconds, groups learned from, texts of each round


def pack(queue: Sequence[Made]) -> Packed:
    """Returns the batches as `unpack` takes them."""
    arrays: dict[str, np.ndarray] = {}
    plain = []
    for made in queue:
        texts = []
        for number, one in enumerate(made.data.rounds):
            scores = _fields(one.scores)
            texts.append({name: list(scores.pop(name)) for name in TEXTS})
            tree = {
                "proposal": _fields(one.chosen.proposal),
                "rollouts": _fields(one.rollouts),
                "scores": scores,
                "feedback": _fields(one.feedback),
                "keep_M": one.keep_M,
                "belief": {name.replace("/", SLASH): x for name, x in one.belief.items()},
            }
            for path, leaf in traverse_util.flatten_dict(tree, sep="/").items():
                if leaf is not None:
                    arrays[f"{made.step}/{number}/{path}"] = np.asarray(leaf)
        of_step = {"step": made.step, "seconds": made.clock.seconds, "texts": texts}
        plain.append(
            of_step | {"learned": made.data.learned_M.tolist()}
        )  # may be none: no array then
    return Packed(arrays, plain)


def unpack(packed: Packed, choose: ChoosePrompts) -> tuple[Made, ...]:
    """Returns the batches, bit for bit; their prompts are built by `choose` again."""
    tree: Any = traverse_util.unflatten_dict(packed.arrays, sep="/")
    queue = []
    for plain in packed.plain:
        saved = tree[str(plain["step"])]
        rounds = [_round(saved[str(i)], texts, choose) for i, texts in enumerate(plain["texts"])]
        data = StepData.of(rounds, np.array(plain["learned"], np.int64))
        queue.append(Made(plain["step"], data, Clock(plain["seconds"])))
    return tuple(queue)


def _round(tree: Mapping[str, Any], texts: Mapping[str, Any], choose: ChoosePrompts) -> Round:
    proposal = _object(Proposal, tree["proposal"])
    return Round(
        chosen=choose.again(proposal),
        rollouts=_object(Rollouts, tree["rollouts"]),
        scores=Scores(**tree["scores"], **texts),
        feedback=_object(Feedback, tree["feedback"]),
        keep_M=tree["keep_M"],
        belief={name.replace(SLASH, "/"): x for name, x in tree.get("belief", {}).items()},
    )


def _fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass, its arrays on the host; mappings become nested dicts."""
    found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return jax.device_get(found)


def _object(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Returns a dataclass with these fields; those that are missing are None."""
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(**{name: tree.get(name) for name in names})
