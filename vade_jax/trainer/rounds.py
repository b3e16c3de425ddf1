"""One step's rollouts, in one or more rounds: propose -> generate -> judge -> keep -> update.

A selector that drops groups, such as DAPO's (arXiv 2503.14476), leaves places in the batch. Then
another round asks for other prompts, until the batch is full or a cap is reached. The posterior is
updated after every round, so a selector's decays are per round. No prompt comes twice in a step. The
first round draws what a step of one round draws; later ones fold their number into its keys.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from vade_jax import samplers
from vade_jax.rollout.engine import EngineFailure
from vade_jax.trainer import feedback as feedbacks
from vade_jax.trainer import groups, plans, processes
from vade_jax.trainer.parts import Parts, Progress, Round, StepData
from vade_jax.trainer.plans import Plan, plan
from vade_jax.trainer.refill import Refill
from vade_jax.trainer.scoring import Ahead
from vade_jax.trainer.timing import Clock
from vade_jax.types import Metrics, Prompt, Rollouts


class BatchNotFilled(RuntimeError):  # noqa: N818 (says what happened)
    """A step has kept too few groups, and the run is to stop then."""


def gather(
    parts: Parts,
    progress: Progress,
    planned: Plan,
    keys: Sequence[jax.Array],
    num_prompts: int,
    refill: Refill,
    clock: Clock,
) -> StepData:
    """Returns the rounds of the step after `progress`.

    They end with a full batch, at the cap, or when every item has been rolled out.

    Args:
        parts: of the run.
        progress: before the step.
        planned: the first round.
        keys: of the first round's choice and of its answers.
        num_prompts: B, the groups of a full batch.
        refill: what is done about dropped groups.
        clock: of the step.

    Raises:
        BatchNotFilled: the batch is not full, and `refill.at_cap` is "stop".
        EngineFailure: there are no more answers.
        ValueError: the selector asks for variants, and there may be several rounds.
    """
    _check_variants(planned.proposal, refill)
    made, selector, step = [], progress.selector, progress.step + 1
    while planned.items:
        name = f"the prompts of step {step}, round {len(made) + 1}"
        processes.agree(name, _identity(planned))
        key = _key(keys[1], len(made))
        made.append(roll_out(parts, selector, planned, key, progress.step, clock))
        with clock("adv"):
            selector = parts.sampler.update(selector, made[-1].feedback)
        kept = sum(int(one.keep_M.sum()) for one in made)
        if kept >= num_prompts or len(made) == refill.max_rounds:
            break
        used = {int(i) for one in made for i in one.proposal.index_M}
        generated = sum(len(one.items) for one in made)
        size, key = refill.size(num_prompts, kept, generated), _key(keys[0], len(made))
        with clock("select"):
            planned = plan(parts, selector, key, size, used)
    if kept < num_prompts and refill.at_cap == "stop":
        raise BatchNotFilled(
            f"step {step}: {kept} groups kept of the {num_prompts} wanted, after {len(made)} "
            "rounds: raise refill.max_rounds, or let refill.at_cap be 'fewer' or 'repeat'"
        )
    return joined(made, selector, num_prompts, refill)


def roll_out(
    parts: Parts,
    selector: Any,
    planned: Plan,
    key: jax.Array,
    version: int,
    clock: Clock,
) -> Round:
    """Generates and judges one round, and asks the selector which groups it keeps."""
    proposal, ahead = planned.proposal, Ahead(parts.judge, planned.items)
    with clock("gen"):
        rollouts = parts.engine.generate(
            planned.prompts, proposal.num_rollouts_M, key, version, on_group=ahead
        )
        _check_version(rollouts, version)
    with clock("reward"):
        scores = _of_leader(ahead.scores(rollouts))
    with clock("adv"):
        feedback = feedbacks.collect(proposal, rollouts, scores, parts.advantage)
        keep_M = np.asarray(parts.sampler.keep(selector, feedback))
    clock.beside("prepare", planned.seconds)
    clock.beside("judge", ahead.seconds)
    return Round(
        planned.items,
        planned.prompts,
        proposal,
        rollouts,
        scores,
        feedback,
        keep_M,
        selector,
    )


def _key(first, made):
    """Returns the key of the round after `made` others."""
    return jax.random.fold_in(first, made) if made else first


def _check_variants(proposal, refill):
    if plans.has_variants(proposal) and refill.max_rounds > 1:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but the selector asks for variants, whose "
            "groups belong together: set refill.max_rounds=1"
        )


def _identity(planned):
    """What all processes must have chosen alike."""
    texts = [prompt.text for prompt in planned.prompts]
    return [np.asarray(planned.proposal.index_M), texts]


def _of_leader(scores):
    """A verifier with a deadline may judge differently on another host."""
    rewards = {"reward_N": scores.reward_N, "correct_N": scores.correct_N}
    return dataclasses.replace(scores, **processes.from_leader(rewards))


def _check_version(rollouts, version):
    if (found := int(rollouts.params_version)) != version:
        raise EngineFailure(
            f"the engine answered with weights {found} instead of {version}: "
            "its sync did not take"
        )


# ------------------------------------------------------------------------------ what came of it
def joined(
    rounds: Sequence[Round], selector: Any, num_prompts: int, refill: Refill
) -> StepData:
    """Returns what a step rolled out; `selector` is the state after it."""
    sizes = [len(one.items) for one in rounds]
    keep_M = np.concatenate([one.keep_M for one in rounds])
    return StepData(
        rounds=rounds,
        prompts=[prompt for one in rounds for prompt in one.prompts],
        rollouts=groups.join([one.rollouts for one in rounds], sizes),
        feedback=groups.join([one.feedback for one in rounds], sizes),
        keep_M=keep_M,
        learned_M=refill.learned(keep_M, num_prompts),
        selector=selector,
    )


def batch(data: StepData) -> tuple[list[Prompt], Rollouts, np.ndarray]:
    """Returns the prompts, answers and advantages that the policy learns from.

    Answers of a group that only fills its place are marked invalid.
    """
    kept = groups.drop(data.rollouts, data.keep_M)
    rollouts, order_N = groups.take(kept, data.learned_M)
    prompts = [data.prompts[m] for m in data.learned_M]
    return prompts, rollouts, data.feedback.advantage_N[order_N]


def metrics(data: StepData, num_prompts: int) -> Metrics:
    """Returns the metrics of all groups of a step, kept or not, and how many there were.

    `vade/trained_effective_ratio` is of those that the policy learns from, over B. It is above 1
    where a surplus is trained on.
    """
    kept_M = data.learned_M[data.keep_M[data.learned_M]]
    num_kept = int(data.keep_M.sum())
    trained = feedbacks.varied(data.feedback)[kept_M].sum()
    return {
        **_beliefs(data.rounds),
        **feedbacks.metrics(data.feedback, data.rollouts),
        **_summed([one.scores.metrics() for one in data.rounds]),
        "vade/rounds": len(data.rounds),
        "vade/generated_groups": len(data.keep_M),
        "vade/kept_groups": num_kept,
        "vade/surplus_groups": max(num_kept - num_prompts, 0),
        "vade/trained_effective_ratio": float(trained / num_prompts),
    }


def _summed(metrics):
    return jax.tree.map(lambda *x: sum(x), *metrics)


def _beliefs(rounds):
    """What the selector thought of the prompts before it saw answers, averaged over all of them."""
    weights = np.array([len(one.items) for one in rounds])
    values = [samplers.diagnostics(one.selector, one.proposal) for one in rounds]
    mean = lambda *x: np.average(x, weights=weights / weights.sum())
    return jax.tree.map(mean, *values)
