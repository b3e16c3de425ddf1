"""ReMind and retire: who joins the queue, is reviewed and leaves it; retire against a loop."""

import collections
import fractions
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers
from vade_jax.samplers.rivals import queues

OUT = queues.OUT
CATEGORY = {"category": np.arange(200) % 3}
ARRAYS = {"sec": CATEGORY, "strata": CATEGORY}  # what a base's init needs


def make(**options):
    return samplers.SAMPLERS["remind"](**options)


def queue(selector, since_I, step=4):
    """The state before step 5, the first with reviews, with this queue."""
    state = selector.init(len(since_I))
    return state.replace(since_I=jnp.array(since_I, jnp.int32), step=jnp.int32(step))


def test_leaving_joining_and_going_to_the_tail():
    """Of 0-3 queued and 4-7 not: all right, mixed, all wrong, without answers; 8 and 9 not asked.

    What has no valid answer was not reviewed and keeps its place.
    """
    selector = make(enter=1.0)
    state = queue(selector, [0, 1, 2, 3, OUT, OUT, OUT, OUT, 3, OUT], step=7)
    after = selector.update(state, environment.counts(range(8), [8, 3, 0, 0] * 2, [8, 8, 8, 0] * 2))
    assert after.since_I.tolist() == [OUT, 7, 7, 3, 7, OUT, OUT, OUT, 3, OUT]
    assert after.step == 8
    never = make(enter=0.0).update(state, environment.counts(range(4, 8), [8] * 4))
    assert never.since_I[4:8].tolist() == [OUT] * 4


@pytest.mark.parametrize("name", ["greso", "mopps", "uniform"])
def test_a_quarter_of_what_a_base_has_chosen_joins(name):
    """The base has the same seed and draws by itself: its luck must not be the queue's.

    200 items, all right, of which none is on review: 24 steps of 8 are 192 cases, a deviation of 0.03.
    """
    selector, rng = make(base=name, every=1000), np.random.default_rng(0)
    state = selector.init(200, **ARRAYS.get(name, {}))
    joined, cases = 0, 0
    for step in range(24):
        proposal = selector.propose(state, jax.random.key(step), 8)
        seen = environment.feedback(proposal, np.ones(200), rng)
        outside_M = np.asarray(state.since_I)[seen.index_M] == OUT
        state = selector.update(state, seen)
        joined += np.sum(outside_M & (np.asarray(state.since_I)[seen.index_M] != OUT))
        cases += outside_M.sum()
    assert abs(joined / cases - 0.25) < 0.12, (joined, cases)


def test_a_pass_over_all_items_is_no_review():
    selector = make(base="vade", enter=1.0)
    state = queue(selector, [0, OUT, 2, OUT])
    after = selector.update(state, environment.counts(range(4), [8, 8, 3, 0]))
    chex.assert_trees_all_equal(after.replace(base=state.base), state)
    assert after.base.alpha_I.tolist() == [8, 8, 3, 0]


def test_every_fifth_step_the_head_takes_places_of_the_base():
    """Queue 7, 3 and 9 (of one step), 5: two reviews of ten places are 7 and one of 3 and 9."""
    selector, plain = make(share=0.2), samplers.SAMPLERS["uniform"]()
    since_I = [OUT] * 40
    since_I[7], since_I[3], since_I[9], since_I[5] = 0, 1, 1, 2
    seconds = set()
    for seed in range(12):
        key = jax.random.key(seed)
        base_M = np.asarray(plain.propose(plain.init(40), key, 10).index_M)
        for step in (3, 5, 8):
            found = selector.propose(queue(selector, since_I, step), key, 10)
            np.testing.assert_array_equal(found.index_M, base_M)
        found = np.asarray(selector.propose(queue(selector, since_I), key, 10).index_M)
        assert len(set(found)) == 10 and 7 in found
        new = set(found) - set(base_M)
        kept = found == base_M
        assert kept.sum() >= 8 and new <= {7, 3, 9}
        seconds |= new
    assert seconds == {7, 3, 9}


def test_the_base_learns_filters_and_believes_as_by_itself():
    options = {"base": "vade", "keep": "mixed"}
    plain = samplers.SAMPLERS["dapo"](**options)
    wrapped = make(base="dapo", base_options=options)
    state = queue(wrapped, [0] + [OUT] * 39)
    seen = environment.counts([0, 5, 6], [8, 3, 0])
    chex.assert_trees_all_equal(wrapped.update(state, seen).base, plain.update(state.base, seen))
    assert wrapped.keep(state, seen).tolist() == [False, True, False]
    proposal = wrapped.propose(state, jax.random.key(0), 20)
    belief = wrapped.believe(state, proposal)
    reviewed_M = belief.pop("remind/reviewed")
    np.testing.assert_array_equal(reviewed_M, np.asarray(proposal.index_M) == 0)
    chex.assert_trees_all_equal(belief, plain.believe(state.base, proposal))


# ------------------------------------------------------------------------------ retire
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
