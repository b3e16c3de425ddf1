"""How much the answers to one prompt differ, on the host, from their tokens."""

import collections
import math
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
    answers = answers_by_group(token_NT, length_N, group_N, num_groups)
    score_M = np.ones(num_groups, np.float32)
    for m, group in enumerate(answers):
        if len(group) > 1:
            others = lambda i, group=group: group[:i] + group[i + 1 :]
            score_M[m] = np.mean([bleu(x, others(i)) for i, x in enumerate(group)])
    return score_M


def answers_by_group(
    token_NT: Array, length_N: Array, group_N: Array, num_groups: int
) -> list[list[tuple[int, ...]]]:
    """Returns the tokens of every group's answers, without padding."""
    groups = [[] for _ in range(num_groups)]
    for token_T, length, m in zip(token_NT, length_N, group_N, strict=True):
        groups[int(m)].append(tuple(map(int, token_T[:length])))
    return groups


def ngrams(answer: Sequence[int], order: int) -> collections.Counter:
    """Returns how often each run of `order` tokens occurs."""
    return collections.Counter(zip(*(answer[i:] for i in range(order)), strict=False))


def bleu(answer: Sequence[int], references: Sequence[Sequence[int]]) -> float:
    """Returns BLEU (Papineni et al. 2002) of one answer: clipped precisions, brevity penalty."""
    logs = []
    for order in ORDERS:
        count = ngrams(answer, order)
        most = collections.Counter()
        for reference in references:
            most |= ngrams(reference, order)
        matches = (count & most).total()
        if order == 1 and not matches:
            return 0.0
        logs.append(math.log((matches or SMOOTHING) / max(count.total(), 1)))
    closest = min((abs(len(r) - len(answer)), len(r)) for r in references)[1]
    brevity = min(0.0, 1 - closest / len(answer))
    return math.exp(brevity + sum(logs) / len(ORDERS))
