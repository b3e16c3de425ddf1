"""What a run records, from steps made by hand, and how it goes on from there."""

import contextlib
import time

import chex
import jax
import numpy as np
import pytest

from tests.trainer import small
from vade_jax import samplers, settings
from vade_jax.run import recorder
from vade_jax.store import metrics, rollout_log, run_file
from vade_jax.trainer import choosing, collect, scoring
from vade_jax.trainer.progress import Progress
from vade_jax.types import Item, Proposal, TrainState


def step_data(name="vade", p_M=None, num_rounds=1, known_N=(True, True, True)):
    """Items 5 and 2 of 6, with 1 and 2 answers; the first is kept."""
    selector = samplers.SAMPLERS[name]()
    posterior = selector.init(6)
    if name == "vade":
        posterior = posterior.replace(alpha_I=np.arange(6.0), beta_I=np.arange(6.0) * 2)
    items = [
        Item(uid=uid, question="?", images=(), answer=gold, kind="int", metadata={"level": 1})
        for uid, gold in (("five", "5"), ("two", "2"))
    ]
    proposal = Proposal(index_M=np.array([5, 2]), num_rollouts_M=np.array([1, 2]), p_M=p_M)
    rollouts = small.rollouts([1, 2])
    answers = (("a", "5", 1.0, "ok"), ("b", None, 0.0, "timeout"), ("c", "2", 1.0, "ok"))
    scored = [
        scoring.Scored(text, extracted, x if known else np.nan, x, reason)
        for (text, extracted, x, reason), known in zip(answers, known_N, strict=True)
    ]
    belief = jax.device_get(dict(selector.believe(posterior, proposal)))
    one = (
        choosing.Chosen(proposal, items, small.prompts(2)),
        rollouts,
        scored,
        scoring.feedback_of(proposal, rollouts, scored),
        np.array([True, False]),
        belief if p_M is None else belief | {"p_drawn": p_M},
    )
    return collect.join_rounds([one] * num_rounds, 2, {})


class Saved:
    """Takes the place of orbax's manager, and of `checkpoints.save`."""

    def __init__(self):
        self.saved, self.waited, self.closed = [], 0, 0

    def latest_step(self):
        return None

    def save(self, step, trees, content):
        self.saved.append((step, content["progress"]))

    def wait_until_finished(self):
        self.waited += 1

    def close(self):
        self.closed += 1


@pytest.fixture
def make(monkeypatch):
    """Makes recorders, and closes them: a thread that writes on would write into the next test."""
    opened = contextlib.ExitStack()
    monkeypatch.setattr(recorder.checkpoints, "save", Saved.save)

    def make(tmp_path):
        checkpoint, saved = settings.Checkpoint(every=2), Saved()
        run = settings.Run(seed=4, num_steps=3, checkpoint=checkpoint)
        monkeypatch.setattr(recorder.checkpoints, "manager_of", lambda *_, **__: saved)
        one = recorder.RunRecorder(str(tmp_path), run.to_dict())
        opened.callback(one.close)
        return one, saved

    with opened:
        yield make


def progress(value, **counters):
    """One with arrays, which a real checkpoint needs."""
    state = TrainState(params={"w": np.full(2, value)}, opt_state={}, step=np.int32(value))
    return Progress(state, {"alpha_I": np.full(8, value)}, np.full(8, value), **counters)


def opened(tmp_path):
    """A recorder with real checkpoints."""
    run = settings.Run(num_steps=3, checkpoint=settings.Checkpoint(every=9))
    return contextlib.closing(recorder.RunRecorder(str(tmp_path), run.to_dict()))


def at(step, **counters):
    """The progress after a step."""
    state = TrainState(params={}, opt_state={}, step=np.int32(step))
    return Progress(state, {}, np.zeros(3, np.int32), step=step, **counters)


def finish(one):
    """Waits for the answers of the last step."""
    one.save(at(1), last=True)


def test_a_row_an_answer_with_the_posterior_that_proposed(make, tmp_path, capfd):
    one, _ = make(tmp_path)
    data = step_data(p_M=np.array([0.25, 0.75]))
    one.record(1, {"critic/score/mean": 0.5}, data)
    finish(one)
    rows = rollout_log.read(rollout_log.path(tmp_path, 1))
    assert rows["uid"] == ["five", "two", "two"]
    assert rows["gold"] == ["5", "2", "2"]
    assert rows["answer"] == ["a", "b", "c"] and rows["extracted"] == ["5", None, "2"]
    assert rows["correct"] == [1, 0, 1]
    assert rows["alpha"] == [5, 2, 2] and rows["beta"] == [10, 4, 4]
    assert rows["p_drawn"] == [0.25, 0.75, 0.75]
    assert rows["metadata"] == ['{"level": 1}'] * 3
    assert metrics.read(tmp_path) == [{"step": 1, "critic/score/mean": 0.5}]
    shown = capfd.readouterr()
    assert "first answer: 'a', reward 1.00; the gold is '5'" in shown.out + shown.err
    assert "step 1: score 0.500" in shown.out


@pytest.mark.parametrize(("step", "kept"), [(2, [1, 2]), (0, [])])
def test_a_resumed_run_has_no_rollouts_of_later_steps(tmp_path, step, kept):
    """Reports read all that there are, and the run may end before it makes them again."""
    with opened(tmp_path) as one:
        one.record(0, {})
        for later in (1, 2, 3, 4):
            one.record(later, {}, step_data())
            one.save(progress(later, step=later), last=later == step)
    with opened(tmp_path) as one:
        one.restore(progress(0), None)
    assert rollout_log.paths(tmp_path) == [rollout_log.path(tmp_path, s) for s in kept]


def test_the_rounds_follow_each_other_and_an_answer_may_have_no_verdict():
    answers, groups = recorder.tables(step_data(num_rounds=2, known_N=[True, False, True]))
    assert groups["round"].tolist() == [1, 1, 2, 2]
    assert answers["group"].tolist() == [0, 1, 1, 2, 3, 3]
    assert groups["trained"].tolist() == [True, False, True, False]
    assert groups["uid"] == ["five", "two"] * 2 and answers["answer"] == ["a", "b", "c"] * 2
    np.testing.assert_array_equal(answers["correct"], [1, np.nan, 1] * 2)
    np.testing.assert_array_equal(answers["reward"], [1, np.nan, 1] * 2)
    _, groups = recorder.tables(step_data("uniform"))
    assert not {"alpha", "beta", "p_drawn"} & set(groups)


def test_a_checkpoint_that_is_due_or_the_last_has_all_counters(make, tmp_path):
    one, saved = make(tmp_path)
    for step, last in ((1, False), (2, False), (3, True)):
        one.save(at(step, rollouts_total=9, tokens_total=70), last=last)
    counters = {"seed": 4, "rollouts_total": 9, "tokens_total": 70, "known": []}
    counters |= {"skipped_updates": 0, "validated": 0, "visits": 0}
    assert saved.saved == [(step, {"step": step, **counters}) for step in (2, 3)]
    assert saved.waited == 1


def test_answers_are_on_disk_before_the_checkpoint_that_counts_them(make, tmp_path, monkeypatch):
    """They are written while the next step is made, which waits for them, as does a save that is due."""
    order, write = [], rollout_log.write

    def slow(path, *tables):
        time.sleep(0.1)
        write(path, *tables)
        order.append(path.stem)

    monkeypatch.setattr(rollout_log, "write", slow)
    one, _ = make(tmp_path)
    save = lambda saved, step, *_: order.append(step)
    monkeypatch.setattr(recorder.checkpoints, "save", save)
    for step in (1, 2):
        one.record(step, {}, step_data())
        one.save(at(step), last=False)
    assert order == ["step_00001", "step_00002", 2]


def test_answers_that_cannot_be_written_keep_the_step_from_being_saved(tmp_path, monkeypatch):
    """And are an error at the end of a run that saves nothing more."""
    (tmp_path / "rollouts").write_text("in the way")
    saved = Saved()
    monkeypatch.setattr(recorder.checkpoints, "manager_of", lambda *_, **__: saved)
    one = recorder.RunRecorder(str(tmp_path), settings.Run(num_steps=3).to_dict())
    one.record(2, {}, step_data())
    with pytest.raises(FileExistsError, match="rollouts"):
        one.save(at(2), last=True)
    with pytest.raises(FileExistsError, match="rollouts"):
        one.close()
    assert not saved.saved and saved.closed == 1


def test_what_is_saved_is_restored(tmp_path):
    counters = {"step": 7, "rollouts_total": 9, "known": frozenset("ab"), "visits": 5}
    with opened(tmp_path) as one:
        one.record(7, {})
        assert not run_file.read(tmp_path)  # here nobody wrote that the run is new
        one.save(progress(3, **counters), last=True)
        assert run_file.read(tmp_path) == {"state": "running"}
    with opened(tmp_path) as one:
        again = one.restore(progress(0), None)
    chex.assert_trees_all_equal(vars(again), vars(progress(3, **counters)))
