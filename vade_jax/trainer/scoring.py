"""Turns sampled tokens into rewards, counts and advantages, from which selector and policy learn.

Answers are scored in a thread while the engine still makes others. Each gets two numbers: whether it is
correct, 0 or 1, which is all that the posteriors count, and its training reward, which includes format and
length and gives the advantages.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures

import jax
import numpy as np

from vade_jax import arrays
from vade_jax.losses import advantages
from vade_jax.rewards import functions
from vade_jax.rollout.engine import Engine, Sampling, ignore
from vade_jax.trainer import processes
from vade_jax.trainer.choosing import Chosen
from vade_jax.trainer.hardware import Clock
from vade_jax.types import Array, Feedback, Item, Metrics, Prompt, Proposal, Rollouts

_NOTHING_LOST = "the last checkpoint was saved before it"


# ------------------------------------------------------------------------------ one answer
@dataclasses.dataclass(frozen=True)
class Scored:
    """The scores of one answer; NaN without a verdict."""

    text: str
    extracted: str | None  # what was compared with the gold answer
    reward: float  # correctness, format and length, or a user's own
    correct: float  # 0 or 1
    reason: str = ""  # of `verify.Verdict`: why it was not compared to the end

    @property
    def is_known(self) -> bool:
        """Whether there is a verdict."""
        return not (math.isnan(self.reward) or math.isnan(self.correct))


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Scores all answers to one question: `score(item, answers)`.

    Attributes:
        decode: tokens to text, special tokens left out.
        judge: rewards texts.
        by_length: tokens of an answer, the end included -> a summand of its reward; correctness is
            unaffected.
        num_threads: concurrent calls: 1, unless the judge mostly waits, for example for a server.
    """

    decode: Callable[[np.ndarray], str]
    judge: functions.Judge
    by_length: Callable[[int], float] = lambda length: 0.0
    num_threads: int = 1

    def __call__(self, item: Item, answers: Sequence[np.ndarray]) -> list[Scored]:
        texts = [self.decode(tokens) for tokens in answers]
        judgements = self.judge(item, texts, answers)
        return [
            Scored(
                text=text,
                extracted=judgement.extracted,
                reward=judgement.reward + self.by_length(len(tokens)),
                correct=math.nan if judgement.correct is None else judgement.correct,
                reason=judgement.reason,
            )
            for tokens, text, judgement in zip(answers, texts, judgements, strict=True)
        ]


def generate(
    engine: Engine,
    score: Scorer,
    asked: Chosen,
    key: jax.Array,
    version: int,
    clock: Clock,
    sampling: Sampling | None = None,
) -> tuple[Rollouts, list[Scored]]:
    """Returns answers and their scores; each group is scored while the engine makes others.

    All processes get the leader's scores, without texts: otherwise each would pay for a judge, and different
    verdicts would make their selectors diverge.

    Raises:
        EngineFailure: the engine failed.
        RewardFailure: a user's function failed.
    """
    threads = futures.ThreadPoolExecutor(score.num_threads, "scoring")
    groups: dict[int, futures.Future[list[Scored]]] = {}
    came, scored = [], []

    def on_group(m: int, answers: Sequence[np.ndarray]) -> None:
        came.append(time.perf_counter())
        groups[m] = threads.submit(score, asked.items[m], answers)

    def lead() -> list[tuple[float, float]]:
        for m in sorted(groups):
            scored.extend(groups[m].result())
        return [(float(one.reward), float(one.correct)) for one in scored]

    try:
        with clock("gen"):
            number_M = np.asarray(asked.proposal.num_rollouts_M)
            rollouts = engine.generate(
                asked.prompts,
                number_M,
                key,
                version,
                sampling,
                on_group=on_group if processes.is_leader() else ignore,
            )
        with clock("reward"):  # only the scoring after the last answer
            numbers = processes.on_leader(lead)
    finally:
        # After an error, waiting groups are not scored: a judge may cost money.
        threads.shutdown(wait=False, cancel_futures=True)
    assert len(numbers) == len(rollouts.group_N), "an answer was not reported"
    if came:  # from the median group to the last one, in which most of the engine waits
        clock.seconds["gen_tail"] += max(came) - statistics.median(came)
    return rollouts, scored or [Scored("", None, *pair) for pair in numbers]


# ------------------------------------------------------------------------------ advantages, counts
# (reward_N, group_N, number of groups, valid_N, the proposal's extra_M) -> float32 `advantage_N`, how much
# better each answer of a round is than its group, as the run's objective defines it; 0 if it is not valid.
Advantage = Callable[[np.ndarray, np.ndarray, int, np.ndarray, Mapping[str, Array] | None], Array]

_group_normalized = jax.jit(
    advantages.group_normalized, static_argnames=("num_groups", "scale_by_std")
)


def usual_advantage(
    reward_N: np.ndarray,
    group_N: np.ndarray,
    num_groups: int,
    valid_N: np.ndarray,
    extra_M: Mapping[str, Array] | None = None,
    *,
    scale_by_std: bool = True,
) -> Array:
    """Returns `advantages.group_normalized`; an `Advantage`.

    Answers are padded with invalid ones to one of a few sizes, which changes no bit. Otherwise every
        new number of answers would compile.
    """
    size = arrays.bucket(len(reward_N), 64)
    padded = [arrays.pad_rows(x_N, size) for x_N in (reward_N, group_N, valid_N)]
    advantage_N = _group_normalized(
        *padded[:2], arrays.bucket(num_groups, 8), valid_N=padded[2], scale_by_std=scale_by_std
    )
    return np.asarray(advantage_N)[: len(reward_N)]


def feedback_of(
    proposal: Proposal,
    rollouts: Rollouts,
    scored: Sequence[Scored],
    advantage: Advantage = usual_advantage,
) -> Feedback:
    """Returns every prompt's counts and every answer's advantage, times the proposal's weights.

    An answer without a verdict has reward and correctness 0, and must be invalid in `rollouts`.
    """
    M, group_N = len(proposal.index_M), np.asarray(rollouts.group_N)
    valid_N = np.asarray(rollouts.valid_N)
    numbers = [(x.reward, x.correct) if x.is_known else (0, 0) for x in scored]
    reward_N, correct_N = np.array(numbers, np.float32).reshape(-1, 2).T
    count = lambda x_N: np.bincount(group_N, x_N * valid_N, M).astype(np.float32)
    advantage_N = np.asarray(advantage(reward_N, group_N, M, valid_N, proposal.extra_M))
    if proposal.weight_M is not None:
        advantage_N = advantage_N * np.asarray(proposal.weight_M)[group_N]
    return Feedback(
        index_M=np.asarray(proposal.index_M),
        successes_M=count(correct_N),
        trials_M=count(np.ones_like(correct_N)),
        group_N=group_N,
        reward_N=reward_N,
        correct_N=correct_N,
        advantage_N=advantage_N,
        length_N=np.asarray(rollouts.length_N),
        valid_N=valid_N,
        extra_M=proposal.extra_M,
    )


# ------------------------------------------------------------------------------ numbers that are not finite
class NotFinite(RuntimeError):  # noqa: N818 (says what happened)
    """A number of a step is NaN or infinite. The last checkpoint was saved before that step."""


def check_answers(
    when: str, prompts: Sequence[Prompt], rollouts: Rollouts, feedback: Feedback
) -> None:
    """Raises NotFinite unless all numbers of the answers that count are finite.

    The loss could not name the cause, and may be finite, because the clip bounds infinite ratios.
    """
    inside_NT = np.arange(rollouts.logp_NT.shape[1]) < rollouts.length_N[:, None]
    numbers = {
        "reward": feedback.reward_N,
        "log-probs reported by the engine": np.where(inside_NT, rollouts.logp_NT, 0).sum(1),
        "advantage": feedback.advantage_N,
    }
    for name, x_N in numbers.items():
        for n in np.flatnonzero(~np.isfinite(x_N) & feedback.valid_N):
            uid = prompts[int(feedback.group_N[n])].uid
            raise NotFinite(f"{when}: the {name} of an answer to {uid}: {x_N[n]}; {_NOTHING_LOST}")


def check_losses(when: str, losses: Metrics) -> None:
    """Raises NotFinite, whose message begins with `when`, unless every loss, norm and rate is finite."""
    if bad := {name: float(x) for name, x in losses.items() if not np.isfinite(x)}:
        raise NotFinite(f"{when}: {bad}; {_NOTHING_LOST}: lower the learning rate")
