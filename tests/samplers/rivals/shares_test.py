"""Prompt-GDRO against a loop in plain Python; Knapsack against exhaustive search."""

import collections
import fractions
import functools
import itertools
import math

import jax
import jax.numpy as jnp
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


# ------------------------------------------------------------------------------ Knapsack
make = functools.cache(shares.KNAPSACK)


def value(num, p):
    return (1 - p**num - (1 - p) ** num) * p * (1 - p) ** 2


def allocate(successes, trials, num_rollouts=8, **options):
    """The numbers of answers to items that have those counts, in their order."""
    selector = make(num_rollouts=num_rollouts, **options)
    successes_I, trials_I = np.array(successes), np.array(trials)
    state = selector.init(len(trials)).replace(
        alpha_I=jnp.array(successes_I, jnp.float32),
        beta_I=jnp.array(trials_I - successes_I, jnp.float32),
    )
    proposal = selector.propose(state, jax.random.key(0), len(trials))
    return np.asarray(proposal.num_rollouts_M)[np.argsort(proposal.index_M)]


def test_example_of_the_public_code():
    """With p = 1/16, 1/4, 1/2, 3/4 and four that are dead: 64 answers."""
    num_I = allocate([1, 4, 8, 12, 0, 0, 16, 16], [16] * 8)
    assert num_I.tolist() == [24, 14, 8, 10, 2, 2, 2, 2]


def test_greedy_is_optimal():
    """Three mixed prompts, all ways to share 3 x 5 answers, 2 to 9 each."""
    rng = np.random.default_rng(0)
    ways = [n for n in itertools.product(range(2, 10), repeat=3) if sum(n) == 15]
    for successes in rng.integers(1, 16, (8, 3)):
        num_I = allocate(successes, [16] * 3, num_rollouts=5, max_rollouts=9, confidence=1 - 1e-6)
        total = lambda n, p=successes / 16: sum(map(value, n, p))
        assert num_I.sum() == 15 and num_I.min() >= 2
        np.testing.assert_allclose(total(num_I), max(map(total, ways)), rtol=1e-6)


def test_what_the_mixed_cannot_use_goes_to_those_all_wrong():
    """With p = 1/2 it can use 3 (ln .1 / ln .5 = 3.3): 32 - 8 - 3 = 21 of the rest over two all wrong."""
    num_I = allocate([8, 0, 0, 16], [16] * 4)
    assert num_I[[0, 3]].tolist() == [5, 2]
    assert sorted(num_I[1:3].tolist()) == [12, 13]
    # None all wrong: those all right are filled up, then all alike.
    assert sorted(allocate([8, 16, 16, 16], [16] * 4).tolist()) == [5, 9, 9, 9]
    # The one all wrong takes as many as it may, then those all right.
    num_I = allocate([8, 0, 16, 16], [16] * 4, max_rollouts=11)
    assert num_I[:2].tolist() == [5, 11] and num_I[2:].tolist() == [8, 8]


def test_unknown_prompts_get_the_mean_and_no_surplus():
    """Half of 16 answers right, all wrong, 3 of 5 answers: too few to know."""
    assert allocate([8, 0, 3], [16, 16, 5]).tolist() == [5, 11, 8]


def test_newest_answers_fill_a_buffer():
    """2 of 4 after 9 of 12: 16 in all. 1 of 8 then leaves the 2 of 4, and 4 of the 12: 3 right."""
    selector = make()
    state = selector.init(2)
    for successes, trials, expected in (
        (9, 12, (9, 3)),
        (2, 4, (11, 5)),
        (1, 8, (6, 10)),
        (0, 0, (6, 10)),
        (3, 20, (3, 17)),
    ):
        feedback = environment.counts([1], [successes], [trials])
        state = selector.update(state, feedback)
        found = state.alpha_I[1], state.beta_I[1]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert state.visits_I.tolist() == [0, 5] and state.alpha_I[0] == 0
