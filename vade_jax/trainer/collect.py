"""What a step learns from: prompts are chosen and answered, the answers rewarded, the posterior updated.

Usually a step has one round. A selector that drops groups, as DAPO does (arXiv 2503.14476), leaves places in
the batch empty. Another round then asks for other prompts, until the batch is full or a cap is reached. The
posterior is updated after every round, so a selector's decays are per round.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import TypeVar

import jax
import numpy as np

from vade_jax import rng, samplers, settings
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import Engine, EngineFailure
from vade_jax.trainer import processes, scoring
from vade_jax.trainer.choosing import Chosen, Pool, choose
from vade_jax.trainer.scoring import Advantage, Scored, Scorer, ScoringThread
from vade_jax.trainer.timing import Clock
from vade_jax.types import Array, Feedback, Item, Prompt, Rollouts

T = TypeVar("T", Rollouts, Feedback)

# Of `refill.ask="estimate"`, as in GRESO's code (arXiv 2506.02177): a quarter more than the share
# of dropped groups calls for, and at least 64 prompts.
ESTIMATE_MARGIN, ESTIMATE_LEAST = 1.25, 64


@dataclasses.dataclass(frozen=True)
class Round:
    """M groups of answers, N in all: what was asked, what came, and what it is worth."""

    items: Sequence[Item]
    prompts: Sequence[Prompt]
    rollouts: Rollouts
    scored: Sequence[Scored]  # of each answer
    feedback: Feedback
    keep_M: np.ndarray  # bool, the groups that the selector would train on
    # What the selector had expected, see `Sampler.believe`, and the pass rates that it drew, "p_drawn".
    belief: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class StepData(Round):
    """All rounds of a step as one."""

    round_M: np.ndarray  # int, from 1
    # The groups that the policy is given, in order; one that is not kept only fills its place, so that the
    # shapes stay. Empty: there is nothing to learn from.
    learned_M: np.ndarray
    seconds: Mapping[str, float]  # that its parts took

    def batch(self) -> tuple[list[Prompt], Rollouts, np.ndarray]:
        """Returns the prompts, answers and advantages that the policy learns from.

        Answers of a group that only fills its place are marked invalid.
        """
        kept = drop(self.rollouts, self.keep_M)
        rollouts, order_N = take(kept, self.learned_M)
        prompts = [self.prompts[m] for m in self.learned_M]
        return prompts, rollouts, np.asarray(self.feedback.advantage_N)[order_N]


def collect(
    selector: samplers.Sampler,
    pool: Pool,
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
    first: futures.Future[Chosen] | None = None,
) -> tuple[StepData, samplers.State]:
    """Returns the answers that a step learns from, and the posterior updated by them.

    The paper updates the posterior after the policy. The posterior needs no weights: updated here, it
    lets the next prompts be chosen while the policy learns.

    Args:
        selector: the selector's functions.
        pool: the items, and how they become prompts.
        posterior: the selector's state before the step.
        key: of the run. All draws depend only on it and on the step.
        step: the RL step, from 1.
        engine: makes the answers.
        score: rewards them.
        num_prompts: B, prompts a step.
        advantage: compares the answers of a group (Eq. 2).
        refill: what is done about the groups that the selector drops.
        version: of the weights that have to answer; None: those of the step before.
        first: the prompts of the first round, if a thread chooses them already.

    Raises:
        EngineFailure: the engine makes no more answers, or answers with other weights.
        RewardFailure: a reward function failed, or not one answer of the step counts.
        NotFinite: a number of the answers is NaN or infinite; the message names it.
    """
    keys, clock = rng.step_keys(key, step), Clock()
    version = step - 1 if version is None else version
    rounds, used, missing = [], set(), num_prompts
    while missing:
        number = len(rounds)
        # Choose the B items with the greatest I(p), p ~ Beta (Eq. 4); later, others in place of dropped ones.
        with clock("select"):
            if first is not None and not rounds:
                chosen = first.result()
            else:
                select_key = rng.round_key(keys.select, number)
                chosen = choose(selector, pool, posterior, select_key, missing, used)
        if not chosen.items:
            break
        when = f"step {step}, round {number + 1}"
        # Every process has made its own choice.
        texts = [prompt.text for prompt in chosen.prompts]
        processes.agree(f"the prompts of {when}", [np.asarray(chosen.proposal.index_M), texts])
        # Generate the answers, score them, and compare each with its group (Eq. 2).
        answer_key = rng.round_key(keys.rollouts, number)
        rollouts, scored, feedback = answer(
            engine, score, chosen, answer_key, version, clock, advantage, f"step {step}"
        )
        # Update the posterior (Eq. 5, 6).
        with clock("adv"):
            belief = jax.device_get(dict(selector.believe(posterior, chosen.proposal)))
            if chosen.proposal.p_M is not None:
                belief["p_drawn"] = chosen.proposal.p_M
            keep_M = np.asarray(selector.keep(posterior, feedback))
            posterior = selector.update(posterior, feedback)
        asked = chosen.items, chosen.prompts
        rounds.append(Round(*asked, rollouts, scored, feedback, keep_M, belief))
        missing = num_missing([one.keep_M for one in rounds], num_prompts, refill)
        used.update(np.asarray(feedback.index_M).tolist())
    if not any(one.feedback.valid_N.any() for one in rounds):
        raise RewardFailure(
            f"step {step}: of all its answers none came, or none has a verdict: look at the engine, "
            "the reward function and the server that it asks"
        )
    return _as_one(rounds, num_prompts, clock.seconds), posterior


def answer(
    engine: Engine,
    score: Scorer,
    chosen: Chosen,
    key: jax.Array,
    version: int,
    clock: Clock,
    advantage: Advantage,
    when: str,
) -> tuple[Rollouts, list[Scored], Feedback]:
    """Generates the answers to the chosen prompts, and scores each group while others are generated.

    Answers without a verdict are returned as invalid. They do not count, like answers that the engine could
    not make. Args and errors are as in `collect`; `key` is that of these answers, `when` for messages.
    """
    with ScoringThread(score, chosen.items) as scoring_thread:
        with clock("gen"):
            number_M = np.asarray(chosen.proposal.num_rollouts_M)
            rollouts = engine.generate(
                chosen.prompts, number_M, key, version, on_group=scoring_thread
            )
        # The ratio would take answers of older weights for draws of the current policy.
        if (held := int(rollouts.params_version)) != version:
            raise EngineFailure(
                f"the engine answered with weights {held} instead of {version}: its sync did not take"
            )
        with clock("reward"):  # only what is left to score after the last answer
            scored = scoring_thread.scored(len(rollouts.group_N))
    of_threads = {"judge": scoring_thread.seconds, "gen_tail": scoring_thread.tail}
    clock.add(prepare=chosen.seconds, **of_threads)
    had_N = np.asarray(rollouts.valid_N)
    valid_N = had_N & np.array([one.is_known for one in scored], bool)
    # A slow server leaves some answers without a verdict. No verdict at all means that the server is gone.
    if len(chosen.prompts) > 1 and had_N.any() and not valid_N.any():
        reasons = collections.Counter(one.reason for one in scored)
        raise RewardFailure(
            f"no verdict on any of {len(valid_N)} answers ({reasons}): "
            "look at the reward function and the server that it asks"
        )
    rollouts = rollouts.replace(valid_N=valid_N)
    with clock("adv"):
        feedback = scoring.feedback_of(chosen.proposal, rollouts, scored, advantage)
        scoring.check_answers(when, chosen.prompts, rollouts, feedback)
    return rollouts, scored, feedback


def num_missing(keep_M: Sequence[np.ndarray], num_prompts: int, refill: settings.Refill) -> int:
    """Returns how many prompts the next round asks for; 0: the step is complete.

    `keep_M` has, of each round, the groups that were kept.
    """
    num_kept, generated = sum(int(x.sum()) for x in keep_M), sum(map(len, keep_M))
    missing = num_prompts - num_kept
    if missing <= 0 or len(keep_M) == refill.max_rounds:
        return 0
    if refill.ask == "missing":
        return missing
    if refill.ask == "batch" or num_kept == 0:
        return num_prompts
    # GRESO's rule: at this step's share of kept groups, with a margin, in one more round.
    likely = int(missing * generated / num_kept * ESTIMATE_MARGIN)
    return min(max(likely, ESTIMATE_LEAST), num_prompts)


def _as_one(rounds: Sequence[Round], num_prompts: int, seconds: Mapping[str, float]) -> StepData:
    sizes = [len(one.items) for one in rounds]
    keep_M = np.concatenate([one.keep_M for one in rounds])
    return StepData(
        items=[item for one in rounds for item in one.items],
        prompts=[prompt for one in rounds for prompt in one.prompts],
        rollouts=join([one.rollouts for one in rounds], sizes),
        scored=[scored for one in rounds for scored in one.scored],
        feedback=join([one.feedback for one in rounds], sizes),
        keep_M=keep_M,
        belief={x: np.concatenate([one.belief[x] for one in rounds]) for x in rounds[0].belief},
        round_M=np.repeat(np.arange(1, 1 + len(rounds)), sizes),
        learned_M=_learned(keep_M, num_prompts),
        seconds=seconds,
    )


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
    order_M, version = np.asarray(order_M), rollouts.params_version
    first_M, stop_M = np.searchsorted(rollouts.group_N, [order_M, order_M + 1])
    order_N = np.concatenate([*map(np.arange, first_M, stop_M)])
    group_N = np.repeat(np.arange(len(order_M), dtype=np.int32), stop_M - first_M)
    taken = jax.tree.map(lambda x: x[order_N], rollouts.replace(params_version=None))
    return taken.replace(group_N=group_N, params_version=version), order_N


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
