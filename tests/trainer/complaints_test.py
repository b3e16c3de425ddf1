"""What users of other systems complain of, in the whole loop; the numbers are of their issues.

What concerns one module is in that module's tests.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.trainer import collect_test, fakes, loop_test, small, update_test
from vade_jax import samplers, settings
from vade_jax.rollout import fake
from vade_jax.settings import Measure, Refill
from vade_jax.trainer import learner, minibatches, objectives, scoring, update
from vade_jax.types import TrainState

B, G = loop_test.B, 8


class LosingEngine(fake.FakeEngine):
    """Cannot make the first `num_lost` answers to the second prompt of each call."""

    def __init__(self, num_lost):
        super().__init__(loop_test.PASS_RATE)
        self.num_lost = num_lost

    def generate(self, *args, **options):
        made = super().generate(*args, **options)
        made.valid_N[np.flatnonzero(made.group_N == 1)[: self.num_lost]] = False
        return made


class Given:
    """A learner that keeps what it is given."""

    def __init__(self):
        self.batches = []

    def __call__(self, state, prompts, rollouts, advantage_N):
        self.batches.append((rollouts, advantage_N))
        return loop_test.learn(state, prompts, rollouts, advantage_N)


# ------------------------------------------------------------------------------ rewards
@pytest.mark.parametrize(("name", "options"), [("vade", {}), ("dapo", {"base": "vade"})])
def test_shaped_rewards_leave_counts_and_correctness_ratios_alone(name, options):
    """Format and length give every answer of a group another reward (verl-recipe#125, NeMo-RL#2431)."""

    def shaped(item, answers):
        scored = fakes.score.score(item, answers)
        return [
            scoring.Scored("", None, reward=0.9 * one.reward - 0.01 * n, correct=one.correct)
            for n, one in enumerate(scored)
        ]

    options = {"refill": Refill(max_rounds=3), **options}
    plain, recorder = loop_test.run(name, 5, **options)
    other, changed = loop_test.run(name, 5, score=scoring.Scorer(shaped), **options)
    chex.assert_trees_all_equal(plain.posterior, other.posterior)
    ratios = ("effective_ratio_correct", "trained_effective_ratio_correct")
    for step in range(1, 6):
        for metric in ("critic/score/mean", *(f"vade/{ratio}" for ratio in ratios)):
            assert changed.metrics[step][metric] == recorder.metrics[step][metric]
        assert recorder.metrics[step]["vade/effective_ratio"] < 1
        assert changed.metrics[step]["vade/effective_ratio"] == 1


@pytest.mark.parametrize("refill", [Refill(max_rounds=3), Refill(2), Refill(0)])
def test_the_score_of_all_groups_stands_beside_that_of_the_groups_trained_on(refill):
    """With too few groups, and with a surplus (prime-rl#1205, prime-rl#2277)."""
    given = Given()
    _, recorder = loop_test.run("dapo", 3, learn=given, refill=refill)
    for step, (rollouts, _) in enumerate(given.batches, 1):
        found = recorder.metrics[step]
        of_all = recorder.data[step].rollouts.token_NT[:, 0] == fake.RIGHT
        assert found["critic/score/mean"] == pytest.approx(of_all.mean())
        trained = rollouts.token_NT[rollouts.valid_N, 0] == fake.RIGHT
        assert found["critic/score/trained_mean"] == pytest.approx(trained.mean())
        assert found["critic/score/trained_mean"] != found["critic/score/mean"]


def test_a_step_that_learns_from_nothing_has_no_score_of_what_was_trained_on():
    found = collect_test.make([])().recorder.metrics[1]
    assert found["critic/score/mean"] == 0 and "critic/score/trained_mean" not in found


# ------------------------------------------------------------------------------ what a step counts
def real_learner(config):
    """A table of logits, AdamW, two mini-batches of two prompts. What the prompts say does not matter."""
    loss = update.make(
        update_test.table_logp,
        objectives.group_rl(small.GRPO),
        update.make_optimizer(config),
        learning_rate=update.schedule(config),
    )
    shape = minibatches.Shape(2, 2, collect_test.G, length_multiple=32)
    learn = learner.Learner(jax.jit(loss), lambda params, frozen, batch: None, shape)
    return lambda state, prompts, *batch: learn(state, small.prompts(len(prompts)), *batch)


def test_schedules_follow_updates_and_budgets_answers():
    """Four items a round: 0 to 3 are mixed, none of 4 to 11, then 13 and 18 (verl#7155).

    Step 1 has one round and two updates. Step 2 has two rounds and is skipped. Step 3 has two rounds, and a
    mixed group in each half of its batch, so two updates. Then the budget of 40 answers is used up.
    """
    config = settings.Optimizer(learning_rate=0.1, warmup_steps=8)
    run = collect_test.make([0, 1, 2, 3, 13, 18], num_items=48)
    params = {"w": jnp.asarray(update_test.TABLE)}
    state = TrainState(
        params=params,
        opt_state=update.make_optimizer(config).init(params),
        step=jnp.int32(0),
    )
    run.learner = real_learner(config)
    run(num_steps=9, max_rollouts=40, max_rounds=2, state=state)
    found = run.recorder.metrics
    assert [found[step]["vade/rounds"] for step in (1, 2, 3)] == [1, 2, 2]
    assert [found[step].get("actor/updates", 0) for step in (1, 2, 3)] == [2, 0, 2]
    rates = [found[step].get("actor/lr") for step in (1, 2, 3)]
    # The mean of updates 0 and 1, then of 2 and 3, of eight.
    assert rates == [pytest.approx(0.1 * 0.5 / 8), None, pytest.approx(0.1 * 2.5 / 8)]
    progress = run.progress
    counts = optax.tree.get_all_with_path(progress.state.opt_state, "count")
    assert {int(count) for _, count in counts} == {4} == {int(progress.state.step)}
    assert [found[step]["vade/rollouts_total"] for step in (1, 2, 3)] == [8, 24, 40]
    assert (progress.step, progress.rollouts_total) == (3, 40)


@pytest.mark.parametrize("name", ["uniform", "vade"])
def test_uniform_groups_alone_are_trained_on_where_none_is_dropped(name):
    """Their advantages are 0. A KL may still pull, so the learner gets them, and decides (verl#7401)."""
    rates = {uid: float(int(uid) % 2) for uid in loop_test.PASS_RATE}
    given = Given()
    progress, recorder = loop_test.run(name, 3, learn=given, engine=fake.FakeEngine(rates))
    assert len(given.batches) == progress.state.step == 3 and progress.skipped_updates == 0
    for step, (rollouts, advantage_N) in enumerate(given.batches, 1):
        assert rollouts.valid_N.all() and not advantage_N.any()
        assert recorder.metrics[step]["vade/trained_effective_ratio"] == 0


# ------------------------------------------------------------------------------ lost and surplus answers
@pytest.mark.parametrize("num_lost", [1, G])
def test_an_answer_that_the_engine_could_not_make_hangs_no_step(num_lost):
    """It loses one of a group, or all of it: the group counts the others."""
    given, engine = Given(), LosingEngine(num_lost)
    selector = samplers.SAMPLERS["vade"](warmup="none", decay_selected=1.0, decay_rest=1.0)
    progress, recorder = loop_test.run("vade", 3, selector=selector, engine=engine, learn=given)
    assert progress.step == len(given.batches) == 3
    for step, (rollouts, advantage_N) in enumerate(given.batches, 1):
        feedback = recorder.data[step].feedback
        assert feedback.trials_M.tolist() == [G, G - num_lost] + [G] * (B - 2)
        assert rollouts.valid_N.sum() == B * G - num_lost
        assert not advantage_N[~rollouts.valid_N].any() and np.isfinite(advantage_N).all()
        # The others of the group are compared with each other alone.
        np.testing.assert_allclose(advantage_N[rollouts.group_N == 1].sum(), 0, atol=1e-5)
        assert recorder.metrics[step]["response/aborted_ratio"] == num_lost / (B * G)
    counts = progress.posterior.alpha_I.sum() + progress.posterior.beta_I.sum()
    assert counts == 3 * (B * G - num_lost)


@pytest.mark.parametrize(
    ("lag", "measure"),
    [(0, Measure()), (0, Measure(every=2, num_rollouts=3, num_prompts=64)), (1, Measure())],
)
def test_every_answer_paid_for_is_observed_and_a_surplus_is_counted(lag, measure):
    """In rounds, passes and batches made ahead, some of them lost (AReaL#450)."""
    seen, given = [], Given()
    selector = samplers.SAMPLERS["dapo"](base="vade")

    def observe(state, feedback):
        seen.append((feedback.trials_M.sum(), np.count_nonzero(~feedback.valid_N)))
        return selector.update(state, feedback)

    progress, recorder = loop_test.run(
        "dapo",
        6,
        selector=selector._replace(update=observe),
        engine=LosingEngine(2),
        refill=Refill(max_rounds=0),
        learn=given,
        lag=lag,
        measure=measure,
    )
    observed, lost = np.sum(seen, axis=0)
    assert lost >= 2 * 6 and observed + lost == progress.rollouts_total
    assert recorder.metrics[6]["vade/rollouts_total"] == progress.rollouts_total
    surpluses = 0
    for step, (rollouts, _) in enumerate(given.batches, 1):
        found = recorder.metrics[step]
        num_trained = int(rollouts.group_N.max()) + 1
        assert found["vade/kept_groups"] == B + found["vade/surplus_groups"]
        surpluses += found["vade/surplus_groups"]
        assert num_trained == B
    assert surpluses > 0
