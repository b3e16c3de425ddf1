"""What a run records, from steps made by hand, and how it goes on from there."""

import contextlib
import re
import time

import chex
import jax
import numpy as np
import pytest

from tests.trainer import small
from vade_jax import samplers, settings
from vade_jax.run import recorder
from vade_jax.store import metrics, rollout_log, run_file
from vade_jax.trainer import choosing, collect, processes, scoring
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


def test_the_first_answer_is_shown_with_what_was_asked(
    make,
):
    said = recorder.first_answer(step_data())
    prompt = small.prompts(2)[0]
    assert said.startswith(f"first prompt: {prompt.text!r}, {prompt.length} tokens, pictures: ")
    assert said.endswith("first answer: 'a', reward 1.00; the gold is '5'")


class Checkpointer:
    def __init__(self):
        self.saved, self.waited, self.closed = [], 0, 0

    def is_due(self, step):
        return step % 2 == 0

    def save(self, step, trees, content):
        self.saved.append((step, content["progress"]))

    def wait(self):
        self.waited += 1

    def close(self):
        self.closed += 1


@pytest.fixture
def make():
    """Makes recorders, and closes them: a thread that writes on would write into the next test."""
    opened = contextlib.ExitStack()

    def make(tmp_path, step=0):
        checkpointer, run = Checkpointer(), settings.Run(seed=4, num_steps=3)
        run_file.write(tmp_path, {"state": run_file.NEW, "settings": run.to_dict()})
        made = recorder.RunRecorder(str(tmp_path), checkpointer, run.to_dict(), step)
        opened.callback(made.close)
        return made, checkpointer

    with opened:
        yield make


def at(step, **counters):
    """The progress after a step."""
    state = TrainState(params={}, opt_state={}, step=np.int32(step))
    return Progress(state, {}, np.zeros(3, np.int32), step=step, **counters)


def finish(made):
    """Waits for the answers of the last step."""
    made.save(at(1), last=True)


def test_a_row_an_answer_with_the_posterior_that_proposed(make, tmp_path):
    made, _ = make(tmp_path)
    made.step(1, {"critic/score/mean": 0.5}, step_data(p_M=np.array([0.25, 0.75])))
    finish(made)
    rows = rollout_log.read(rollout_log.path(tmp_path, 1))
    assert rows["uid"] == ["five", "two", "two"]
    assert rows["gold"] == ["5", "2", "2"]
    assert rows["answer"] == ["a", "b", "c"] and rows["extracted"] == ["5", None, "2"]
    assert rows["correct"] == [1, 0, 1]
    assert rows["alpha"] == [5, 2, 2] and rows["beta"] == [10, 4, 4]
    assert rows["p_drawn"] == [0.25, 0.75, 0.75]
    assert rows["metadata"] == ['{"level": 1}'] * 3
    assert metrics.read(tmp_path) == [{"step": 1, "critic/score/mean": 0.5}]


def test_metrics_cut_short_behind_the_checkpoint_are_an_error(make, tmp_path):
    made, _ = make(tmp_path)
    for step in range(3):
        made.step(step, {}, None)
    make(tmp_path, step=2)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"{path} ends before step 2, .* cut short"):
        make(tmp_path, step=2)
    path.unlink()
    with pytest.raises(ValueError, match="ends before step 2"):
        make(tmp_path, step=2)


@pytest.mark.parametrize(("step", "kept"), [(2, [1, 2]), (0, [])])
def test_a_resumed_run_has_no_rollouts_of_later_steps(make, tmp_path, step, kept):
    """Reports read all that there are, and the run may end before it makes them again."""
    made, _ = make(tmp_path)
    made.step(0, {}, None)
    for later in (1, 2, 3, 4):
        made.step(later, {}, step_data())
    finish(made)
    make(tmp_path, step)
    assert rollout_log.paths(tmp_path) == [rollout_log.path(tmp_path, s) for s in kept]


def test_a_selector_without_posterior_has_no_such_columns():
    _, groups = recorder.tables(step_data("uniform"))
    assert not {"alpha", "beta", "p_drawn"} & set(groups)


def test_the_rounds_follow_each_other(make, tmp_path):
    made, _ = make(tmp_path)
    made.step(1, {}, step_data(num_rounds=2))
    finish(made)
    columns = rollout_log.read(rollout_log.path(tmp_path, 1))
    assert columns["round"] == [1, 1, 1, 2, 2, 2]
    assert columns["group"] == [0, 1, 1, 2, 3, 3]
    assert columns["trained"] == [True, False, False, True, False, False]
    assert columns["answer"] == ["a", "b", "c"] * 2
    assert columns["uid"] == ["five", "two", "two"] * 2
    assert columns["alpha"] == [5, 2, 2] * 2


def test_an_answer_without_a_verdict_is_neither_right_nor_wrong(make, tmp_path):
    made, _ = make(tmp_path)
    made.step(1, {}, step_data(known_N=[True, False, True]))
    finish(made)
    columns = rollout_log.read(rollout_log.path(tmp_path, 1))
    assert columns["correct"] == columns["reward"] == [1, None, 1]


def test_the_bar_shows_all_of_its_numbers_in_80_columns(make, tmp_path, capfd):
    made, _ = make(tmp_path)
    made._bar.ncols, made._bar.total = 80, 10_000
    made.step(0, {"val/validation/acc/mean@4": 0.4301}, None)
    assert capfd.readouterr().err.endswith("left, valid=0.430, compiling]")
    # The ratio is the paper's, and not that of the groups whose rewards differ.
    values = {"critic/score/mean": 0.3512, "vade/effective_ratio": 0.9}
    values["vade/trained_effective_ratio_correct"] = 0.72
    made.step(1, values, step_data())
    made._bar.refresh()
    line = capfd.readouterr().err.split("\r")[-1]
    assert line.endswith("left, valid=0.430, score=0.35, effective=0.72]")
    assert len(line) == 80


def test_the_time_left_is_soon_that_of_the_latest_steps(make, tmp_path, capfd, monkeypatch):
    """1,000 s of compiling, then 7 s a step: 20 of 30."""
    now = [0.0]
    for clock in ("time.time", "tqdm.std.time"):
        monkeypatch.setattr(clock, lambda: now[0])
    made, _ = make(tmp_path)
    made._bar.total = 30
    for step, seconds in enumerate((1000, *[7] * 19), 1):
        now[0] += seconds
        made.step(step, {}, step_data())
        made._bar.refresh()
    assert re.findall(r"\[(\S+) left", capfd.readouterr().err)[-1] == "01:10"


def test_validation_alone_leaves_no_rollouts(make, tmp_path):
    made, _ = make(tmp_path)
    made.step(0, {"val/validation/acc/mean@4": 0.5}, None)
    assert not (tmp_path / "rollouts").exists()


def test_the_last_checkpoint_is_forced_and_waited_for(make, tmp_path):
    made, checkpointer = make(tmp_path)
    for step, last in ((1, False), (2, True)):
        made.save(at(step, rollouts_total=9, tokens_total=70), last=last)
    counters = {"seed": 4, "rollouts_total": 9, "tokens_total": 70, "known": []}
    counters |= {"skipped_updates": 0, "validated": 0, "visits": 0}
    assert checkpointer.saved == [(2, {"step": 2, **counters})]  # step 1 is not due
    assert checkpointer.waited == 1


def test_answers_are_on_disk_before_the_checkpoint_that_counts_them(make, tmp_path, monkeypatch):
    """They are written beside the next step, which waits for them, as does a save that is due."""
    order, write = [], rollout_log.write

    def slow(path, *tables):
        time.sleep(0.1)
        write(path, *tables)
        order.append(path.stem)

    monkeypatch.setattr(rollout_log, "write", slow)
    made, checkpointer = make(tmp_path)
    monkeypatch.setattr(checkpointer, "save", lambda step, *_, **__: order.append(step))
    for step in (1, 2):
        made.step(step, {}, step_data())
        made.save(at(step), last=False)
    assert order == ["step_00001", "step_00002", 2]


def test_answers_that_cannot_be_written_keep_the_step_from_being_saved(tmp_path):
    """And are an error at the end of a run that saves nothing more."""
    (tmp_path / "rollouts").write_text("in the way")
    checkpointer, config = Checkpointer(), settings.Run(num_steps=3).to_dict()
    made = recorder.RunRecorder(str(tmp_path), checkpointer, config, 0)
    made.step(2, {}, step_data())
    with pytest.raises(FileExistsError, match="rollouts"):
        made.save(at(2), last=False)
    with pytest.raises(FileExistsError, match="rollouts"):
        made.close()
    assert not checkpointer.saved and checkpointer.closed == 1


def test_what_is_saved_is_restored(tmp_path):
    def progress(value, **counters):
        state = TrainState(params={"w": np.full(2, value)}, opt_state={}, step=np.int32(value))
        return Progress(state, {"alpha_I": np.full(8, value)}, np.full(8, value), **counters)

    counters = {"step": 7, "rollouts_total": 9, "known": frozenset("ab"), "visits": 5}
    of_run = settings.Run().to_dict()
    run_file.write(tmp_path, {"state": run_file.NEW, "settings": of_run})
    with contextlib.closing(
        recorder.checkpointer(settings.Checkpoint(), str(tmp_path))
    ) as checkpoints:
        made = recorder.RunRecorder(str(tmp_path), checkpoints, of_run, 0)
        made.save(progress(3, **counters), last=True)
        assert run_file.read(tmp_path)["state"] == run_file.RUNNING
        again = recorder.restore(checkpoints, progress(0))
    chex.assert_trees_all_equal(vars(again), vars(progress(3, **counters)))


def test_a_validation_that_is_made_up_is_in_the_line_of_its_step(make, tmp_path):
    made, _ = make(tmp_path)
    made.step(1, {"critic/score/mean": 0.5}, step_data())
    made.add(1, {"val/validation/acc/mean@4": 0.25})
    (line,) = metrics.read(tmp_path)
    assert line["critic/score/mean"] == 0.5 and line["val/validation/acc/mean@4"] == 0.25


def test_another_process_than_0_saves_its_part_and_writes_nothing(
    make, tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(processes, "is_leader", lambda: False)
    made, checkpointer = make(tmp_path)
    before = (tmp_path / "run.json").read_bytes()
    made.step(1, {"critic/score/mean": 0.5}, step_data())
    made.save(at(1), last=True)
    made._bar.close()
    assert checkpointer.waited == 1 and [s for s, *_ in checkpointer.saved] == [1]
    assert (tmp_path / "run.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1 and capfd.readouterr().err == ""
