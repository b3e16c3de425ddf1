"""Logits by hand, and tokens that can never be sampled."""

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.models import vocabulary

HIDDEN_ND = jnp.array([[1.0, 2], [0, -1]])
HEAD_DV = jnp.array([[1.0, 0, 3], [0, 1, 1]])


def test_logits_by_hand():
    logits_NV = vocabulary.logits(HIDDEN_ND, HEAD_DV)
    assert logits_NV.tolist() == [[1, 2, 5], [0, -1, -1]]


def test_a_banned_token_has_probability_zero_and_the_others_share_its_mass():
    logits_NV = vocabulary.logits(HIDDEN_ND, HEAD_DV, banned=(2,))
    assert logits_NV.tolist() == [[1, 2, -np.inf], [0, -1, -np.inf]]
    prob_NV = jax.nn.softmax(logits_NV)
    assert prob_NV[:, 2].tolist() == [0, 0]
    np.testing.assert_allclose(prob_NV[:, 0], 1 / (1 + np.exp([1, -1])), rtol=1e-6)


def test_a_banned_token_takes_no_gradient():
    def logp(head_DV):
        logits_NV = vocabulary.logits(HIDDEN_ND, head_DV, banned=(2,))
        return jax.nn.log_softmax(logits_NV)[:, 0].sum()

    gradient_DV = jax.grad(logp)(HEAD_DV)
    assert np.isfinite(gradient_DV).all() and not gradient_DV[:, 2].any()
    assert gradient_DV[:, :2].all()


def test_bfloat16_products_are_summed_in_float32():
    """256 + 1 is no bfloat16."""
    hidden_ND = jnp.array([[16.0, 1]], jnp.bfloat16)
    logits_NV = vocabulary.logits(hidden_ND, hidden_ND.T)
    assert logits_NV.dtype == jnp.float32 and logits_NV.tolist() == [[257]]
