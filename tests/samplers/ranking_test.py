"""The B best of all scores, ties, shares and draws by weight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.samplers import ranking

top_b = jax.jit(ranking.top_b, static_argnames="num_prompts")


def test_top_b_takes_the_best_once():
    score_I = np.random.default_rng(0).permutation(100).astype(np.float32)
    index_M = np.asarray(top_b(score_I, jax.random.key(0), 10))
    assert sorted(index_M) == sorted(np.argsort(-score_I)[:10])
    assert index_M.dtype == np.int32


def test_ties_are_broken_evenly():
    """2 and 2 certain winners, 2 of 6 tied: each of the six in a third of 3,000 draws."""
    score_I = jnp.array([jnp.inf, 0, 3, 1, 1, 1, 1, 1, 1, -jnp.inf, jnp.nan])
    keys = jax.random.split(jax.random.key(0), 3000)
    index_KM = jax.vmap(lambda key: ranking.top_b(score_I, key, 4))(keys)
    count_I = np.bincount(np.ravel(index_KM), minlength=11)
    assert count_I[[0, 2]].tolist() == [3000, 3000]
    assert count_I[[1, 9, 10]].tolist() == [0, 0, 0]
    assert np.all(abs(count_I[3:9] - 1000) < 4 * np.sqrt(3000 * 2 / 9))
    first_I = np.bincount(index_KM[:, 0], minlength=11)  # the order is random as well
    assert np.all(abs(first_I[[0, 2]] - 750) < 4 * np.sqrt(3000 * 3 / 16))


def test_nan_wins_only_when_nothing_else_is_left():
    score_I = jnp.array([jnp.nan, -5.0, jnp.nan, 2.0])
    index_M = top_b(score_I, jax.random.key(0), 3)
    assert {1, 3} < set(index_M.tolist())


def test_bad_sizes_are_named():
    score_I, key = jnp.zeros(12), jax.random.key(0)
    with pytest.raises(ValueError, match=r"13 prompts from a data set of 12.*1 to 12"):
        top_b(score_I, key, 13)
    with pytest.raises(ValueError, match="0 prompts"):
        top_b(score_I, key, 0)


def test_a_share_is_as_it_is_written():
    """In floats 0.29 x 100, 0.57 x 100 and 1.1 x 10 are not whole."""
    for share, num_prompts, expected in (
        *((0.29, 100, 29), (0.57, 100, 57), (1.1, 10, 11), (16.0, 12, 192)),
        *((0.1, 16, 1), (0.05, 16, 0), (0.299, 100, 29), (1.0, 7, 7), (0.0, 7, 0)),
    ):
        assert ranking.share_of(share, num_prompts) == expected


def test_a_draw_by_weight_without_replacement():
    """Weights 4, 2, 1 and 0, two drawn: {i, j} by w_i / 7 x w_j / (7 - w_i), both orders."""
    log_I = jnp.log(jnp.array([4.0, 2, 1, 0])) - 30  # the scale does not matter
    keys = jax.random.split(jax.random.key(0), (4000, 2))
    draw = lambda key: ranking.top_b(ranking.gumbel_scores(log_I, key[0]), key[1], 2)
    pair_K = [tuple(pair) for pair in np.sort(jax.vmap(draw)(keys)).tolist()]
    expected = {
        (0, 1): 4 / 7 * 2 / 3 + 2 / 7 * 4 / 5,
        (0, 2): 4 / 7 * 1 / 3 + 1 / 7 * 4 / 6,
        (1, 2): 2 / 7 * 1 / 5 + 1 / 7 * 2 / 6,
    }
    assert set(pair_K) == set(expected)
    for pair, share in expected.items():
        assert pair_K.count(pair) / 4000 == pytest.approx(share, abs=0.03)
    whole = ranking.top_b(ranking.gumbel_scores(log_I, keys[0, 0]), keys[0, 1], 4)
    assert sorted(whole.tolist()) == [0, 1, 2, 3]
