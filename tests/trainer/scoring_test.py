"""Verdicts in the order of the rollouts, and what selector and policy learn from them."""

import functools

import jax
import numpy as np

from tests.rollout.fake import FakeEngine
from tests.trainer import fakes, small
from vade_jax.rewards import functions
from vade_jax.trainer import choosing, hardware, scoring, step_metrics
from vade_jax.types import Item, Proposal, Rollouts

TEXTS = (
    r"\boxed{7}",
    "7",
    r"I say \boxed{7}",
    r"\boxed{8}",
    r"\boxed{B}",
    r"\boxed{(b)}.",
)
ITEMS = [
    Item(uid="a", question="?", images=(), answer="7", kind="int"),
    Item(uid="b", question="?", images=(), answer="B", kind="choice"),
]


class Scripted(FakeEngine):
    """Gives these tokens, an answer each, and reports the groups last first, as an engine may."""

    def __init__(self, groups):
        super().__init__({})
        self.groups = groups

    def generate(self, prompts, num_rollouts_M, key, version, sampling, on_group):
        for m in reversed(range(len(self.groups))):
            on_group(m, [np.array([token]) for token in self.groups[m]])
        return small.rollouts([*map(len, self.groups)])


def scored(score, engine):
    """The scores of an engine's answers to the items, and the clock."""
    number_M = np.array([*map(len, engine.groups)])
    proposal = Proposal(index_M=np.arange(len(number_M)), num_rollouts_M=number_M)
    asked = choosing.Chosen(proposal, ITEMS, [fakes.build_prompt(item) for item in ITEMS])
    clock = hardware.Clock()
    _, found = scoring.generate(engine, score, asked, jax.random.key(0), 0, clock)
    return found, clock


def test_item_m_scores_the_answers_of_group_m():
    """Four answers to 7, two to B; a token is the index of a text."""
    decode = lambda tokens: "".join(TEXTS[t] for t in tokens)
    score = scoring.Scorer(decode, functions.by_rules("boxed", 0.1))
    found, clock = scored(score, Scripted([[0, 1, 2, 3], [4, 5]]))
    assert [one.text for one in found] == list(TEXTS)
    assert [one.extracted for one in found] == ["7", None, "7", "8", "B", "(b)"]
    assert [one.correct for one in found] == [1, 0, 1, 0, 1, 1]
    assert [one.reason for one in found] == ["ok", "no_box", "ok", "different", "ok", "ok"]
    np.testing.assert_allclose([one.reward for one in found], [1, 0, 1, 0.1, 1, 1])
    assert clock.seconds.keys() == {"gen", "reward", "gen_tail"}


# ------------------------------------------------------------------------------ feedback
# Four groups: mixed, all right, all wrong with different format, one valid answer.
GROUP = np.array([0, 0, 0, 1, 1, 2, 2, 3, 3], np.int32)
VALID = np.array([1, 1, 1, 1, 1, 1, 1, 1, 0], bool)
CORRECT = np.array([1, 0, 0, 1, 1, 0, 0, 0, 1], np.float32)
REWARD = np.array([1, 0.1, 0.1, 1, 1, 0, 0.1, 0.1, 1], np.float32)
LENGTH = np.array([2, 4, 6, 3, 5, 1, 1, 2, 9], np.int32)


def rollouts(valid_N=VALID):
    return Rollouts(
        token_NT=np.zeros((9, 9), np.int32),
        length_N=LENGTH,
        logp_NT=np.zeros((9, 9), np.float32),
        group_N=GROUP,
        finished_N=np.arange(9) != 2,
        valid_N=valid_N,
        params_version=np.int32(0),
    )


def feedback(valid_N=VALID, weight_M=None, extra_M=None, **options):
    proposal = Proposal(
        weight_M=weight_M,
        extra_M=extra_M,
        index_M=np.array([7, 5, 9, 1], np.int32),
        num_rollouts_M=np.array([3, 2, 2, 2], np.int32),
    )
    of_answers = [scoring.Scored("", None, *pair) for pair in zip(REWARD, CORRECT, strict=True)]
    return scoring.feedback_of(proposal, rollouts(valid_N), of_answers, **options)


def test_counts_are_of_correctness_over_valid_answers():
    found = feedback()
    np.testing.assert_array_equal(found.index_M, [7, 5, 9, 1])
    np.testing.assert_array_equal(found.successes_M, [1, 2, 0, 0])
    np.testing.assert_array_equal(found.trials_M, [3, 2, 2, 1])


def test_advantages_by_hand():
    """Group 0: mean 0.4, std sqrt((0.36 + 2 x 0.09) / 2) = 0.5196; group 2: +-1 / sqrt 2."""
    a, b = 0.6 / 0.519615, 1 / np.sqrt(2)
    expected = [a, -a / 2, -a / 2, 0, 0, -b, b, 0, 0]
    np.testing.assert_allclose(feedback().advantage_N, expected, atol=3e-5)
    by_mean = functools.partial(scoring.usual_advantage, scale_by_std=False)
    plain = feedback(advantage=by_mean).advantage_N
    np.testing.assert_allclose(plain, [0.6, -0.3, -0.3, 0, 0, -0.05, 0.05, 0, 0], atol=1e-6)
    weighed_N = feedback(weight_M=np.array([2, 1, 0.5, 3], np.float32)).advantage_N
    factors = [2, 2, 2, 1, 1, 0.5, 0.5, 3, 3]
    np.testing.assert_allclose(weighed_N, feedback().advantage_N * factors)


def test_advantages_are_what_the_method_takes_for_them():
    """It sees the proposal's own arrays, and answers that do not count."""

    def weighed(reward_N, group_N, num_groups, valid_N, extra_M):
        assert num_groups == 4
        return np.where(valid_N, extra_M["level"][group_N], 0) + reward_N

    level_M = np.array([7, 5, 9, 1], np.float32)
    found = feedback(advantage=weighed, extra_M={"level": level_M})
    np.testing.assert_array_equal(found.advantage_N, np.where(VALID, level_M[GROUP], 0) + REWARD)
    assert found.extra_M == {"level": level_M}


# ------------------------------------------------------------------------------ metrics
def test_metrics_by_hand():
    """8 valid answers. Rewards vary in groups 0 and 2, of 3 and 2 answers, correctness in group 0 alone."""
    found = step_metrics.of_answers(feedback(), rollouts())
    expected = {
        "vade/effective_ratio": 2 / 4,
        "vade/effective_ratio_correct": 1 / 4,
        "vade/effective_rollouts": 5,
        "vade/all_right_ratio": 1 / 4,
        "vade/all_wrong_ratio": 2 / 4,
        "critic/score/mean": 3 / 8,
        "critic/rewards/mean": 3.4 / 8,
        "critic/advantages/max": 0.6 / 0.519615,
        "critic/advantages/min": -1 / np.sqrt(2),
        "response_length/mean": 24 / 8,
        # Of 1 1 2 2 3 4 5 6: between two lengths, at their distance from the quantile.
        "response_length/p50": 2.5,
        "response_length/p95": 5 + 0.65,
        "response_length/p99": 5 + 0.93,
        "response_length/max": 6,
        "response_length/clip_ratio": 1 / 8,
        "response/aborted_ratio": 1 / 9,
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=4e-5, err_msg=name)


def test_what_does_not_count_is_in_no_ratio():
    """One answer of group 0, whose rewards vary, is invalid; then all of group 2."""
    valid_N = VALID & (np.arange(9) != 1)
    found = step_metrics.of_answers(feedback(valid_N), rollouts(valid_N))
    assert found["vade/effective_rollouts"] == 2 + 2
    valid_N = VALID & (GROUP != 2)
    found = step_metrics.of_answers(feedback(valid_N), rollouts(valid_N))
    assert found["vade/all_right_ratio"] == found["vade/all_wrong_ratio"] == 0.25
