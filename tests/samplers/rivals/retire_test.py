"""Retire and review: who retires, who is reviewed and comes back, against a loop in plain Python."""

import collections
import fractions
import math

import jax
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import queues

OUT = queues.OUT


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
    selector = queues.RETIRE(rate=rate, decay=decay, review=review)
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
