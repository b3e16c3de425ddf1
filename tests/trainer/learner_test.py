"""One RL step with an update and a score that write down what they were given."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.trainer import learner
from vade_jax.types import TrainState

LAYOUT = dict(
    prompts_per_minibatch=2,
    prompts_per_microbatch=1,
    answers_per_row=4,
    length_multiple=32,
)


class Journal:
    def __init__(self):
        self.updates, self.scores = [], []

    def update(self, state, batch):
        self.updates.append(batch)
        metrics = {
            "actor/loss": jnp.float32(len(self.updates)),
            "actor/x": jnp.float32(3),
        }
        return state.replace(params=state.params + 1, step=state.step + 1), metrics

    def score(self, params, batch):
        self.scores.append(params)
        return np.full(batch.old_logp_NT.shape, float(params), np.float32)


def run(num_prompts=4, invalid=(), **options):
    journal = Journal()
    learn = learner.Learner(
        update=journal.update, score=journal.score, layout=LAYOUT, **options
    )
    rollouts = small.rollouts([4] * num_prompts)
    rollouts = rollouts.replace(valid_N=~np.isin(rollouts.group_N, invalid))
    state = TrainState(params=-1, opt_state=(), step=jnp.int32(0))
    prompts, advantage_N = small.prompts(num_prompts), small.advantages(4 * num_prompts)
    state, metrics = learn(state, prompts, rollouts, advantage_N)
    return journal, rollouts, state, metrics


def test_an_update_a_minibatch_and_the_mean_of_their_metrics():
    journal, _, state, metrics = run()
    assert len(journal.updates) == 2 and journal.scores == []
    assert (state.step, state.params) == (2, 1)
    mean = {name: x for name, x in metrics.items() if name.startswith("actor/")}
    assert mean == {"actor/loss": 1.5, "actor/x": 3.0, "actor/updates": 2}
    assert all(isinstance(value, float | int) for value in metrics.values())


def test_a_minibatch_without_a_valid_answer_is_no_update():
    journal, _, state, metrics = run(invalid=(0, 1))
    assert (state.step, metrics["actor/updates"], metrics["actor/loss"]) == (1, 1, 1.0)
    assert journal.updates[0].mask_NT.any()
    journal, _, state, metrics = run(invalid=(0, 1, 2, 3))
    assert journal.updates == [] and state.step == 0 and metrics == {}


def test_what_does_not_fill_the_last_minibatch_is_masked():
    journal, rollouts, state, _ = run(num_prompts=3)
    first, last = journal.updates
    assert state.step == 2 and first.mask_NT.shape == last.mask_NT.shape
    assert last.mask_NT[0].any(1).all() and not last.mask_NT[1].any()
    np.testing.assert_array_equal(last.token_NT[0], rollouts.token_NT[8:])


def test_behaviour_takes_the_engines_logps():
    journal, rollouts, _, _ = run()
    old = np.concatenate([b.old_logp_NT.reshape(8, 5) for b in journal.updates])
    np.testing.assert_array_equal(old, rollouts.logp_NT)


def test_old_logps_are_of_the_policy_before_the_first_update():
    """verl: all mini-batches are scored first, so the second is off-policy by one update."""
    journal, _, _, _ = run(old_logp="trainer")
    assert journal.scores == [-1, -1]
    assert all((b.old_logp_NT == -1).all() for b in journal.updates)


@pytest.mark.parametrize("old_logp", ["behaviour", "trainer"])
def test_the_reference_never_moves(old_logp):
    journal, _, _, _ = run(reference=-7, old_logp=old_logp)
    assert journal.scores.count(-7) == 2
    assert all((b.ref_logp_NT == -7).all() for b in journal.updates)


@pytest.mark.parametrize(("old_logp", "times"), [("behaviour", 2), ("trainer", 4)])
def test_every_batch_is_put_on_the_mesh(old_logp, times):
    put = []

    def place(batch):
        put.append(batch)
        return batch.replace(mask_NT=batch.mask_NT * 0 + 7)

    journal, *_ = run(old_logp=old_logp, put=place)
    assert len(put) == times
    assert all((batch.mask_NT == 7).all() for batch in journal.updates)
    assert not any((batch.mask_NT == 7).any() for batch in put)  # the host's stay
