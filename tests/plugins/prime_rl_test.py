"""The selector inside a stand-in for prime-rl: its order of calls, groups in flight, lost groups, restores.

The stand-in follows prime-rl's commit 559b447: `Curriculum.on_result`, `state_dict` and `load_state_dict` of
orchestrator/curriculum/base.py, and the fields of verifiers' tasks, episodes and traces that are read here.
"""

import json
import types

import chex
import numpy as np
import pytest

from vade_jax.plugins import prime_rl
from vade_jax.selector import Selector

G = 4
SIMPLE = types.SimpleNamespace


class StandardSampler:
    """What a curriculum without a config has; here it is only replaced."""


class Curriculum:
    """One sampler and named gates, called in prime-rl's order."""

    def __init__(self):
        self.sampler, self.gates = StandardSampler(), {}

    def on_result(self, group):
        keys = {episode.task.key for episode in group}
        assert len(keys) == 1 and None not in keys
        self.sampler.observe(group)
        admitted = [gate.admit(group) for gate in self.gates.values()]
        assert all(type(x) is bool for x in admitted)  # prime-rl raises a TypeError
        return all(admitted)

    def state_dict(self):
        gates = {name: gate.state_dict() for name, gate in self.gates.items()}
        # prime-rl writes it with torch.save, which takes more than JSON does
        return json.loads(json.dumps({"sampler": self.sampler.state_dict(), "gates": gates}))

    def load_state_dict(self, saved):
        assert set(saved["gates"]) == set(self.gates)
        self.sampler.load_state_dict(saved["sampler"])
        for name, gate in self.gates.items():
            gate.load_state_dict(saved["gates"][name])


def tasks(num):
    return [SIMPLE(key=f"task-{i}", data=i) for i in range(num)]


def answer(score, *, ok=True, trainable=True, **metrics):
    """A trace; `score` is that of its reward "right", or all its rewards."""
    rewards = score if isinstance(score, dict) else {"right": score}
    rewards = {
        name: None if x is None else SIMPLE(score=x, weight=10.0) for name, x in rewards.items()
    }
    agent = SIMPLE(trainable=trainable)
    return SIMPLE(rewards=rewards, metrics=metrics, has_error=not ok, agent=agent)


def group(task, scores):
    """The episodes of a group, one trace each: of a score, or the trace itself."""
    traces = [x if isinstance(x, types.SimpleNamespace) else answer(x) for x in scores]
    return [SIMPLE(task=SIMPLE(key=task.key), traces=[trace]) for trace in traces]


def of(task, right):
    return group(task, [1.0] * right + [0.0] * (G - right))


def made(num, num_prompts, name="vade", **settings):
    curriculum = Curriculum()
    given = {"num_prompts": num_prompts, "num_rollouts": G, **settings}
    prime_rl.install(curriculum, tasks(num), name=name, **given)
    return curriculum


def take(curriculum, num):
    return [next(curriculum.sampler) for _ in range(num)]


def keys(chosen):
    return [task.key for task in chosen]


def direct(num, name="vade", **options):
    return Selector([task.key for task in tasks(num)], name, num_rollouts=G, **options)


def assert_same(curriculum, selector):
    there = curriculum.sampler.selector.state_dict()
    chex.assert_trees_all_equal(there["state"], selector.state_dict()["state"])


def test_batches_that_come_back_whole_are_those_of_a_plain_selector():
    curriculum, selector, rng = made(30, 5), direct(30), np.random.default_rng(0)
    for _ in range(8):
        batch, ids = take(curriculum, 5), selector.select(5)
        assert keys(batch) == ids
        right = dict(zip(ids, rng.integers(0, G + 1, 5).tolist(), strict=True))
        for task in rng.permutation(np.array(batch, object)):
            assert curriculum.on_result(of(task, right[task.key]))
        selector.observe(ids, list(right.values()), G)
        assert_same(curriculum, selector)
        mixed = np.mean([0 < x < G for x in right.values()])
        assert curriculum.sampler.metrics() == {
            "in_flight": 0,
            "lost": 0,
            "effective_ratio_correct": pytest.approx(mixed),
        }


def test_what_came_back_is_observed_in_the_size_of_a_batch():
    """Decay is per observation: two groups, of two batches, make one; what was proposed is chosen anew."""
    curriculum, selector = made(200, 2, options={"decay_rest": 0.5}), direct(200, decay_rest=0.5)
    first, second = take(curriculum, 2), take(curriculum, 2)
    assert keys(first + second) == selector.select(2) + selector.select(2)
    assert_same(curriculum, selector)
    curriculum.on_result(of(second[1], 3))
    assert_same(curriculum, selector)
    curriculum.on_result(of(first[0], 0))
    curriculum.on_result(of(second[0], 4))
    selector.observe(keys([second[1], first[0]]), [3, 0], G)
    assert_same(curriculum, selector)
    third, ids = take(curriculum, 1), selector.select(2)
    assert keys(third) == ids[:1]
    curriculum.on_result(of(third[0], 1))
    selector.observe(keys([second[0], third[0]]), [4, 1], G)
    assert_same(curriculum, selector)
    assert keys(take(curriculum, 2)) == selector.select(2)


def test_a_task_that_is_out_is_not_proposed():
    curriculum = made(6, 2)
    chosen = take(curriculum, 6)
    assert len(set(keys(chosen))) == 6
    curriculum.on_result(of(chosen[4], 2))
    assert keys(take(curriculum, 1)) == [chosen[4].key]  # the only one that is not out


def test_a_selector_that_draws_nothing_is_asked_for_more():
    """It repeats its choice until it learns: a larger selection has tasks that are not out."""
    selector = SIMPLE(select=lambda size: [f"task-{i}" for i in range(size)], num_items=10)
    sampler = made(10, 2).sampler
    sampler.selector = selector
    chosen = [next(sampler) for _ in range(10)]
    assert keys(chosen) == [f"task-{i}" for i in range(10)]


def test_a_lost_group_is_given_up_after_some_batches():
    curriculum = made(4, 1, name="uniform", lost_after=2)
    lost = next(curriculum.sampler)  # batch 1: prime-rl cancels it and says nothing
    seen = []
    for _ in range(2):  # batches 2 and 3
        task = next(curriculum.sampler)
        curriculum.on_result(of(task, 1))
        seen.append(task.key)
        assert curriculum.sampler.metrics()["lost"] == 0
    # Of batch 4 on it may be chosen, and the least visited are two: it and one other.
    for _ in range(2):
        seen.append(next(curriculum.sampler).key)
        assert curriculum.sampler.metrics()["lost"] == 1
    assert lost.key in seen[2:] and len(set(seen)) == 4
    curriculum.on_result(of(lost, 4))  # late, but an answer
    (visits_I,) = curriculum.sampler.selector.state_dict()["state"].values()
    assert visits_I[int(lost.key.removeprefix("task-"))] == 1 and sorted(visits_I) == [0, 1, 1, 1]


def test_a_restore_neither_loses_nor_repeats():
    """Uniform passes over the tasks: at the end of the pass each one was learned from once."""
    curriculum = made(12, 4, name="uniform")
    chosen = take(curriculum, 6)  # 2 of the second batch wait
    for m in (5, 0, 3):
        curriculum.on_result(of(chosen[m], 2))
    saved = curriculum.state_dict()
    waiting = keys(take(curriculum, 2))

    again = made(12, 4, name="uniform")
    again.load_state_dict(saved)
    first = take(again, 5)
    assert keys(first) == [chosen[m].key for m in (1, 2, 4)] + waiting
    rest = take(again, 4)
    assert len(set(keys(first + rest))) == 9
    for task in first + rest:
        again.on_result(of(task, 1))
    visits_I = again.sampler.selector.state_dict()["state"]
    assert [*visits_I.values()] == [[1] * 12]


@pytest.mark.parametrize(
    ("settings", "traces", "right", "trials"),
    [
        # The weight is 10: the weighted reward would be above the threshold at 0.1 already.
        ({}, [0.0, 0.1, 0.5, 0.6], 1, 4),
        ({"threshold": 0.05}, [0.0, 0.1, 0.5, 0.6], 3, 4),
        ({}, [1.0, answer(1.0, ok=False), None, answer(1.0, trainable=False)], 1, 1),
        ({}, [answer(1.0, ok=False)] * 4, 0, 0),
        ({"correct": "right"}, [answer({"right": 0.0, "format": 1.0})] * 4, 0, 4),
        ({"correct": "exact"}, [answer(0.0, exact=1.0), answer(1.0, exact=None)], 1, 1),
    ],
)
def test_counts_of_a_group(settings, traces, right, trials):
    curriculum, selector = made(8, 1, **settings), direct(8)
    task = next(curriculum.sampler)
    curriculum.on_result(group(task, traces))
    selector.observe(selector.select(1), [right], [trials])
    assert_same(curriculum, selector)


@pytest.mark.parametrize(
    ("settings", "trace", "message"),
    [
        ({}, answer({"right": 1.0, "format": 1.0}), r"None.* of \['format', 'right'\]"),
        ({"correct": "acc"}, answer(1.0, length=3.0), r"'acc'.* of \['length', 'right'\]"),
    ],
)
def test_a_verdict_that_is_not_there_is_named(settings, trace, message):
    curriculum = made(8, 1, **settings)
    with pytest.raises(ValueError, match=message):
        curriculum.on_result(group(next(curriculum.sampler), [trace]))


@pytest.mark.parametrize("name", ["dapo", "greso"])
def test_a_selector_that_filters_is_a_gate(name):
    curriculum = made(12, 3, name=name)
    selector = direct(12, name)
    batch, ids = take(curriculum, 3), selector.select(3)
    admitted = [curriculum.on_result(of(batch[m], (0, 2, G)[m])) for m in range(3)]
    assert admitted == [False, True, False]
    selector.observe(ids, [0, 2, G], G)  # what is not trained on is learned from
    assert_same(curriculum, selector)
    one = group(next(curriculum.sampler), [1.0] + [answer(0.0, ok=False)] * 3)
    assert not curriculum.on_result(one)
