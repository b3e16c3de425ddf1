import functools

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

from vade_jax.rollout import decode
from vade_jax.rollout.engine import Sampling

NUM = 40_000  # draws of each program, however few are looked at
draw = jax.jit(decode.draw, static_argnums=2)


@functools.cache
def uniforms():
    return jax.jit(decode.uniforms, static_argnums=2)(jax.random.key(0), np.arange(NUM), 1)[:, 0]


def logits(num_rows=1, num_tokens=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_rows, num_tokens)).astype(np.float32) * 2


def hugging_face_truncation(logits_V, top_p, top_k):
    """Sort, as transformers' warpers do: top-k first, then the smallest set of mass >= p."""
    order = np.argsort(-logits_V)
    keep = np.zeros(len(logits_V), bool)
    keep[order[: top_k or len(order)]] = True
    prob = np.where(keep, np.exp(logits_V), 0)
    prob = prob / prob.sum()
    before = np.cumsum(prob[order]) - prob[order]
    keep[order[before >= top_p]] = False
    return np.where(keep, logits_V, -np.inf)


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 0.01])
@pytest.mark.parametrize("top_k", [0, 1, 5])
def test_truncation_equals_a_sort(top_p, top_k):
    x_NV = logits(6)
    expected = [hugging_face_truncation(x, top_p, top_k) for x in x_NV]
    np.testing.assert_array_equal(decode.truncate(x_NV, top_p, top_k), expected)


def test_the_nucleus_holds_all_that_tie_at_its_edge():
    prob_NV = np.array([[0.125, 0.5, 0.125, 0.125, 0.125], [0.375, 0, 0.25, 0.375, 0]], np.float32)
    found = (np.asarray(decode.truncate(jax.lax.log(prob_NV), p, 0)) for p in (0.4, 0.6, 0.8))
    kept = [(x > -np.inf).sum(1).tolist() for x in found]
    assert kept == [[1, 2], [5, 2], [5, 3]]


def test_draws_follow_the_tempered_truncated_distribution():
    row, num = logits()[0], NUM
    x_NV = np.broadcast_to(row, (num, len(row)))
    token_N, logp_N = draw(uniforms(), x_NV, Sampling(0.7, 0.9, 8))
    kept = hugging_face_truncation(row.astype(np.float64) / 0.7, 0.9, 8)
    prob = np.exp(kept) / np.exp(kept).sum()
    counts = np.bincount(token_N, minlength=len(row))
    assert counts[prob == 0].sum() == 0
    assert scipy.stats.chisquare(counts[prob > 0], num * prob[prob > 0]).pvalue > 1e-3
    np.testing.assert_allclose(logp_N, np.log(prob)[token_N], atol=2e-6)


def test_a_forbidden_row_is_never_drawn_even_first_or_last():
    x_NV = np.zeros((5000, 6), np.float32)
    x_NV[:, [0, 3, 5]] = -np.inf
    token_N, _ = draw(uniforms()[:5000], x_NV, Sampling(1.0, 1.0, 0))
    assert set(np.unique(token_N)) == {1, 2, 4}
    edges = np.array([0.0, 1 - 2**-24], np.float32)
    token_N, total_N = jax.jit(decode.inverse_cdf)(edges, np.exp(x_NV[:2]))
    np.testing.assert_array_equal(token_N, [1, 4])
    np.testing.assert_allclose(total_N, 3)


def test_a_draw_finds_its_token_in_whichever_block_it_is():
    """Beside one running sum over the whole vocabulary, in float64; empty blocks at both ends and inside."""
    rng = np.random.default_rng(0)
    weight_V = rng.exponential(size=1000) * (rng.random(1000) < 0.3)
    weight_V[:130] = weight_V[400:600] = weight_V[900:] = 0
    uniform_N = rng.random(20_000).astype(np.float32)
    weight_NV = np.broadcast_to(weight_V.astype(np.float32), (20_000, 1000))
    token_N, total_N = jax.jit(decode.inverse_cdf)(uniform_N, weight_NV)
    end_V = np.cumsum(weight_V)
    expected_N = np.searchsorted(end_V, uniform_N * end_V[-1], "right")
    assert np.mean(np.asarray(token_N) != expected_N) < 1e-3  # where rounding moves an edge
    assert np.all(weight_V[token_N] > 0)
    np.testing.assert_allclose(total_N, end_V[-1], rtol=1e-6)


def test_temperature_zero_takes_the_most_likely_token():
    x_NV = logits(5)
    token_N, logp_N = draw(uniforms()[:5], x_NV, Sampling(0, 1.0, 0))
    np.testing.assert_array_equal(token_N, x_NV.argmax(-1))
    np.testing.assert_allclose(logp_N, scipy.special.log_softmax(x_NV, -1).max(-1), atol=1e-6)


def test_each_row_draws_from_its_own_number():
    x_NV, uniform_N = np.zeros((64, 1000), np.float32), np.asarray(uniforms()[:64])
    token_N, _ = draw(uniform_N, x_NV, Sampling(1.0, 1.0, 0))
    assert len(np.unique(token_N)) > 50
    alone, _ = draw(uniform_N[7:8], x_NV[:1], Sampling(1.0, 1.0, 0))
    assert alone[0] == token_N[7]
