"""Prompt-GDRO: its bins, scores and weights, against a loop in plain Python."""

import collections
import fractions
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers
from vade_jax.samplers.rivals import gdro

NONE = gdro.NO_BIN


def weights(selector, state):
    """The weight of every item."""
    proposal = selector.propose(state, jax.random.key(0), len(state.bin_I))
    return np.asarray(proposal.weight_M)[np.argsort(proposal.index_M)]


# ------------------------------------------------------------------------------ the whole of it
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
    selector = gdro.SPEC(window=window, margin=margin, num_rollouts=3)
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


def test_prompts_are_those_of_uniform():
    ours, others = samplers.SAMPLERS["gdro"](), samplers.SAMPLERS["uniform"]()
    chosen = [
        [
            proposal.index_M.tolist()
            for proposal, _ in environment.play(x, x.init(11), np.linspace(0, 1, 11), 4, 9)[0]
        ]
        for x in (ours, others)
    ]
    assert chosen[0] == chosen[1]


# ------------------------------------------------------------------------------ weights
def test_the_published_mixture_of_the_weights():
    """Scores 0, .5 and 1 with eta = 1: .9 of the softmax and .1 even are .201, .310 and .489."""
    score_A = jnp.array([0.0, 0.5, 1.0])
    weight_A = np.asarray(gdro.weight(score_A, gdro.GdroOptions(sharpness=1.0)))
    np.testing.assert_allclose(
        0.9 * weight_A / weight_A.sum() + 0.1 / 3, [0.201, 0.310, 0.489], atol=5e-4
    )


def test_weights_by_hand():
    """exp(.65 x .4) = 1.297; nothing can exceed exp(.65) = 1.916 unless C or eta are larger."""
    score_A = jnp.array([0.4, 1.0, 3.0, -3.0])
    of = lambda **options: np.asarray(gdro.weight(score_A, gdro.GdroOptions(**options)))
    np.testing.assert_allclose(of(), [1.29693, 1.91554, 1.91554, 0.52205], rtol=1e-5)
    np.testing.assert_allclose(of(clip=2.0)[2:], [3.66930, 0.27253], rtol=1e-4)
    assert of(clip=9.0, sharpness=1.0)[2] == 15 and of(sharpness=0.0).tolist() == [1, 1, 1, 1]


def test_bins_of_mixed_groups_do_not_tie():
    """The paper's loss, a mean of advantages, is 0 for both: here they are told apart by their rates."""
    selector = gdro.SPEC(learning_rate=1.0)
    state = selector.init(3).replace(bin_I=jnp.array([2, 7, NONE]))
    state = selector.update(state, environment.counts([0, 1, 2], [2, 6, 1]))
    np.testing.assert_allclose(state.score_A[jnp.array([2, 7])], [0.75, 0.25])
    assert np.count_nonzero(state.score_A) == 2  # the prompt without a bin counts for none
    weight_I = weights(selector, state.replace(bin_I=jnp.array([2, 7, NONE])))
    np.testing.assert_allclose(weight_I, [math.exp(0.65 * 0.75), math.exp(0.65 * 0.25), 1], 1e-5)


def test_a_bin_without_prompts_keeps_its_score():
    selector = gdro.SPEC()
    state = selector.init(2).replace(score_A=jnp.full(10, 0.5), bin_I=jnp.array([4, 4]))
    after = selector.update(state, environment.counts([0, 1], [8, 4]))
    expected_A = np.full(10, 0.5)
    expected_A[4] = 0.88 * 0.5 + 0.12 * 0.25
    np.testing.assert_allclose(after.score_A, expected_A, rtol=1e-6)


# ------------------------------------------------------------------------------ bins
def bins(visits, **options):
    """The bin of an item after each of its visits, 1 with a right answer and 0 without."""
    selector, found = gdro.SPEC(**options), []
    state = selector.init(2)
    for solved in visits:
        state = selector.update(state, environment.counts([1], [solved], [4]))
        found.append(int(state.bin_I[1]))
        assert state.bin_I[0] == NONE
    return found


def test_only_the_latest_visits_count():
    # 1, 1/2, 1/3, 1/4, then the first visit leaves the window of 4; at last 1/4 to 3/4 of it are solved
    assert bins([1, 0, 0, 0, 0, 1, 1, 1], window=4, margin=0.0) == [9, 5, 3, 2, 0, 2, 5, 7]
    full = bins([1] * 32 + [0] * 32, window=32, margin=0.0)
    assert full[:32] == [9] * 32 and full[-1] == 0 and full[47] == 5
    usual = bins([1] * 10 + [0] * 10, margin=0.0)
    assert usual[9:] == [9, *range(9, -1, -1)]  # 10, 9, ... 0 of the latest ten


def test_a_rate_must_leave_its_bin_by_the_margin():
    """From 3/5 = .6, in bin 6: 4/6 stays, 5/7 = .714 stays, 6/8 = .75 is .05 beyond the edge at .7."""
    visits = [1, 1, 1, 0, 0, 1, 1, 1]
    assert bins(visits)[4:] == [6, 6, 6, 7]
    assert bins(visits, margin=0.0)[4:] == [6, 6, 7, 7]
    # From 7/10 down to 6/10 is 0.1 below the edge at .7, 2/3 only .033
    assert bins([1] * 7 + [0] * 3, margin=0.08)[-1] == 7
    assert bins([1, 1, 0, 1], margin=0.05)[2:] == [6, 7]
