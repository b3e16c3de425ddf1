"""The rollouts of one step, gathered in one or more rounds.

Usually a step has one round. A selector that drops groups, as DAPO does (arXiv 2503.14476), leaves places in
the batch empty. Another round then asks for other prompts, until the batch is full or a cap is reached. The
posterior is updated after every round, so a selector's decays are per round.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import jax
import numpy as np

from vade_jax import samplers, settings
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import Engine, EngineFailure
from vade_jax.trainer import scoring
from vade_jax.trainer.choosing import Chosen
from vade_jax.trainer.scoring import Scorer, Scores, ScoringThread
from vade_jax.trainer.timing import Clock
from vade_jax.types import Array, Feedback, Metrics, Prompt, Rollouts

T = TypeVar("T", Rollouts, Feedback)

# Of `refill.ask="estimate"`, as in GRESO's code (arXiv 2506.02177): a quarter more than the share
# of dropped groups calls for, and at least 64 prompts.
ESTIMATE_MARGIN, ESTIMATE_LEAST = 1.25, 64


class BatchNotFilled(RuntimeError):  # noqa: N818 (says what happened)
    """A step kept too few groups, and the settings say to stop."""


def answer(
    engine: Engine,
    score: Scorer,
    chosen: Chosen,
    key: jax.Array,
    version: int,
    clock: Clock,
) -> tuple[Rollouts, Scores]:
    """Generates the answers to the chosen prompts, and scores each group while others are generated.

    Answers without a verdict are returned as invalid. They do not count, like answers that the engine could
    not make.

    Args:
        engine: holds the weights.
        score: rewards the answers.
        chosen: prompts, and how many answers to each.
        key: of the answers.
        version: of the weights that have to answer.
        clock: of the step.

    Raises:
        EngineFailure: the engine makes no more answers, or answers with other weights.
        RewardFailure: a reward function failed, or has no verdict on a single answer to several prompts.
    """
    with ScoringThread(score, chosen.items) as scoring_thread:
        with clock("gen"):
            rollouts = engine.generate(
                chosen.prompts,
                np.asarray(chosen.proposal.num_rollouts_M),
                key,
                version,
                on_group=scoring_thread,
            )
        # The ratio would take answers of older weights for draws of the current policy.
        if (found := int(rollouts.params_version)) != version:
            raise EngineFailure(
                f"the engine answered with weights {found} instead of {version}: its sync did not take"
            )
        with clock("reward"):  # only what is left to score after the last answer
            scores = scoring_thread.scores(rollouts)
    clock.add_seconds("prepare", chosen.seconds)
    clock.add_seconds("judge", scoring_thread.seconds)
    clock.add_seconds("gen_tail", scoring_thread.tail)
    valid_N = np.asarray(rollouts.valid_N)
    # A slow server leaves some answers without a verdict. No verdict at all means that the server is gone.
    if len(chosen.prompts) > 1 and valid_N.any() and not (valid_N & scores.known_N).any():
        raise RewardFailure(
            f"no verdict on any of {len(valid_N)} answers ({collections.Counter(scores.reason_N)}): "
            "look at the reward function and the server that it asks"
        )
    return rollouts.replace(valid_N=valid_N & scores.known_N), scores


@dataclasses.dataclass(frozen=True)
class Round:
    """One round of a step: what was rolled out, and how it was scored."""

    chosen: Chosen
    rollouts: Rollouts
    scores: Scores
    feedback: Feedback
    keep_M: np.ndarray  # bool, the groups that the selector would train on
    belief: Mapping[str, Array]  # what the selector had expected, see `Sampler.believe`


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
            its place, so that the shapes stay. Empty: there is nothing to learn from.
    """

    rounds: Sequence[Round]
    prompts: Sequence[Prompt]
    rollouts: Rollouts
    feedback: Feedback
    keep_M: np.ndarray
    learned_M: np.ndarray

    @classmethod
    def of(cls, rounds: Sequence[Round], learned_M: np.ndarray) -> "StepData":
        """Returns the step of these rounds."""
        sizes = [len(one.chosen.items) for one in rounds]
        return cls(
            rounds=rounds,
            prompts=[prompt for one in rounds for prompt in one.chosen.prompts],
            rollouts=join([one.rollouts for one in rounds], sizes),
            feedback=join([one.feedback for one in rounds], sizes),
            keep_M=np.concatenate([one.keep_M for one in rounds]),
            learned_M=learned_M,
        )

    def batch(self) -> tuple[list[Prompt], Rollouts, np.ndarray]:
        """Returns the prompts, answers and advantages that the policy learns from.

        Answers of a group that only fills its place are marked invalid.
        """
        kept = drop(self.rollouts, self.keep_M)
        rollouts, order_N = take(kept, self.learned_M)
        prompts = [self.prompts[m] for m in self.learned_M]
        return prompts, rollouts, np.asarray(self.feedback.advantage_N)[order_N]


class Gathering:
    """Collects the rounds of a step until the batch is full.

    Args:
        num_prompts: B, the groups of a full batch.
        refill: what is done about dropped groups.
    """

    def __init__(self, num_prompts: int, refill: settings.Refill):
        self._num_prompts, self._refill = num_prompts, refill
        self.rounds: list[Round] = []
        self.used: set[int] = set()  # items that were rolled out

    @property
    def num_kept(self) -> int:
        """Groups kept so far."""
        return sum(int(one.keep_M.sum()) for one in self.rounds)

    def add(self, one: Round) -> None:
        """Adds a round."""
        self.rounds.append(one)
        self.used.update(map(int, one.chosen.proposal.index_M))

    def num_missing(self) -> int:
        """Returns how many prompts the next round asks for; 0: the step is complete."""
        missing = self._num_prompts - self.num_kept
        if missing <= 0 or len(self.rounds) == self._refill.max_rounds:
            return 0
        if self._refill.ask == "missing":
            return missing
        if self._refill.ask == "batch" or self.num_kept == 0:
            return self._num_prompts
        # GRESO's rule: at this step's share of kept groups, with a margin, in one more round.
        generated = sum(len(one.chosen.items) for one in self.rounds)
        likely = int(missing * generated / self.num_kept * ESTIMATE_MARGIN)
        return min(max(likely, ESTIMATE_LEAST), self._num_prompts)

    def finish(self, step: int) -> StepData:
        """Returns all rounds in one.

        Raises:
            BatchNotFilled: the batch is not full, and `refill.at_cap` is "stop".
            RewardFailure: not one answer of the step counts.
        """
        if self.num_kept < self._num_prompts and self._refill.at_cap == "stop":
            # More rounds help only if they ended at the cap. Otherwise no item is left to ask for.
            at_cap = len(self.rounds) == self._refill.max_rounds
            more = "raise refill.max_rounds" if at_cap else "no item is left: lower num_prompts"
            raise BatchNotFilled(
                f"step {step}: {self.num_kept} groups kept of the {self._num_prompts} wanted, "
                f"after {len(self.rounds)} rounds: {more}, or let refill.at_cap be 'fewer' or 'repeat'"
            )
        if not any(one.feedback.valid_N.any() for one in self.rounds):
            raise RewardFailure(
                f"step {step}: of all its answers none came, or none has a verdict: look at the engine, "
                "the reward function and the server that it asks"
            )
        keep_M = np.concatenate([one.keep_M for one in self.rounds])
        return StepData.of(self.rounds, self._learned(keep_M))

    def _learned(self, keep_M: np.ndarray) -> np.ndarray:
        """Returns `StepData.learned_M`."""
        kept, dropped = np.flatnonzero(keep_M), np.flatnonzero(~keep_M)
        missing = self._num_prompts - len(kept)
        if len(kept) == 0:
            return kept
        if missing <= 0:
            train_all = self._refill.surplus == "train"
            return kept if train_all else kept[: self._num_prompts]
        if self._refill.at_cap == "repeat":
            return np.resize(kept, self._num_prompts)
        # `batch` marks dropped groups invalid. Fewer groups would be other shapes: XLA would compile again.
        return np.sort(np.concatenate([kept, dropped[:missing]]))


# ------------------------------------------------------------------------------ metrics
def metrics(data: StepData, num_prompts: int) -> Metrics:
    """Returns the metrics of all groups of a step, kept or not, and how many there were.

    `vade/trained_effective_ratio` is of those that the policy learns from, over B: groups whose rewards
    differ. With `_correct` after it, it is the paper's effective ratio: groups neither all right nor
    all wrong. Both are above 1 where a surplus is trained on. `critic/score/trained_mean` is of the
    answers in all groups that the policy learns from; without such groups it is left out.
    """
    kept_M = data.learned_M[data.keep_M[data.learned_M]]
    num_kept = int(data.keep_M.sum())
    ratios_M = {
        "vade/trained_effective_ratio": scoring.varied(data.feedback),
        "vade/trained_effective_ratio_correct": data.feedback.mixed_M,
    }
    of_scores = [one.scores.metrics() for one in data.rounds]
    return {
        **_forecast(data.rounds),
        **scoring.metrics(data.feedback, data.rollouts),
        **_trained_score(data.feedback, kept_M),
        **jax.tree.map(lambda *counts: sum(counts), *of_scores),
        "vade/rounds": len(data.rounds),
        "vade/generated_groups": len(data.keep_M),
        "vade/kept_groups": num_kept,
        "vade/surplus_groups": max(num_kept - num_prompts, 0),
        **{name: float(x_M[kept_M].sum() / num_prompts) for name, x_M in ratios_M.items()},
    }


def _trained_score(feedback: Feedback, kept_M: np.ndarray) -> Metrics:
    """Returns the share of right answers in the groups `kept_M`, or nothing if no answer of theirs counts.

    A selector that drops groups moves it towards the groups that it likes, whatever the policy does.
    `critic/score/mean` stands beside it and is of all groups.
    """
    num_right, num_valid = (x_M[kept_M].sum() for x_M in (feedback.successes_M, feedback.trials_M))
    return {"critic/score/trained_mean": float(num_right / num_valid)} if num_valid else {}


def _forecast(rounds: Sequence[Round]) -> Metrics:
    """Returns what the selector expected of the prompts before it saw answers, averaged over them."""
    names = rounds[0].belief
    found = samplers.belief_metrics(
        {name: np.concatenate([one.belief[name] for one in rounds]) for name in names}
    )
    errors = [_errors(one) for one in rounds if "posterior_mean" in one.belief]
    if errors and any(map(len, errors)):
        found["vade/posterior_error"] = float(np.mean(np.concatenate(errors)))
    return found


def _errors(one: Round) -> np.ndarray:
    """Returns by how much each prompt's share of right answers differs from what was expected."""
    trials_M = one.feedback.trials_M
    rate_M = one.feedback.successes_M / np.maximum(trials_M, 1)
    return np.abs(np.asarray(one.belief["posterior_mean"]) - rate_M)[trials_M > 0]


# ------------------------------------------------------------------------------ flat answers
def drop(rollouts: Rollouts, keep_M: np.ndarray) -> Rollouts:
    """Returns the rollouts with the groups that are not kept marked invalid."""
    keep_N = np.asarray(keep_M)[rollouts.group_N]
    return rollouts.replace(valid_N=rollouts.valid_N & keep_N)


def take(rollouts: Rollouts, order_M: Array) -> tuple[Rollouts, np.ndarray]:
    """Returns the groups of `order_M`, in that order, and the answers `order_N` that these are.

    A group may be taken several times.
    """
    num_groups = int(np.max(order_M)) + 1
    first_M = np.searchsorted(rollouts.group_N, np.arange(num_groups + 1))
    size_M = np.diff(first_M)[order_M]
    group_N = np.repeat(np.arange(len(order_M)), size_M)
    # Where each group's answers are, less where they come to stand, plus 0, 1, 2, ...
    order_N = (first_M[order_M] - np.cumsum(size_M) + size_M)[group_N] + np.arange(len(group_N))
    version = rollouts.params_version
    taken = jax.tree.map(lambda x: x[order_N], rollouts.replace(params_version=None))
    taken = taken.replace(group_N=group_N.astype(np.int32), params_version=version)
    return taken, order_N


def join(made: Sequence[T], num_groups: Sequence[int]) -> T:
    """Returns several `Rollouts`, or several `Feedback`, as one.

    Args:
        made: of the same weights; fields are joined along their first axis.
        num_groups: groups of each; `group_N` counts on.
    """
    first_groups = np.cumsum([0, *num_groups[:-1]], dtype=np.int32)
    shifted = [
        one.replace(group_N=np.asarray(one.group_N) + first)
        for one, first in zip(made, first_groups, strict=True)
    ]
    return jax.tree.map(lambda *x: x[0] if np.ndim(x[0]) == 0 else np.concatenate(x), *shifted)
