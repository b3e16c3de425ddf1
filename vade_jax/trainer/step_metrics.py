"""The metrics of a step: what its groups were worth, what the selector had expected, what it has visited."""

from collections.abc import Sequence

import jax
import numpy as np

from vade_jax import arrays, samplers
from vade_jax.trainer.collect import Round, StepData
from vade_jax.types import Feedback, Metrics, Rollouts

PERCENTILES = (50, 95, 99)  # of the lengths of a step's answers


def of_step(data: StepData, num_prompts: int) -> Metrics:
    """Returns the metrics of all groups of a step, kept or not, and how many there were.

    `vade/trained_effective_ratio` is of those that the policy learns from, over B: groups whose rewards
    differ. With `_correct` after it, it is the paper's effective ratio: groups neither all right nor
    all wrong. `critic/score/trained_mean` is of the
    answers in all groups that the policy learns from; without such groups it is left out.
    """
    kept_M = data.learned_M[data.keep_M[data.learned_M]]
    num_kept = int(data.keep_M.sum())
    ratios_M = {
        "vade/trained_effective_ratio": varied(data.feedback),
        "vade/trained_effective_ratio_correct": data.feedback.mixed_M,
    }
    of_scores = [one.scores.metrics() for one in data.rounds]
    return {
        **_forecast(data.rounds),
        **of_answers(data.feedback, data.rollouts),
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
    `critic/score/mean` is of all groups.
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


def of_answers(feedback: Feedback, rollouts: Rollouts) -> Metrics:
    """Returns the shares of groups that teach, and scores and lengths, on the host: some answer is valid."""
    valid_N = feedback.valid_N
    assert valid_N.any()
    successes_M, trials_M = feedback.successes_M, feedback.trials_M
    asked_M, varied_M = trials_M > 0, varied(feedback)
    shares_M = {
        "vade/effective_ratio": varied_M,
        "vade/effective_ratio_correct": feedback.mixed_M,
        "vade/all_right_ratio": asked_M & (successes_M == trials_M),
        "vade/all_wrong_ratio": asked_M & (successes_M == 0),
    }
    length_N = feedback.length_N[valid_N]
    return {name: float(np.mean(share_M)) for name, share_M in shares_M.items()} | {
        "vade/effective_rollouts": int(np.count_nonzero(varied_M[feedback.group_N] & valid_N)),
        "critic/score/mean": float(np.mean(feedback.correct_N[valid_N])),
        "critic/rewards/mean": float(np.mean(feedback.reward_N[valid_N])),
        "critic/advantages/max": float(np.max(feedback.advantage_N)),
        "critic/advantages/min": float(np.min(feedback.advantage_N)),
        "response_length/mean": float(np.mean(length_N)),
        **{f"response_length/p{q}": float(np.percentile(length_N, q)) for q in PERCENTILES},
        "response_length/max": float(np.max(length_N)),
        "response_length/clip_ratio": float(1 - np.mean(rollouts.finished_N[valid_N])),
        "response/aborted_ratio": float(1 - np.mean(valid_N)),
    }


def varied(feedback: Feedback) -> np.ndarray:
    """Returns which groups have training rewards that are not all equal.

    On the host: rounds of any size compile nothing.
    """
    reward_N, num_groups = np.asarray(feedback.reward_N), len(feedback.index_M)
    return np.asarray(arrays.varies(reward_N, feedback.group_N, num_groups, feedback.valid_N))
