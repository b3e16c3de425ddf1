"""DIVA's difficulty rules and targets, by hand and by independent loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.samplers import diva

wanted = jax.jit(diva.wanted, static_argnames="num_variants")
TARGET = {1: 9, 2: 8, 3: 7, 4: 6, 5: 6, 6: 5, 7: 5, 8: 5, 9: 4}
MEAN = {1: 8, 2: 7.5, 3: 7, 4: 6.5, 5: 6, 6: 5.5, 7: 4.5, 8: 3.5, 9: 3}


def test_the_linear_rule_has_the_papers_numbers():
    # eta = 4, s = 0, .1, ... 1: 2 1.6 1.2 .8 .4 0 -.4 -.8 -1.2 -1.6 -2
    right_I = jnp.arange(11.0)
    new_I = diva.linear(jnp.full(11, 5.0), right_I, jnp.full(11, 10.0), 4.0)
    np.testing.assert_allclose(new_I, 5 + 2 - 0.4 * np.arange(11), rtol=1e-6)


def test_difficulties_stay_from_1_to_9_and_without_answers_as_they_are():
    own_I, right_I = jnp.array([8.5, 1.5, 3.3]), jnp.array([0.0, 10, 0])
    count_I = jnp.array([10.0, 10, 0])
    for new_I in (
        diva.linear(own_I, right_I, count_I, 4.0),
        diva.by_table(own_I, right_I, count_I),
    ):
        np.testing.assert_allclose(new_I, [9, 1, 3.3])


def table_oracle(right, count):
    """Closed ranges in whole numbers: 20 s against 1, 6, 10, 14, 20."""
    for edge, change in zip((1, 6, 10, 14, 20), (2, 1, 0, -1, -2), strict=True):
        if 20 * right <= edge * count:
            return change
    return 0


def test_the_table_is_exact_at_its_edges():
    pairs = [(right, count) for count in range(1, 61) for right in range(count + 1)]
    right_I, count_I = jnp.array(pairs, jnp.float32).T
    new_I = diva.by_table(jnp.full(len(pairs), 5.0), right_I, count_I)
    assert new_I.tolist() == [5 + table_oracle(*pair) for pair in pairs]
    # of the document: s = 0 .1 .2 .3 .4 .5 .6 .7 .8 1
    of_ten = {right: int(new_I[pairs.index((right, 10))]) - 5 for right in range(11)}
    assert [of_ten[r] for r in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)] == [
        *(2, 1, 1, 1, 0, 0, -1, -1, -2, -2)
    ]


def test_mean_rewards_at_an_edge_are_inside_with_some_room():
    # Three answers of reward 0.9 x 0 + 0.1 and the like: sums of float32 tenths.
    reward = np.float32(0.1) + np.float32(0.1) + np.float32(0.7)  # 0.3 on average
    new_I = diva.by_table(
        jnp.array([5.0]), jnp.array([reward]), jnp.array([3.0]), room=1e-5
    )
    assert new_I.tolist() == [6]
    above = diva.by_table(
        jnp.array([5.0]), jnp.array([0.91]), jnp.array([3.0]), room=1e-5
    )
    assert above.tolist() == [5]
    negative = diva.by_table(jnp.array([5.0]), jnp.array([-0.1]), jnp.array([3.0]))
    assert negative.tolist() == [5]


def test_an_only_variant_gets_the_one_target():
    own_Q = jnp.arange(1.0, 10.0)
    wanted_QU = wanted(jax.random.key(0), own_Q, 1)
    assert wanted_QU[:, 0].tolist() == list(TARGET.values())


@pytest.mark.parametrize("num_variants", [1, 3, 6])
def test_wanted_difficulties_are_whole_steps_away_and_in_range(num_variants):
    own_Q = jnp.linspace(1, 9, 161)
    for seed in range(20):
        wanted_QU = wanted(jax.random.key(seed), own_Q, num_variants)
        assert wanted_QU.shape == (161, num_variants)
        delta_QU = np.asarray(wanted_QU) - np.asarray(own_Q)[:, None]
        np.testing.assert_allclose(delta_QU, delta_QU.round(), atol=2e-6)
        assert np.min(wanted_QU) >= 1 - 1e-6 and np.max(wanted_QU) <= 9 + 1e-6
        if num_variants > 1:  # one easier variant at most
            assert np.max(np.sum(delta_QU.round() < 0, 1)) <= 1


def oracle(own, num_variants, rng):
    """Draws the variants of one problem as the public code does, in range."""
    deltas = []
    for _ in range(num_variants):
        delta = np.clip(np.round(rng.normal(MEAN[own], 1)), 1, 9) - own
        if delta < 0 and any(d < 0 for d in deltas):
            delta = min(rng.integers(0, 4), 9 - own)
        deltas.append(delta)
    return deltas


@pytest.mark.parametrize("own", [2, 5, 7, 9])
def test_several_variants_are_distributed_as_the_loop_has_them(own):
    size, rng = 4000, np.random.default_rng(0)
    wanted_QU = wanted(jax.random.key(1), jnp.full(size, float(own)), 3)
    expected_QU = np.array([oracle(own, 3, rng) for _ in range(size)])
    for u in range(3):  # the later ones differ from the first
        ours = np.bincount(np.asarray(wanted_QU[:, u], int), minlength=10) / size
        theirs = np.bincount((expected_QU[:, u] + own).astype(int), minlength=10) / size
        np.testing.assert_allclose(ours, theirs, atol=0.035)  # 3 sd of a difference
