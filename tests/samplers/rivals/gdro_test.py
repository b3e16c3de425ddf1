"""Prompt-GDRO: its bins, scores and weights, against a loop in plain Python."""

import collections
import fractions
import math

import jax
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import shares

NONE = shares.NO_BIN


class Loop:
    """The rule in plain Python; `events` counts what has happened."""

    def __init__(self, num_items, window, margin):
        self.margin = fractions.Fraction(str(margin))
        self.history = [collections.deque(maxlen=window) for _ in range(num_items)]
        self.bin, self.score = [None] * num_items, [0.0] * 10
        self.events = collections.Counter()

    def weight(self, i):
        return 1.0 if self.bin[i] is None else math.exp(0.65 * self.score[self.bin[i]])

    def learn(self, items, right, asked):
        loss = collections.defaultdict(list)
        for i, r, n in zip(items, right, asked, strict=True):
            if n == 0:
                self.events["no answer"] += self.bin[i] is not None
            elif self.bin[i] is not None:
                loss[self.bin[i]].append(1 - r / n)
        for b, found in loss.items():
            self.score[b] = (1 - 0.12) * self.score[b] + 0.12 * sum(found) / len(found)
            self.events["several of a bin"] += len(found) > 1
        for i, r, n in zip(items, right, asked, strict=True):
            if n:
                self.events["full window"] += len(self.history[i]) == self.history[i].maxlen
                self.history[i].append(r > 0)
                self.move(i)

    def move(self, i):
        rate = fractions.Fraction(sum(self.history[i]), len(self.history[i]))
        plain, old = min(math.floor(10 * rate), 9), self.bin[i]
        if old is not None:
            low, high = fractions.Fraction(old, 10), fractions.Fraction(old + 1, 10)
            stays = low - self.margin <= rate < high + self.margin
            self.events["held"] += stays and plain != old
            if stays:
                return
            self.events["moved"] += plain != old
        self.bin[i] = plain


@pytest.mark.parametrize(("window", "margin"), [(10, 0.05), (4, 0.0), (7, 0.08)])
def test_sixty_steps_are_those_of_a_plain_loop(window, margin):
    """12 prompts, 6 a step, 3 answers; one prompt in eight without them; no advantage is ever given."""
    selector = shares.GDRO(window=window, margin=margin, num_rollouts=3)
    rng, rate_I = np.random.default_rng(2), np.linspace(0, 0.8, 12)
    state, loop = selector.init(12), Loop(12, window, margin)
    for step in range(60):
        proposal = selector.propose(state, jax.random.key(step), 6)
        seen = environment.feedback(proposal, rate_I if step < 30 else rate_I[::-1], rng)
        answered_M = rng.random(6) < 7 / 8
        right_M, asked_M = seen.successes_M * answered_M, seen.trials_M * answered_M
        items = seen.index_M.tolist()
        expected_M = [loop.weight(i) for i in items]
        np.testing.assert_allclose(proposal.weight_M, expected_M, rtol=1e-5)
        np.testing.assert_allclose(
            selector.believe(state, proposal)["gdro/weight"], expected_M, rtol=1e-5
        )
        loop.learn(items, right_M.tolist(), asked_M.tolist())
        state = selector.update(state, seen.replace(successes_M=right_M, trials_M=asked_M))
        assert state.bin_I.tolist() == [NONE if b is None else b for b in loop.bin], step
        np.testing.assert_allclose(state.score_A, loop.score, rtol=1e-5)
    wanted = {"no answer", "several of a bin", "full window", "moved", *(["held"] * (margin > 0))}
    assert all(loop.events[name] >= 3 for name in wanted), loop.events
