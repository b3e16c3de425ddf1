"""Retire and review: who retires, who is reviewed and comes back, against a loop in plain Python."""

import collections
import fractions
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers import ranking
from vade_jax.samplers.rivals import retire

OUT = retire.NOT_RETIRED
SELECTOR = retire.SPEC()


def retired(since_I, selector=SELECTOR, step=0, **arrays):
    """The state with this queue."""
    state = selector.init(len(since_I))
    arrays = {name: jnp.asarray(value) for name, value in arrays.items()}
    since_I = jnp.array(since_I, jnp.int32)
    return state.replace(since_I=since_I, step=jnp.int32(step), **arrays)


def chosen(state, num_prompts, seed=0, selector=SELECTOR):
    return selector.propose(state, jax.random.key(seed), num_prompts).index_M.tolist()


class Loop:
    """The rule in plain Python; `events` counts what has happened."""

    def __init__(self, num_items, rate, decay, review):
        self.rate, self.decay, self.review = rate, decay, fractions.Fraction(str(review))
        self.right, self.wrong = [0.0] * num_items, [0.0] * num_items
        self.visits, self.since, self.step = [0] * num_items, [None] * num_items, 0
        self.events = collections.Counter()

    def ranks(self, items):
        """What is known of these items, and decides: whether active, and the visits or the wait."""
        active = sorted(self.visits[i] for i in items if self.since[i] is None)
        return active, sorted(self.since[i] for i in items if self.since[i] is not None)

    def best(self, num_prompts):
        """The ranks of the batch that is to be chosen; which of equal items it has is luck."""
        active, queue = self.ranks(range(len(self.since)))
        share = self.review * num_prompts
        places = math.floor(share * (self.step + 1)) - math.floor(share * self.step)
        places = min(places, len(queue))
        others = active[: num_prompts - places]
        self.events["review"] += places
        self.events["fill"] += num_prompts - places - len(others)
        return others, queue[: num_prompts - len(others)]

    def learn(self, items, right, asked, is_pass):
        queued = {i for i in items if self.since[i] is not None}
        for i in items:
            self.visits[i] += i not in queued and not is_pass
        current = max(self.visits)
        for i, r, n in zip(items, right, asked, strict=True):
            if n == 0:
                self.events["no answer in the queue"] += i in queued
                continue
            self.right[i] = self.decay * self.right[i] + r
            self.wrong[i] = self.decay * self.wrong[i] + n - r
            if i in queued and r < n:
                self.since[i], self.visits[i] = None, current
                self.events["back"] += 1
            elif i in queued:
                self.since[i] = self.step
                self.events["tail"] += 1
            elif (self.right[i] + 1) / (self.right[i] + self.wrong[i] + 2) > self.rate + 1e-9:
                self.since[i] = self.step
                self.events["retire"] += 1
        self.step += not is_pass


def learned_and_forgotten(step):
    """Pass rates of 20 items: a third always right, a third learned until step 20, then forgotten."""
    return np.repeat([1.0, 0.95 if step < 20 else 0.3, 0.99 if step > 6 else 0.5], [7, 7, 6])


@pytest.mark.parametrize(
    ("num_prompts", "rate", "decay", "review"), [(6, 0.9, 0.75, 0.3), (9, 0.8, 0.5, 0.05)]
)
def test_forty_steps_are_those_of_a_plain_loop(num_prompts, rate, decay, review):
    """A pass every tenth step; one prompt in eight without answers; the reward is 1 for all answers."""
    selector = retire.SPEC(rate=rate, decay=decay, review=review)
    state, loop = selector.init(20), Loop(20, rate, decay, review)
    rng = np.random.default_rng(1)
    for step in range(44):
        key, is_pass = jax.random.key(step), step % 11 == 10
        proposal = selector.propose(state, key, 20 if is_pass else num_prompts)
        seen = environment.feedback(proposal, learned_and_forgotten(step), rng)
        answered_M = rng.random(len(seen.index_M)) < 7 / 8
        right_M, asked_M = seen.successes_M * answered_M, seen.trials_M * answered_M
        seen = seen.replace(
            successes_M=right_M, trials_M=asked_M, reward_N=np.ones_like(seen.reward_N)
        )
        items = seen.index_M.tolist()
        if not is_pass:
            assert len(set(items)) == num_prompts
            assert loop.ranks(items) == loop.best(num_prompts), step
        loop.learn(items, right_M.tolist(), asked_M.tolist(), is_pass)
        state = selector.update(state, seen)
        np.testing.assert_allclose(state.alpha_I, loop.right, rtol=1e-6)
        np.testing.assert_allclose(state.beta_I, loop.wrong, rtol=1e-6)
        assert state.visits_I.tolist() == loop.visits
        assert state.since_I.tolist() == [OUT if s is None else s for s in loop.since]
        assert state.step == loop.step
    rare = {"review", "fill", "no answer in the queue", "back", "tail", "retire"}
    assert all(loop.events[name] >= 3 for name in rare), loop.events


def test_reviews_are_counted_exactly_in_a_long_run():
    steps = np.array([0, 2, 3, 9_999, 10_000, 16_777_217, 2_000_000_001, 2_147_483_646])
    for part in (1, 2500, 4000, 6667, 9999):
        x = fractions.Fraction(part, retire.PARTS)
        expected = [math.floor(x * (int(t) + 1)) - math.floor(x * int(t)) for t in steps]
        assert retire.carry(part, jnp.asarray(steps, jnp.int32)).tolist() == expected


def test_what_it_believes():
    state = retired([2, OUT, OUT, OUT], alpha_I=np.float32([12, 0, 2, 0]), beta_I=np.zeros(4))
    belief = SELECTOR.believe(state, ranking.same_num_rollouts(jnp.array([1, 0]), 8))
    assert belief["retire/retired"].tolist() == [0.25, 0.25]
    assert belief["retire/reviewed"].tolist() == [0, 1]
    np.testing.assert_allclose(belief["posterior_mean"], [1 / 2, 13 / 14], rtol=1e-6)
    # Beta(1, 1): 1 - 2/9; Beta(13, 1): 1 - 13/21 - 1 / C(21, 8)
    mixed = [7 / 9, 8 / 21 - 1 / math.comb(21, 8)]
    np.testing.assert_allclose(belief["prob_mixed"], mixed, rtol=1e-5)
    assert (belief["alpha"].tolist(), belief["beta"].tolist()) == ([0, 12], [0, 0])
