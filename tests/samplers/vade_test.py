"""VADE: warm-up, variants, and that it finds the items that teach."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import rng, samplers
from vade_jax.samplers import beta, precedence, vade

# 30 % solved, 40 % hopeless, the rest in between: uniform's ratio is about 0.27
RATE = np.random.default_rng(7).permutation(
    np.r_[np.ones(120), np.zeros(160), np.linspace(0.1, 0.9, 120)]
)


def run(selector, rate_I, num_prompts, num_steps, seed=0):
    """Returns indices and effective groups of every step, and the last state."""
    steps, state = environment.play(
        selector, selector.init(len(rate_I)), rate_I, num_prompts, num_steps, seed
    )
    index_SM = np.array([proposal.index_M for proposal, _ in steps])
    effective_SM = np.array([seen.mixed_M for _, seen in steps])
    return index_SM, effective_SM, state


def state_of(alpha_I, beta_I, unseen_I=None):
    unseen_I = np.zeros(len(alpha_I), bool) if unseen_I is None else unseen_I
    return vade.VadeState(
        alpha_I=jnp.array(alpha_I, jnp.float32),
        beta_I=jnp.array(beta_I, jnp.float32),
        unseen_I=jnp.array(unseen_I),
    )


make = functools.cache(vade.SPEC)


def choose(state, num_prompts, seed=0, **options):
    proposal = make(**options).propose(state, jax.random.key(seed), num_prompts)
    return set(np.asarray(proposal.index_M).tolist())


def test_full_warmup_visits_every_item_once_then_fills_up():
    """10 items, 4 a step: 4, 4, 2 unseen and 2 others; then nothing is unseen."""
    index_SM, _, state = run(vade.SPEC(num_rollouts=2), np.full(10, 0.5), 4, 3)
    assert set(np.ravel(index_SM).tolist()) == set(range(10))
    assert len(set(np.ravel(index_SM[:2]).tolist())) == 8
    assert not np.any(state.unseen_I)
    none = vade.SPEC(warmup="none").init(10)
    assert not np.any(none.unseen_I)


def test_a_prompt_without_valid_answers_comes_first_no_more_and_ends_its_streak():
    selector = vade.SPEC(max_consecutive=3)
    state = selector.init(4).replace(streak_I=jnp.array([2, 2, 2, 0]))
    state = selector.update(state, environment.counts([0, 1], [3, 0], [8, 0]))
    assert state.unseen_I.tolist() == [False, False, True, True]
    assert state.streak_I.tolist() == [3, 0, 0, 0]


def test_information_per_token_by_hand():
    """All answers: 90 of 9 answers, 10 each. Items 0 and 1 are as informative, 1 has shorter answers."""
    state = state_of([2, 2, 0], [2, 2, 1]).replace(token_I=jnp.array([60.0, 20, 10]))
    length_I = np.array([(60 + 10) / 5, (20 + 10) / 5, (10 + 10) / 2])
    np.testing.assert_allclose(
        precedence.expected_tokens(state.token_I, np.array([4, 4, 1])), length_I
    )
    # greedy p: 1/2, 1/2, 0; then 1/3 beside 1/2: 4/27 / 10 of item 2 is less than 1/8 / 6 of item 1
    assert choose(state, 1, draw="greedy", per="token") == {1}
    state = state.replace(alpha_I=jnp.array([2, 2, 1 / 3]), beta_I=jnp.array([2, 2, 2 / 3]))
    assert choose(state, 1, draw="greedy") == {2}
    assert choose(state, 1, draw="greedy", per="token") == {1}
    # Nothing is known: all are alike.
    nothing = precedence.expected_tokens(jnp.zeros(3), jnp.zeros(3))
    assert nothing.tolist() == [1, 1, 1]


def test_tokens_decay_like_the_counts():
    """Items 0 and 3 are answered, 3 without a verdict on its second answer; 1 has none that counts."""
    selector = make(per="token")
    state = selector.init(4).replace(token_I=jnp.full(4, 100.0))
    seen = environment.counts([0, 3, 1], [1, 1, 0], [2, 1, 0]).replace(
        group_N=np.array([0, 0, 1, 1, 2], np.int32),
        length_N=np.array([5, 7, 11, 13, 17], np.int32),
        valid_N=np.array([1, 1, 1, 0, 0], bool),
    )
    after = selector.update(state, seen)
    np.testing.assert_allclose(after.token_I, [20 + 12, 99.9, 99.9, 20 + 11], rtol=1e-6)
    np.testing.assert_array_equal(after.alpha_I + after.beta_I, [2, 0, 0, 1])
    assert make().init(4).token_I is None and selector.needs.lengths


def test_greedy_and_mean_choose_by_hand():
    # greedy p: 0, 1, 1/2 (no counts), 1/3; p (1-p)^2: 0, 0, 1/8, 4/27
    state = state_of([0, 8, 0, 2], [8, 0, 0, 4])
    assert choose(state, 1, draw="greedy") == {3}
    assert choose(state, 2, draw="greedy") == {2, 3}
    assert choose(state, 1, draw="greedy", info_gain="p(1-p)") == {2}
    # mean p: 1/10, 9/10, 1/2, 3/8; p (1-p)^2: 0.081, 0.009, 0.125, 0.146
    assert choose(state, 3, draw="mean") == {0, 2, 3}
    p_I = vade.greedy(jax.random.key(0), state.alpha_I, state.beta_I)
    np.testing.assert_allclose(p_I, [0, 1, 0.5, 1 / 3], rtol=1e-6)


def test_thompson_chooses_in_proportion_to_the_chance_of_being_best():
    """Beta(2, 2) against Beta(9, 1): how often each wins, against numpy's draws."""
    random = np.random.default_rng(0)
    gain = lambda p: p * (1 - p) ** 2
    expected = np.mean(gain(random.beta(2, 2, 10**6)) > gain(random.beta(9, 1, 10**6)))
    selector, state = make(), state_of([1, 8], [1, 0])
    keys = jax.random.split(jax.random.key(0), 4000)
    index_KM = jax.vmap(lambda key: selector.propose(state, key, 1).index_M)(keys)
    assert abs(np.mean(index_KM == 0) - expected) < 4 * np.sqrt(0.25 / 4000)


def test_draws_and_ties_have_keys_of_their_own():
    """With one key for both, which of two tied items gets in would depend on what was drawn."""
    state, key = state_of([1, 8, 3], [1, 0, 2]), jax.random.key(4)
    proposal = make().propose(state, key, 2)
    drawn_I = jax.jit(beta.draw)(rng.selection_keys(key).draw, state.alpha_I, state.beta_I)
    np.testing.assert_array_equal(proposal.p_M, drawn_I[proposal.index_M])


@pytest.mark.parametrize(
    ("options", "expected_alpha", "expected_beta"),
    [
        ({}, [0.999 * 4, 0.2 * 6 + 3], [0.999 * 8, 0.2 * 2 + 5]),
        ({"decay_selected": 0.5, "decay_rest": 1.0}, [4, 6], [8, 6]),
        ({"history": "last_update"}, [4, 3], [8, 5]),
    ],
)
def test_update_decays_at_two_speeds(options, expected_alpha, expected_beta):
    selector, state = vade.SPEC(**options), state_of([4, 6], [8, 2], [False, True])
    assert choose(state, 1) == {1}  # the unseen one
    state = selector.update(state, environment.counts([1], [3]))
    np.testing.assert_allclose(state.alpha_I, expected_alpha, rtol=1e-6)
    np.testing.assert_allclose(state.beta_I, expected_beta, rtol=1e-6)
    assert not np.any(state.unseen_I)


def test_consecutive_visits_are_capped():
    """The best 2 of 5 twice, then they rest once; with B = I there is no choice."""
    state = state_of([1e4, 1e4, 0, 0, 0], [2e4, 2e4, 1e4, 1e4, 1e4])
    state = state.replace(streak_I=jnp.zeros(5, jnp.int32))
    selector = vade.SPEC(warmup="none", max_consecutive=2, decay_selected=1.0)
    rate_I = np.array([1 / 3, 1 / 3, 0, 0, 0])
    steps, state = environment.play(selector, state, rate_I, 2, 6)
    chosen = [{0, 1} == set(proposal.index_M.tolist()) for proposal, _ in steps]
    assert chosen == [True, True, False] * 2
    assert state.streak_I[:2].tolist() == [0, 0] and state.streak_I.sum() == 2
    state = state.replace(streak_I=jnp.full(5, 2))
    index_M = selector.propose(state, jax.random.key(0), 5).index_M
    assert sorted(index_M.tolist()) == [0, 1, 2, 3, 4]


def test_a_share_of_the_batch_is_even():
    """4 of 40 hopeless: only the even half of 8 can be of them, each 4/40 of the time."""
    state = state_of(np.r_[np.full(36, 1e4), np.zeros(4)], np.full(40, 2e4))
    selector = vade.SPEC(uniform_share=0.5, warmup="none")
    keys = jax.random.split(jax.random.key(0), 2000)
    index_KM = jax.vmap(lambda key: selector.propose(state, key, 8).index_M)(keys)
    count_I = np.bincount(np.ravel(index_KM), minlength=40) / 2000
    assert np.all(abs(count_I[36:] - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 2000))
    assert all(len(set(index_M)) == 8 for index_M in index_KM.tolist())


def test_effective_ratio_beats_uniform():
    """The share of mixed groups after the warm-up, by 30 points, on three seeds."""
    ours, uniform = make(), samplers.SAMPLERS["uniform"]()
    for seed in range(3):
        _, ours_SM, _ = run(ours, RATE, 40, 30, seed)
        _, uniform_SM, _ = run(uniform, RATE, 40, 30, seed)
        assert 0.2 < uniform_SM[10:].mean() < 0.35
        assert ours_SM[10:].mean() > uniform_SM[10:].mean() + 0.3
