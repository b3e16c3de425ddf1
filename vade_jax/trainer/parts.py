"""What a run consists of, and what a step leaves behind. No method, model or engine by name."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from vade_jax import samplers
from vade_jax.data import loading
from vade_jax.rollout.engine import Engine
from vade_jax.trainer import feedback as feedbacks
from vade_jax.trainer.scoring import Judge, Scores
from vade_jax.types import (
    Feedback,
    Item,
    Metrics,
    Prompt,
    Proposal,
    Rollouts,
    TrainState,
)

Learn = Callable[
    [TrainState, Sequence[Prompt], Rollouts, np.ndarray], tuple[TrainState, Metrics]
]
Validate = Callable[[Engine, jax.Array, int], Metrics]
# Makes a variant of an item: from its difficulty and the wanted one to the variant and its own.
Vary = Callable[[Item, float, float, np.random.Generator], tuple[Item, float]]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Everything that a checkpoint holds and a step changes."""

    state: TrainState
    selector: Any
    step: int = 0  # RL steps done; also the version of the weights
    rollouts_total: int = 0
    tokens_total: int = 0
    seen: frozenset[int] = frozenset()  # items chosen at least once
    skipped_updates: int = 0  # steps that had nothing to learn from


@dataclasses.dataclass(frozen=True)
class Round:
    """One round of a step: what was rolled out, and what came of it."""

    items: Sequence[Item]
    prompts: Sequence[Prompt]
    proposal: Proposal
    rollouts: Rollouts
    scores: Scores
    feedback: Feedback
    keep_M: np.ndarray  # bool, the groups that the selector would train on
    selector: Any  # the state that proposed


@dataclasses.dataclass(frozen=True)
class StepData:
    """What a step rolled out: its rounds, and all their groups in one.

    Attributes:
        rounds: in order.
        prompts: of all groups.
        rollouts: of all groups.
        feedback: of all groups.
        keep_M: of all groups.
        learned_M: the groups that the policy is given, in order; one that is not kept only fills
            its place. Empty: there is nothing to learn from.
        selector: the state after the last round.
    """

    rounds: Sequence[Round]
    prompts: Sequence[Prompt]
    rollouts: Rollouts
    feedback: Feedback
    keep_M: np.ndarray
    learned_M: np.ndarray
    selector: Any


class Recorder(Protocol):
    """Where a run writes to."""

    def step(self, step: int, metrics: Metrics, data: StepData | None) -> None:
        """Takes the metrics of a step, and its rollouts."""

    def save(self, progress: Progress, *, last: bool) -> None:
        """Takes the progress after a step; `last`: the run ends here."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a run.

    `vary` makes the variants that a selector asks for; None: there are none. `map` reads items and
    builds their prompts, such as in threads.
    """

    items: Sequence[Item]
    build_prompt: Callable[[Item], Prompt]
    sampler: samplers.Sampler
    engine: Engine
    judge: Judge
    learn: Learn
    validate: Validate
    recorder: Recorder
    advantage: feedbacks.Advantage = feedbacks.group_normalized
    vary: Vary | None = None
    map: loading.Map = loading.in_turn
