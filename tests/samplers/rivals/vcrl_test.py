"""VCRL: the variance by hand, the bank against a loop with a dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import filters


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
