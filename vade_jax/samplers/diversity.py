"""How much the answers to one prompt differ, on the host, from their tokens."""

from collections.abc import Sequence

import numpy as np

from vade_jax.types import Array

ORDERS = (1, 2, 3)
SMOOTHING = 0.1  # stands for 0 matches from bigrams on (Chen and Cherry 2014, method 1)


def self_bleu(
    token_NT: Array, length_N: Array, group_N: Array, num_groups: int
) -> np.ndarray:
    """Returns the mean BLEU of each answer against the others of its group, [num_groups].

    BLEU-3 with equal weights, as MMR1's (arXiv 2509.21268); padding does not count here. 1: all
    answers say the same. A group of fewer than two answers has 1: nothing in it differs.
    """
    groups = [[] for _ in range(num_groups)]
    for token_T, length, m in zip(token_NT, length_N, group_N, strict=True):
        groups[int(m)].append(np.asarray(token_T[:length], np.int64))
    several = lambda answers: len(answers) > 1
    means = [np.mean(bleu(g)) if several(g) else 1.0 for g in groups]
    return np.array(means, np.float32)


def bleu(answers: Sequence[np.ndarray]) -> np.ndarray:
    """Returns BLEU (Papineni et al. 2002) of each of the answers, the others its references, [G].

    Clipped precisions and the brevity penalty against the reference of the closest length.
    """
    length_G = np.array([len(answer) for answer in answers])
    log_G = np.zeros(len(answers))
    for order in ORDERS:
        match_G = matches(answers, order)
        if order == 1:
            some_G = match_G > 0
        match_G = np.where(match_G > 0, match_G, SMOOTHING)
        log_G += np.log(match_G / np.maximum(length_G - order + 1, 1)) / len(ORDERS)
    brevity_G = np.minimum(0, 1 - closest(length_G) / np.maximum(length_G, 1))
    return np.where(some_G, np.exp(log_G + brevity_G), 0.0)


def matches(answers: Sequence[np.ndarray], order: int) -> np.ndarray:
    """Returns how many runs of `order` tokens of each answer another one has as often, [G]."""
    num_answers, base = len(answers), 1 + max(int(a.max(initial=0)) for a in answers)
    runs = [_runs(answer, order, base) for answer in answers]
    names, place_Q = np.unique(np.concatenate(runs), return_inverse=True)
    owner_Q = np.repeat(np.arange(num_answers), [len(x) for x in runs])
    count_GU = np.bincount(
        owner_Q * len(names) + place_Q, minlength=num_answers * len(names)
    )
    count_GU = count_GU.reshape(num_answers, len(names))
    if not len(names):
        return np.zeros(num_answers)
    second_U, most_U = np.partition(count_GU, (-2, -1), axis=0)[-2:]
    # Of the others: the one that has most of all is beaten by the second alone.
    others_GU = np.where(count_GU == most_U, second_U, most_U)
    return np.minimum(count_GU, others_GU).sum(1)


def closest(length_G: np.ndarray) -> np.ndarray:
    """Returns the length of another answer that is nearest, of two the shorter, [G]."""
    distance_GG = np.abs(length_G[:, None] - length_G) * 1.0
    np.fill_diagonal(distance_GG, np.inf)
    # A tie goes to the shorter: lengths are whole, so a fraction of one decides nothing else.
    shorter_G = length_G / (length_G.max() + 1.0) / 2
    return length_G[np.argmin(distance_GG + shorter_G, axis=1)]


def _runs(answer, order, base):
    """Each run of `order` tokens as one number."""
    width = max(len(answer) - order + 1, 0)
    return sum(answer[i : i + width] * base**i for i in range(order))
