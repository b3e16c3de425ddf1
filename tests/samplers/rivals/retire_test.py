"""Retire and review: who retires, who is reviewed and comes back, against a loop in plain Python."""

import collections
import fractions
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers import base, ranking
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


# ------------------------------------------------------------------------------ the whole of it
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


# ------------------------------------------------------------------------------ who retires
@pytest.mark.parametrize(
    ("right", "last"),
    [
        ([8], False),  # 9/10, which is not above .9
        ([8, 8], True),  # 15/16
        ([7, 8], False),  # 14.25/16
        ([7, 8, 8], True),  # 18.9/20.5
        ([8, 8, 8, 8, 8, 7], False),  # no wrong answer so far: it is in the queue, and comes back
    ],
)
def test_groups_of_eight_that_retire_a_prompt(right, last):
    state = SELECTOR.init(2)
    for successes in right:
        state = SELECTOR.update(state, environment.counts([1], [successes]))
    assert state.since_I.tolist() == [OUT, len(right) - 1 if last else OUT]


def test_groups_of_four_retire_a_prompt_after_three():
    """8/9 after two; 10.25/11.25 after three."""
    state, index_M = SELECTOR.init(2), [1]
    for last in (False, False, True):
        state = SELECTOR.update(state, environment.counts(index_M, [4], [4]))
        assert (state.since_I[1] != OUT) == last


def chance_of_retiring(pass_rate, visits, num_rollouts=8):
    """The probability that an item retires within so many visits: over all sums that counts can have.

    Right answers at visit v, decayed by 3/4 each, are a whole number of 4**-v: its chance is at that place.
    """
    answers = np.arange(num_rollouts + 1)
    chance_G = np.array([math.comb(num_rollouts, s) for s in answers], float)
    chance_G *= pass_rate**answers * (1 - pass_rate) ** answers[::-1]
    active, trials = np.ones(1), 0.0
    for visit in range(visits):
        trials, unit = 0.75 * trials + num_rollouts, 4**visit
        after = np.zeros(3 * len(active) - 2 + num_rollouts * unit)
        for s, chance in enumerate(chance_G):
            after[s * unit :][: 3 * len(active) : 3] += chance * active
        active = after[: math.floor((0.9 * (trials + 2) - 1) * unit + 1e-6) + 1]
    return 1 - active.sum()


def test_luck_hardly_retires_a_prompt():
    """5,000 items with pass rate .7 in ten visits: .0057 retire, and .45 of them have had 8 of 8."""
    num_items, rng = 5_000, np.random.default_rng(0)
    state, index_M = SELECTOR.init(num_items + 1), np.arange(num_items)  # more items: no pass
    latest_M, ever_M = np.zeros((2, num_items), bool)
    for _ in range(10):
        right_M = rng.binomial(8, 0.7, num_items)
        state = SELECTOR.update(state, environment.counts(index_M, right_M))
        latest_M |= right_M == 8
        ever_M |= np.asarray(state.since_I)[:-1] != OUT
    expected, by_luck = chance_of_retiring(0.7, 10), 1 - (1 - 0.7**8) ** 10
    assert (round(expected, 4), round(by_luck, 4)) == (0.0057, 0.4478)
    deviations = lambda found, p: abs(found.mean() - p) / math.sqrt(p * (1 - p) / num_items)
    assert deviations(ever_M, expected) < 4 and deviations(latest_M, by_luck) < 4


# ------------------------------------------------------------------------------ the queue
def test_what_was_forgotten_comes_back_into_the_current_pass():
    """Items 0 to 3 are mastered, and then 0 is forgotten. It is visited as often as the others then are."""
    selector, rng = retire.SPEC(review=0.25), np.random.default_rng(0)
    rate_I, state, back = np.array([1.0] * 4 + [0.5] * 8), selector.init(12), None
    for step in range(80):
        if step == 40:
            assert (np.asarray(state.since_I) != OUT).tolist() == [True] * 4 + [False] * 8
            rate_I[0] = 0.5
        proposal = selector.propose(state, jax.random.key(step), 4)
        state = selector.update(state, environment.feedback(proposal, rate_I, rng))
        if step >= 40 and back is None and state.since_I[0] == OUT:
            back, visited_I = step, np.zeros(12, int)
        elif back is not None:
            np.add.at(visited_I, np.asarray(proposal.index_M), 1)
        active_I = np.asarray(state.since_I) == OUT
        assert np.ptp(np.asarray(state.visits_I)[active_I]) <= 1
    assert back is not None and back < 40 + 8  # four wait, one of them is reviewed a step
    assert active_I[0] and np.ptp(visited_I[active_I]) <= 2 and visited_I[0] > 5


def test_the_longest_wait_is_reviewed_first():
    """Two of eight places; 1 and 6 have waited longest, one of 2 and 5 is next after one of them left."""
    selector = retire.SPEC(review=0.25)
    since_I = [OUT] * 20
    since_I[1], since_I[6], since_I[2], since_I[5], since_I[9] = 3, 0, 7, 7, 8
    in_queue = lambda state, seed: {1, 2, 5, 6, 9} & set(chosen(state, 8, seed, selector))
    assert all(in_queue(retired(since_I, step=9), seed) == {1, 6} for seed in range(8))
    since_I[6] = OUT
    rest = [in_queue(retired(since_I, step=9), seed) - {6} for seed in range(16)]
    assert set(map(frozenset, rest)) == {frozenset({1, 2}), frozenset({1, 5})}


def test_small_batches_review_every_few_steps():
    """Of 3 places .15 are a review: steps 7, 14 and 20 of twenty have one."""
    state = retired([0] * 3 + [OUT] * 9)
    reviews = [
        sum(item < 3 for item in chosen(state.replace(step=jnp.int32(t)), 3)) for t in range(20)
    ]
    assert np.flatnonzero(reviews).tolist() == [6, 13, 19] and sum(reviews) == 3
    assert chosen(state.replace(step=jnp.int32(6)), 3, selector=retire.SPEC(review=0.0))[0] > 2


def test_reviews_are_counted_exactly_in_a_long_run():
    steps = np.array([0, 2, 3, 9_999, 10_000, 16_777_217, 2_000_000_001, 2_147_483_646])
    for part in (1, 2500, 4000, 6667, 9999):
        x = fractions.Fraction(part, retire.PARTS)
        expected = [math.floor(x * (int(t) + 1)) - math.floor(x * int(t)) for t in steps]
        assert retire.carry(part, jnp.asarray(steps, jnp.int32)).tolist() == expected


def test_a_queue_fills_the_batch_without_duplicates():
    """Five of eight are retired: six places are the three others and the longest waits; then all are."""
    state = retired([4, OUT, 2, OUT, 0, OUT, 3, 5], step=7)
    assert all(set(chosen(state, 6, seed)) == {1, 3, 5, 4, 2, 6} for seed in range(8))
    state = retired([4, 1, 2, 6, 0, 7, 3, 5], step=8)
    assert all(sorted(chosen(state, 3, seed)) == [1, 2, 4] for seed in range(8))
    assert sorted(chosen(state, 8)) == list(range(8))


def test_a_pass_is_evidence_but_no_step():
    """Of 0-2 retired: right, wrong, without answers; 3 retires by it and 4 does not; nobody was visited."""
    alpha_I, visits_I = np.float32([12, 12, 12, 8, 8]), np.array([2, 1, 2, 3, 2], np.int32)
    state = retired(
        [1, 2, 3, OUT, OUT], step=9, alpha_I=alpha_I, beta_I=np.zeros(5), visits_I=visits_I
    )
    seen = environment.counts(range(5), [8, 7, 0, 8, 7], [8, 8, 0, 8, 8])
    assert base.is_pass(seen, 5)
    after = SELECTOR.update(state, seen)
    assert after.since_I.tolist() == [9, OUT, 3, 9, OUT]
    assert after.visits_I.tolist() == [2, 3, 2, 3, 2] and after.step == 9
    assert after.alpha_I.tolist() == [17, 16, 12, 14, 13]
    assert after.beta_I.tolist() == [0, 1, 0, 0, 1]


# ------------------------------------------------------------------------------ what it says
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
