"""Self-BLEU by hand and against the definition, run by run."""

import collections
import math

import numpy as np
import pytest

from vade_jax.samplers import mmr1


def bleu(answer, references):
    """Papineni et al. 2002 with counters: clipped precisions of order 1 to 3, brevity penalty."""
    logs = []
    for order in (1, 2, 3):
        runs = lambda x, n=order: collections.Counter(
            zip(*(x[i:] for i in range(n)), strict=False)
        )
        count, most = runs(answer), collections.Counter()
        for reference in references:
            most |= runs(reference)
        matches = (count & most).total()
        if order == 1 and not matches:
            return 0.0
        logs.append(math.log((matches or 0.1) / max(count.total(), 1)))
    closest = min((abs(len(r) - len(answer)), len(r)) for r in references)[1]
    return math.exp(min(0.0, 1 - closest / len(answer)) + sum(logs) / 3)


def first(*answers):
    return mmr1.bleu([np.array(answer, np.int64) for answer in answers])[0]


def test_bleu_by_hand():
    # 1-grams 3/4, 2-grams 2/3, 3-grams 1/2; closest reference 4 long: no penalty
    score = first((1, 2, 3, 9), (1, 2, 3, 4), (7,))
    np.testing.assert_allclose(score, (3 / 4 * 2 / 3 * 1 / 2) ** (1 / 3))
    # clipped: 1 of 2 matches; no bigram in common, no trigram at all; exp(1 - 3/2)
    score = first((1, 1), (1, 2, 3))
    np.testing.assert_allclose(score, np.exp(-0.5) * (0.5 * 0.1 * 0.1) ** (1 / 3))
    # references of 2 and 4 tokens are as near: the shorter counts, no penalty
    score = first((1, 2, 3), (1, 2), (1, 2, 9, 9))
    np.testing.assert_allclose(score, (2 / 3 * 1 / 2 * 0.1) ** (1 / 3))
    assert first((5,), (6,)) == 0
    assert first((), (6,)) == 0
    assert first((), ()) == 0
    np.testing.assert_allclose(first((1, 2, 3), (1, 2, 3)), 1)


@pytest.mark.parametrize("vocabulary", [2, 5, 200_000])
def test_equals_the_definition(vocabulary):
    """Forty groups of 2 to 9 answers of 0 to 12 tokens."""
    rng = np.random.default_rng(vocabulary)
    for _ in range(40):
        lengths = rng.integers(0, 13, rng.integers(2, 10))
        answers = [rng.integers(0, vocabulary, n) for n in lengths]
        expected = [
            bleu(tuple(x), [tuple(y) for j, y in enumerate(answers) if j != i])
            for i, x in enumerate(answers)
        ]
        np.testing.assert_allclose(mmr1.bleu(answers), expected, rtol=1e-9)


def test_groups_without_padding():
    """Group 0 says the same twice, group 1 nothing in common, group 2 is alone."""
    token_NT = np.array(
        [[1, 2, 3, 0], [4, 5, 6, 7], [1, 2, 3, 9], [8, 8, 8, 8], [1] * 4]
    )
    length_N, group_N = np.array([3, 4, 3, 4, 4]), np.array([0, 1, 0, 1, 2])
    score_M = mmr1.self_bleu(token_NT, length_N, group_N, 3)
    np.testing.assert_allclose(score_M, [1, 0, 1])
