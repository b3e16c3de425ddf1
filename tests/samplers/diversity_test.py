"""Self-BLEU by hand."""

import numpy as np

from vade_jax.samplers import diversity


def test_bleu_by_hand():
    # 1-grams 3/4, 2-grams 2/3, 3-grams 1/2; closest reference 4 long: no penalty
    score = diversity.bleu((1, 2, 3, 9), [(1, 2, 3, 4), (7,)])
    np.testing.assert_allclose(score, (3 / 4 * 2 / 3 * 1 / 2) ** (1 / 3))
    # clipped: 1 of 2 matches; no bigram in common, no trigram at all; exp(1 - 3/2)
    score = diversity.bleu((1, 1), [(1, 2, 3)])
    np.testing.assert_allclose(score, np.exp(-0.5) * (0.5 * 0.1 * 0.1) ** (1 / 3))
    assert diversity.bleu((5,), [(6,)]) == 0
    assert diversity.bleu((), [(6,)]) == 0
    np.testing.assert_allclose(diversity.bleu((1, 2, 3), [(1, 2, 3)]), 1)


def test_groups_without_padding():
    """Group 0 says the same twice, group 1 nothing in common, group 2 is alone."""
    token_NT = np.array(
        [[1, 2, 3, 0], [4, 5, 6, 7], [1, 2, 3, 9], [8, 8, 8, 8], [1] * 4]
    )
    length_N, group_N = np.array([3, 4, 3, 4, 4]), np.array([0, 1, 0, 1, 2])
    score_M = diversity.self_bleu(token_NT, length_N, group_N, 3)
    np.testing.assert_allclose(score_M, [1, 0, 1])
