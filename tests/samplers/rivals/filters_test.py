"""GRESO: streaks and probabilities by hand, skipping by frequency. VCRL: its bank against a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import filters


def test_streaks_by_hand():
    selector = filters.GRESO()
    state = selector.init(5).replace(streak_I=jnp.array([2, 2, 2, -1, 3]))
    # all right, all wrong, mixed, all wrong, no answer
    feedback = environment.counts([0, 1, 2, 3, 4], [8, 0, 3, 0, 0], [8, 8, 8, 8, 0])
    assert selector.update(state, feedback).streak_I.tolist() == [3, -1, 0, -2, 3]
    assert selector.keep(state, feedback).tolist() == [False, False, True, False, False]


def test_probabilities_follow_their_targets_from_the_second_epoch_on():
    """Targets .25/3 and .25 x 2/3: of 6, one all right (.167), one all wrong (.167, met)."""
    selector = filters.GRESO()
    feedback = environment.counts([0, 1, 2, 3, 4, 5], [8, 0, 3, 4, 5, 6])
    first = selector.update(selector.init(6), feedback)
    np.testing.assert_allclose([first.p_easy, first.p_hard], 0.5)
    later = selector.init(6).replace(epoch_I=jnp.zeros(6, jnp.int32))
    state = selector.update(later, feedback)
    np.testing.assert_allclose([state.p_easy, state.p_hard], [0.49, 0.49], rtol=1e-6)
    few = environment.counts([0, 1, 2, 3, 4, 5], [3, 4, 3, 4, 5, 6])
    state = selector.update(later, few)
    np.testing.assert_allclose([state.p_easy, state.p_hard], [0.51, 0.51], rtol=1e-6)
    bounded = filters.GRESO(p_easy=0.05, p_hard=0.95)
    later = bounded.init(6).replace(epoch_I=jnp.zeros(6, jnp.int32))
    all_right = environment.counts([0, 1, 2, 3, 4, 5], [8] * 6)
    state = bounded.update(later, all_right)
    np.testing.assert_allclose([state.p_easy, state.p_hard], [0.05, 0.95], rtol=1e-6)


@pytest.mark.parametrize(
    ("streak", "keep"), [(0, 1.0), (1, 0.5), (-1, 0.25), (3, 0.125), (-9, 0.01)]
)
def test_epochs_skipped_are_geometric(streak, keep):
    """P(skipped = k) = keep (1 - keep)^k, over 20,000 lucks."""
    size, selector = 20_000, filters.GRESO(p_hard=0.25)
    state = selector.init(size).replace(
        streak_I=jnp.full(size, streak), luck_I=(jnp.arange(size) + 0.5) / size
    )
    skipped_I = np.asarray(filters.due(state))
    share_K = [np.mean(skipped_I == k) for k in range(4)]
    expected_K = [keep * (1 - keep) ** k for k in range(4)]
    np.testing.assert_allclose(share_K, expected_K, atol=2e-4)


# ------------------------------------------------------------------------------ VCRL
def test_variance_by_hand():
    """Of 8: 7/16, 3/4, 15/16, 1 and back; of 5: 4/6, 1; none of 1 or 0 answers."""
    successes_M = jnp.array([0.0, 1, 2, 3, 4, 5, 8, 1, 2, 1, 0])
    trials_M = jnp.array([8.0, 8, 8, 8, 8, 8, 8, 5, 5, 1, 0])
    expected_M = [0, 7 / 16, 3 / 4, 15 / 16, 1, 15 / 16, 0, 4 / 6, 1, 0, 0]
    variance_M = filters.variance(successes_M, trials_M)
    np.testing.assert_allclose(variance_M, expected_M, rtol=1e-6)


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize("replay", ["next_step", "same_step"])
def test_bank_is_that_of_a_loop(replay, momentum):
    """30 steps of 4 of 12 items; each is taken out twice at most, and then trained on.

    In the same step there is a second round of as many prompts as were dropped. What enters in a step
    is not taken out in it; the others' priorities change once a step.
    """
    selector = filters.VCRL(momentum=momentum, first_steps=3, replay=replay)
    state, rng = selector.init(12), np.random.default_rng(0)
    bank, dropped = {}, 0  # item: [priority, step]
    replays, visits = np.zeros(12, int), np.zeros(12, int)
    for step in range(1, 31):
        kappa, entered, seen = 0.3 if step <= 3 else 0.8, {}, set()
        for number in range(2):
            places = dropped if number or replay == "next_step" else 0
            rest = sorted(set(bank) - seen, key=lambda i: (-round(bank[i][0], 5), i))
            best, size = rest[:places], dropped if number else 4
            key = jax.random.key(step + 100 * number)
            proposal = selector.propose(state, key, size)
            index_M = proposal.index_M.tolist()
            assert set(best) <= set(index_M)
            seen |= set(index_M)
            visits[list(set(index_M) - set(best))] += 1
            for item in best:
                del bank[item]
                replays[item] += 1
            successes_M = rng.integers(0, 9, size)
            high_M = successes_M * (8 - successes_M) / 16 >= kappa
            keep_M = high_M | np.isin(index_M, best)
            feedback = environment.counts(index_M, successes_M)
            assert selector.keep(state, feedback).tolist() == keep_M.tolist()
            state = selector.update(state, feedback)
            for item, c, high in zip(index_M, successes_M, high_M, strict=True):
                if high and replays[item] < 2:
                    entered[item] = [c * (8 - c) / 16, step]
            dropped = 0 if number else int(sum(~keep_M))
            if dropped == 0 or replay == "next_step":
                break
        for item in set(bank) - set(entered):
            bank[item][0] *= momentum
            bank[item][0] += (1 - momentum) * (step - bank[item][1])
        bank |= entered
        expected_I = [bank[i][0] if i in bank else -np.inf for i in range(12)]
        np.testing.assert_allclose(state.priority_I, expected_I, rtol=1e-5)
        assert state.replays_I.tolist() == replays.tolist()
        assert state.visits_I.tolist() == visits.tolist()
        assert (state.step, state.dropped) == (step, dropped)
    assert replays.max() == 2 and replays.sum() > 8


def test_nan_is_never_replayed():
    state = filters.VCRL().init(6)
    priority_I = jnp.array([jnp.nan, 0.9, 0.8, 0.7, -jnp.inf, -jnp.inf])
    state = state.replace(priority_I=priority_I, dropped=jnp.int32(2))
    assert np.flatnonzero(filters.replayed(state, 3)).tolist() == [1, 2]
    state = state.replace(dropped=jnp.int32(6))
    assert np.flatnonzero(filters.replayed(state, 6)).tolist() == [1, 2, 3]
