"""What a step learns from: prompts are chosen and answered, the answers rewarded, the posterior updated.

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

from vade_jax import rng, samplers, settings
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import Engine, EngineFailure
from vade_jax.trainer import processes, scoring
from vade_jax.trainer.choosing import ChoosePrompts, Chosen
from vade_jax.trainer.scoring import Advantage, Scorer, Scores, ScoringThread
from vade_jax.trainer.timing import Clock
from vade_jax.types import Array, Feedback, Prompt, Rollouts

T = TypeVar("T", Rollouts, Feedback)

# Of `refill.ask="estimate"`, as in GRESO's code (arXiv 2506.02177): a quarter more than the share
# of dropped groups calls for, and at least 64 prompts.
ESTIMATE_MARGIN, ESTIMATE_LEAST = 1.25, 64


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


def collect(
    choose: ChoosePrompts,
    posterior: samplers.State,
    key: jax.Array,
    step: int,
    engine: Engine,
    score: Scorer,
    num_prompts: int,
    *,
    advantage: Advantage = scoring.usual_advantage,
    refill: settings.Refill = settings.Refill(),  # noqa: B008 (frozen)
    version: int | None = None,
    first: Chosen | None = None,
    clock: Clock | None = None,
) -> tuple[StepData, samplers.State]:
    """Returns the answers that a step learns from, and the posterior updated by them.

    The paper updates the posterior after the policy. The posterior needs no weights: updated here, it
    lets the next prompts be chosen while the policy learns.

    Args:
        choose: asks the selector, and builds the prompts.
        posterior: the selector's state before the step.
        key: of the run. All draws depend only on it and on the step.
        step: the RL step, from 1.
        engine: makes the answers.
        score: rewards them.
        num_prompts: B, prompts a step.
        advantage: compares the answers of a group (Eq. 2).
        refill: what is done about the groups that the selector drops.
        version: of the weights that have to answer; None: those of the step before.
        first: the prompts of the first round, if they are chosen already.
        clock: gets the seconds of each part.

    Raises:
        EngineFailure: the engine makes no more answers, or answers with other weights.
        RewardFailure: a reward function failed, or not one answer of the step counts.
        NotFinite: a number of the answers is NaN or infinite; the message names it.
    """
    selector, keys, clock = choose.selector, rng.step_keys(key, step), clock or Clock()
    version = step - 1 if version is None else version
    # Choose the B items with the greatest I(p), p ~ Beta (Eq. 4).
    chosen = first or choose(posterior, keys.select, num_prompts)
    rounds, used = [], set()
    while chosen.items:
        # Generate the answers, score them, and compare each with its group (Eq. 2).
        processes.agree(f"the prompts of step {step}, round {len(rounds) + 1}", chosen.identity())
        answer_key = rng.round_key(keys.rollouts, len(rounds))
        rollouts, scores = answer(engine, score, chosen, answer_key, version, clock)
        with clock("adv"):
            feedback = scoring.feedback_of(chosen.proposal, rollouts, scores, advantage)
            scoring.check_answers(f"step {step}", chosen.prompts, rollouts, feedback)
            keep_M = np.asarray(selector.keep(posterior, feedback))
            belief = jax.device_get(selector.believe(posterior, chosen.proposal))
            rounds.append(Round(chosen, rollouts, scores, feedback, keep_M, belief))
            # Update the posterior (Eq. 5, 6).
            posterior = selector.update(posterior, feedback)
        missing = num_missing(rounds, num_prompts, refill)
        if not missing:
            break
        # Some groups were dropped: other prompts take their places.
        used.update(map(int, chosen.proposal.index_M))
        with clock("select"):
            select_key = rng.round_key(keys.select, len(rounds))
            chosen = choose(posterior, select_key, missing, used)
    if not any(one.feedback.valid_N.any() for one in rounds):
        raise RewardFailure(
            f"step {step}: of all its answers none came, or none has a verdict: look at the engine, "
            "the reward function and the server that it asks"
        )
    keep_M = np.concatenate([one.keep_M for one in rounds])
    return StepData.of(rounds, _learned(keep_M, num_prompts)), posterior


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
    not make. Args and errors are as in `collect`; `key` is that of these answers.
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
        if (held := int(rollouts.params_version)) != version:
            raise EngineFailure(
                f"the engine answered with weights {held} instead of {version}: its sync did not take"
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


def num_missing(rounds: Sequence[Round], num_prompts: int, refill: settings.Refill) -> int:
    """Returns how many prompts the next round asks for; 0: the step is complete."""
    num_kept = sum(int(one.keep_M.sum()) for one in rounds)
    missing = num_prompts - num_kept
    if missing <= 0 or len(rounds) == refill.max_rounds:
        return 0
    if refill.ask == "missing":
        return missing
    if refill.ask == "batch" or num_kept == 0:
        return num_prompts
    # GRESO's rule: at this step's share of kept groups, with a margin, in one more round.
    generated = sum(len(one.chosen.items) for one in rounds)
    likely = int(missing * generated / num_kept * ESTIMATE_MARGIN)
    return min(max(likely, ESTIMATE_LEAST), num_prompts)


def _learned(keep_M: np.ndarray, num_prompts: int) -> np.ndarray:
    """Returns `StepData.learned_M`: the kept groups, at most `num_prompts`, and others in empty places."""
    kept, dropped = np.flatnonzero(keep_M), np.flatnonzero(~keep_M)
    missing = num_prompts - len(kept)
    if len(kept) == 0 or missing <= 0:
        return kept[:num_prompts]
    # `batch` marks dropped groups invalid. Fewer groups would be other shapes: XLA would compile again.
    return np.sort(np.concatenate([kept, dropped[:missing]]))


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
