"""Collects what a step learns from: chooses and answers prompts, rewards answers, updates the posterior.

Usually a step has one round. A selector that drops groups, such as DAPO (arXiv 2503.14476), leaves the batch
short. Further rounds then roll out other prompts, until the batch is full or a cap is reached. The posterior
is updated after every round, so a selector's decays are per round.
"""

import collections
import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from flax import traverse_util

from vade_jax import rng, samplers, settings
from vade_jax.data import loading
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import Engine, EngineFailure
from vade_jax.trainer import processes, scoring
from vade_jax.trainer.choosing import Chosen, Pool, choose
from vade_jax.trainer.hardware import Clock
from vade_jax.trainer.scoring import Advantage, Scored, Scorer
from vade_jax.types import Feedback, Item, Prompt, Rollouts

T = TypeVar("T", Rollouts, Feedback)
LISTS = {"keep_M": bool, "round_M": int, "learned_M": int}  # the last may be empty: no array then


@dataclasses.dataclass(frozen=True)
class StepData:
    """M groups of answers, N in all: prompts, answers, scores and what the selector expected."""

    items: Sequence[Item]
    prompts: Sequence[Prompt]
    rollouts: Rollouts
    scored: Sequence[Scored]  # of each answer
    feedback: Feedback
    keep_M: np.ndarray  # bool, the groups that the selector would train on
    # What the selector had expected, see `Sampler.believe`, and the pass rates that it drew, "p_drawn".
    belief: Mapping[str, np.ndarray]
    round_M: np.ndarray  # int, from 1
    # The groups that the policy gets, in order. One that is not kept only fills its place, so that shapes do
    # not change. Empty: there is nothing to learn from.
    learned_M: np.ndarray
    seconds: Mapping[str, float]  # by part of the step

    def batch(self) -> tuple[list[Prompt], Rollouts, np.ndarray]:
        """Returns the prompts, answers and advantages that the policy learns from.

        Answers of a group that only fills its place are marked invalid.
        """
        inside_N = np.isin(self.rollouts.group_N, self.learned_M)
        rollouts = jax.tree.map(lambda x: x[inside_N] if np.ndim(x) else x, self.rollouts)
        rollouts = rollouts.replace(
            group_N=np.searchsorted(self.learned_M, rollouts.group_N).astype(np.int32),
            valid_N=rollouts.valid_N & self.keep_M[rollouts.group_N],
        )
        prompts = [self.prompts[m] for m in self.learned_M]
        return prompts, rollouts, np.asarray(self.feedback.advantage_N)[inside_N]

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns a batch that waits as a checkpoint stores it: a tree of arrays, and JSON.

        The weights that made it are gone, so everything but the prompts, which are large, is stored.
        """
        feedback = {name: x for name, x in vars(self.feedback).items() if x is not None}
        belief = traverse_util.unflatten_dict(dict(self.belief), sep="/")
        tree = {"rollouts": dict(vars(self.rollouts)), "feedback": feedback, "belief": belief}
        plain = {name: np.asarray(vars(self)[name]).tolist() for name in LISTS}
        plain |= {"seconds": dict(self.seconds), "scored": [*map(dataclasses.asdict, self.scored)]}
        return jax.tree.map(np.asarray, tree), plain

    @classmethod
    def unpack(cls, tree: Mapping[str, Any], plain: Mapping[str, Any], pool: Pool) -> "StepData":
        """Returns the batch, bit for bit; its prompts are built again."""
        chosen = pool.take(tree["feedback"]["index_M"], 0)
        belief: Any = traverse_util.flatten_dict(tree.get("belief", {}), sep="/")
        return cls(
            items=chosen.items,
            prompts=chosen.prompts,
            rollouts=Rollouts(**tree["rollouts"]),
            scored=[Scored(**one) for one in plain["scored"]],
            feedback=Feedback(**tree["feedback"]),
            belief=belief,
            seconds=plain["seconds"],
            **{name: np.array(plain[name], kind) for name, kind in LISTS.items()},
        )


@dataclasses.dataclass(frozen=True)
class Collector:
    """Makes the batches that a policy learns from: `collect(posterior, step)`.

    Attributes:
        selector: the selector's functions.
        pool: the items, and how they become prompts.
        engine: makes the answers.
        score: rewards them.
        key: the run's key. All draws depend only on it and on the step.
        num_prompts: B, prompts a step.
        advantage: compares the answers of a group (Eq. 2).
        refill: how groups that the selector drops are replaced.
    """

    selector: samplers.Sampler
    pool: Pool
    engine: Engine
    score: Scorer
    key: jax.Array
    num_prompts: int
    advantage: Advantage = scoring.usual_advantage
    refill: settings.Refill = settings.Refill()  # noqa: RUF009 (frozen)

    def __call__(
        self, posterior: samplers.State, step: int, *, version: int | None = None
    ) -> tuple[StepData, samplers.State]:
        """Returns the answers that a step, from 1, learns from, and the posterior updated by them.

        `version` is that of the weights that must answer, by default of the step before.

        Raises:
            EngineFailure: the engine fails, or answers with other weights.
            RewardFailure: a reward function failed, or no answer of the step counts.
            NotFinite: a number of the answers is NaN or infinite; the message names it.
        """
        keys, clock = rng.step_keys(self.key, step), Clock()
        version = step - 1 if version is None else version
        rounds, used, num_kept = [], set(), 0
        for number in range(self.refill.max_rounds or sys.maxsize):
            size = self.num_prompts - (num_kept if self.refill.ask == "missing" else 0)
            # Choose the B items with the greatest I(p), p ~ Beta (Eq. 4); later rounds replace dropped ones.
            with clock("select"):
                select_key = rng.round_key(keys.select, number)
                chosen = choose(self.selector, self.pool, posterior, select_key, size, used)
            if not chosen.items:
                break
            # Generate the answers, score them, and compare each with its group (Eq. 2).
            key, when = rng.round_key(keys.rollouts, number), f"step {step}"
            rollouts, scored, feedback = self._answer(chosen, key, version, when, clock, number)
            # Update the posterior (Eq. 5, 6).
            with clock("adv"):
                belief = jax.device_get(dict(self.selector.believe(posterior, chosen.proposal)))
                if chosen.proposal.p_M is not None:
                    belief["p_drawn"] = chosen.proposal.p_M
                keep_M = np.asarray(self.selector.keep(posterior, feedback))
                posterior = self.selector.update(posterior, feedback)
            rounds.append((chosen, rollouts, scored, feedback, keep_M, belief))
            num_kept += int(keep_M.sum())
            used.update(np.asarray(feedback.index_M).tolist())
            if num_kept >= self.num_prompts:
                break
        return join_rounds(rounds, self.num_prompts, clock.seconds), posterior

    def measure(self, step: int, section: settings.Measure) -> Feedback:
        """Returns the feedback on all items; the policy does not learn from these answers.

        Lines 1-4 of Algorithm 1 of VADE (arXiv 2511.18902) are one such pass before the first step; MMR1
        (arXiv 2509.21268) computes its weights from a pass every T steps. `step` is the one after the pass;
        `section` has the number of answers to an item, and of items in a batch.
        """
        index_I = np.arange(len(self.pool.items), dtype=np.int32)
        batches = np.split(index_I, range(section.num_prompts, len(index_I), section.num_prompts))
        take = functools.partial(self.pool.take, num_rollouts=section.num_rollouts)
        # What the selector needs from the answers' tokens, such as MMR1's diversity.
        names = samplers.FROM_TOKENS.keys() & self.selector.needs.named("measured")
        measured = []
        with loading.threads(1) as ahead:  # builds the next prompts meanwhile
            for number, chosen in enumerate(ahead(take, batches)):
                key, when = rng.pass_key(self.key, step, number), f"the pass before step {step}"
                rollouts, _, feedback = self._answer(chosen, key, step - 1, when, Clock(), number)
                arrays_N = rollouts.token_NT, rollouts.length_N, rollouts.group_N
                answers = [x_N[rollouts.valid_N] for x_N in arrays_N]
                size = len(chosen.items)
                values = {x: samplers.FROM_TOKENS[x](*answers, num_groups=size) for x in names}
                measured.append(feedback.replace(extra_M=values or None))
        return join(measured, list(map(len, batches)))

    def _answer(
        self, chosen: Chosen, key: jax.Array, version: int, when: str, clock: Clock, number: int
    ) -> tuple[Rollouts, list[Scored], Feedback]:
        """Generates and scores the answers to the chosen prompts, and compares those of a group.

        Answers without a verdict are returned as invalid: they do not count, like those that the engine could
        not make. `key` is for these answers, `number` counts the calls in a step or pass.
        """
        # Every process has chosen independently.
        asked = np.asarray(chosen.proposal.index_M).tolist(), [x.text for x in chosen.prompts]
        processes.agree(f"the prompts of {when}", asked)
        rollouts, scored = scoring.generate(self.engine, self.score, chosen, key, version, clock)
        # The ratio would treat answers of older weights as draws of the current policy.
        if (held := int(rollouts.params_version)) != version:
            raise EngineFailure(f"the engine answered with weights {held} instead of {version}")
        valid_N = rollouts.valid_N & np.array([one.is_known for one in scored], bool)
        # A slow server leaves some answers without a verdict. No verdict at all means that it is gone, except
        # in a later call with only one prompt.
        if not valid_N.any() and (len(chosen.prompts) > 1 or number == 0):
            reasons = dict(collections.Counter(one.reason for one in scored))
            raise RewardFailure(
                f"{when}: of {len(valid_N)} answers none arrived, or none has a verdict ({reasons}): look at the "
                "engine and the reward function"
            )
        rollouts = rollouts.replace(valid_N=valid_N)
        with clock("adv"):
            feedback = scoring.feedback_of(chosen.proposal, rollouts, scored, self.advantage)
            scoring.check_answers(when, chosen.prompts, rollouts, feedback)
        return rollouts, scored, feedback


def join_rounds(
    rounds: Sequence[tuple], num_prompts: int, seconds: Mapping[str, float]
) -> StepData:
    """Returns the rounds of a step, each (chosen, rollouts, scored, feedback, keep_M, belief), as one."""
    chosen, rollouts, scored, feedback, keep_M, belief = zip(*rounds, strict=True)
    sizes, keep_M = [len(one.items) for one in chosen], np.concatenate(keep_M)
    learned_M, dropped_M = np.flatnonzero(keep_M)[:num_prompts], np.flatnonzero(~keep_M)
    if len(learned_M):
        # Dropped groups fill empty places. Fewer groups would change shapes, and XLA would compile again.
        learned_M = np.sort(np.append(learned_M, dropped_M[: num_prompts - len(learned_M)]))
    return StepData(
        items=[item for one in chosen for item in one.items],
        prompts=[prompt for one in chosen for prompt in one.prompts],
        rollouts=join(rollouts, sizes),
        scored=[answer for one in scored for answer in one],
        feedback=join(feedback, sizes),
        keep_M=keep_M,
        belief=jax.tree.map(lambda *x: np.concatenate(x), *belief),
        round_M=np.repeat(np.arange(1, 1 + len(rounds)), sizes),
        learned_M=learned_M,
        seconds=seconds,
    )


def join(parts: Sequence[T], num_groups: Sequence[int]) -> T:
    """Returns several `Rollouts` or `Feedback` as one; `group_N` counts on by `num_groups` of each."""
    first_groups = np.cumsum([0, *num_groups[:-1]], dtype=np.int32)
    pairs = zip(parts, first_groups, strict=True)
    shifted = [one.replace(group_N=np.asarray(one.group_N) + first) for one, first in pairs]
    return jax.tree.map(lambda *x: x[0] if np.ndim(x[0]) == 0 else np.concatenate(x), *shifted)
