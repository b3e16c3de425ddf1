"""The metrics of a step: the outcome of its groups, compared with what the selector had expected."""

import collections

import numpy as np

from vade_jax import arrays, samplers
from vade_jax.trainer.collect import StepData
from vade_jax.types import Feedback, Metrics, Rollouts

PERCENTILES = (50, 95, 99)  # of the lengths of a step's answers


def of_step(data: StepData, num_prompts: int) -> Metrics:
    """Returns the metrics of all groups of a step, kept or not, and how many there were.

    `vade/trained_effective_ratio` is the number of groups with different rewards that the policy learns from,
    over B. With the suffix `_correct` it is the paper's effective ratio: groups neither all right nor all
    wrong. `critic/score/trained_mean` is the score of their answers, if there are any; it depends on which
    groups a selector drops, and not only on the policy.
    """
    feedback, num_kept = data.feedback, int(data.keep_M.sum())
    trained_M = data.learned_M[data.keep_M[data.learned_M]]
    ratios_M = {
        "vade/trained_effective_ratio": varied(feedback),
        "vade/trained_effective_ratio_correct": feedback.mixed_M,
    }
    metrics = {
        **samplers.belief_metrics(data.belief),
        **of_answers(feedback, data.rollouts),
        **{name: float(x_M[trained_M].sum() / num_prompts) for name, x_M in ratios_M.items()},
        "vade/rounds": int(data.round_M[-1]),
        "vade/generated_groups": len(data.keep_M),
        "vade/kept_groups": num_kept,
        "vade/surplus_groups": max(num_kept - num_prompts, 0),
    }
    if num_valid := feedback.trials_M[trained_M].sum():
        metrics["critic/score/trained_mean"] = float(
            feedback.successes_M[trained_M].sum() / num_valid
        )
    if "posterior_mean" in data.belief:
        metrics["vade/posterior_error"] = error(data.belief["posterior_mean"], feedback)
    reasons = collections.Counter(one.reason for one in data.scored)
    unknown = sum(not one.is_known for one in data.scored)
    counts = {"timeouts": reasons["timeout"], "crashes": reasons["crash"], "unknown": unknown}
    return metrics | {f"reward/{name}": number for name, number in counts.items()}


def error(expected_M: np.ndarray, feedback: Feedback) -> float:
    """Returns by how much a prompt's share of right answers differs from what was expected, on average."""
    asked_M = feedback.trials_M > 0
    rate_M = feedback.successes_M[asked_M] / feedback.trials_M[asked_M]
    return float(np.mean(np.abs(np.asarray(expected_M)[asked_M] - rate_M)))


def of_answers(feedback: Feedback, rollouts: Rollouts) -> Metrics:
    """Returns the shares of groups that teach, scores and lengths, on the host; some answer must be valid."""
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
    """Returns which groups have training rewards that are not all equal, computed on the host."""
    reward_N, group_N, valid_N = feedback.reward_N, feedback.group_N, feedback.valid_N
    return np.asarray(arrays.varies(np.asarray(reward_N), group_N, len(feedback.index_M), valid_N))
