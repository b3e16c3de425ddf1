"""Whose a run directory is, what it was made with, and the policy in it."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from vade_jax import settings
from vade_jax.run import directory, job
from vade_jax.run.recorder import checkpointer
from vade_jax.store import metrics, run_file

IDENTITY = {"items": 5, "questions": 6, "details": 7, "pictures": 8, "model": 9, "verifier": 2}


def start(workdir, identity=IDENTITY, **changes):
    """As a run does, with all checks passed."""
    run = settings.Run(**changes)
    directory.check_settings(run, str(workdir), lambda: job.is_done(run, str(workdir)))
    if not job.is_done(run, str(workdir)):
        directory.begin(run, str(workdir), identity, num_items=10)


def saved(workdir, **changes):
    """A run that has saved step 3."""
    start(workdir, **changes)
    (workdir / "checkpoints" / "3").mkdir(parents=True)
    directory.mark(str(workdir), run_file.RUNNING)


@pytest.mark.parametrize("text", ['{"model_type": "qwen2_5_vl"}', "[]", "no JSON"])
def test_a_file_of_something_else_is_left_alone(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"{path} is not readable as a run's file"):
        start(tmp_path)
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["policy", "adapter", "checkpoints"])
def test_a_new_run_replaces_nobodys_files(tmp_path, name):
    """Such as the checkpoint that it starts from, or a package of that name."""
    (tmp_path / name).mkdir()
    start(tmp_path)  # an empty one may be a mounted disk
    (tmp_path / "run.json").unlink()
    (tmp_path / name / "mine.py").touch()
    with pytest.raises(
        ValueError, match=f"{name} is there and no run's: .* a --workdir of its own"
    ):
        start(tmp_path)
    assert (tmp_path / name / "mine.py").exists()


def test_a_run_that_saved_nothing_owns_nothing(tmp_path, capsys):
    start(tmp_path, seed=1)
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": 2}))
    start(tmp_path, seed=1, num_steps=7)  # as a run that goes on may have it
    assert capsys.readouterr().out == "" and not (tmp_path / "metrics.jsonl").exists()
    start(tmp_path, seed=2)
    assert "saved no step, so this one takes over (seed: 1 there, 2 now)" in capsys.readouterr().out
    assert run_file.settings_of(tmp_path)["seed"] == 2


def test_a_run_that_saved_a_step_owns_its_directory(tmp_path):
    saved(tmp_path, seed=1)
    start(tmp_path, seed=1, num_steps=7, eval=settings.Eval(every=2))
    assert run_file.settings_of(tmp_path)["num_steps"] == 7
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(ValueError, match=r"of a run with other settings \(seed: 1 there, 2 now\)"):
        start(tmp_path, seed=2)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(ValueError, match="no checkpoint to go on from: put its checkpoints/ back"):
        start(tmp_path, seed=1)
    assert (tmp_path / "run.json").read_bytes() == before


def test_a_field_that_an_earlier_version_did_not_know_is_its_default(tmp_path):
    saved(tmp_path)
    content = run_file.read(tmp_path)
    del content["settings"]["optimizer"]["b2"], content["settings"]["measure"]
    run_file.write(tmp_path, content)
    start(tmp_path)
    with pytest.raises(ValueError, match=r"optimizer.b2: 0.999 there, 0.9 now"):
        start(tmp_path, optimizer=settings.Optimizer(b2=0.9))
    content["settings"]["warm_start"] = {}
    run_file.write(tmp_path, content)
    with pytest.raises(ValueError, match=r"of another version \(there is no setting 'warm_start'"):
        start(tmp_path)


def test_a_kill_between_the_first_checkpoint_and_its_note_loses_nothing(tmp_path):
    start(tmp_path, seed=1)
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    with pytest.raises(ValueError, match="of a run with other settings"):
        start(tmp_path, seed=2)


def test_a_finished_run_keeps_its_settings_and_needs_no_checkpoints(tmp_path):
    saved(tmp_path, num_steps=3)
    directory.mark(str(tmp_path), run_file.DONE, step=3, rollouts_total=9)
    shutil.rmtree(tmp_path / "checkpoints")
    before = (tmp_path / "run.json").read_bytes()
    start(tmp_path, num_steps=3, eval=settings.Eval(num_samples=9))
    assert (tmp_path / "run.json").read_bytes() == before
    with pytest.raises(ValueError, match="no checkpoint to go on from"):
        start(tmp_path, num_steps=5)


@pytest.mark.parametrize(("total", "is_done"), [(45, False), (46, True)])
def test_a_run_whose_budget_has_no_room_for_the_pass_that_is_due_is_done(tmp_path, total, is_done):
    """10 items, 2 answers to each, after every second step; 66 answers for all."""
    batch = {"prompts_per_minibatch": 4, "prompts_per_microbatch": 4}
    sizes = {"num_steps": 6, "budget": 66 / 48, "num_prompts": 4, "num_rollouts": 2, "batch": batch}
    run = settings.Run.from_dict(sizes | {"selector": {"name": "mmr1"}, "measure": {"every": 2}})
    assert run.max_rollouts == 66
    directory.begin(run, str(tmp_path), IDENTITY, num_items=10)
    directory.mark(str(tmp_path), run_file.DONE, step=2, rollouts_total=total)
    assert job.is_done(run, str(tmp_path)) is is_done


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("items", "data.train has other usable rows than when this run began"),
        ("questions", "data.validation has other usable rows"),
        ("details", "rows of data.train or data.validation have another kind, other choices"),
        ("model", "model.checkpoint is another model than when this run began"),
    ],
)
def test_a_run_goes_on_with_the_data_and_the_model_that_it_began_with(tmp_path, name, message):
    """The selector knows items by their places alone, and an adapter's checkpoint has no other weights."""
    start(tmp_path)
    start(tmp_path, IDENTITY | {name: 0})  # nothing was saved
    saved(tmp_path)
    with pytest.raises(ValueError, match=message):
        start(tmp_path, IDENTITY | {name: 0})


@pytest.mark.parametrize(
    ("name", "told"),
    [("pictures", "are not, to the byte, what this run began with"), ("verifier", "version 2 of")],
)
def test_other_pictures_and_other_rules_are_a_warning(tmp_path, capsys, name, told):
    saved(tmp_path)
    start(tmp_path)
    assert not capsys.readouterr().out
    start(tmp_path, IDENTITY | {name: 3})
    out = capsys.readouterr().out
    assert out.startswith("WARNING: ") and told in out


def test_a_directory_that_cannot_be_locked_is_a_warning(tmp_path, monkeypatch, capsys):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(directory.fcntl, "flock", flock)
    with directory.own(str(tmp_path)):
        pass
    said = capsys.readouterr().out
    assert said.startswith(
        f"WARNING: --workdir={tmp_path}: this file system cannot lock it (No locks"
    )


def test_what_a_run_forked_does_not_keep_its_lock(tmp_path):
    """As the workers of a reward function's pool, where the run was killed."""
    code = (
        "import os, sys, time; from vade_jax.run import directory as d; o = d.own(sys.argv[1])\n"
        "if not os.fork():\n"
        "    os.write(1, b'%d\\n' % os.getpid())\n"
        "    time.sleep(60)"
    )
    command = [sys.executable, "-uc", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        forked = int(other.stdout.readline())
        other.wait()  # the forked one lives
        try:
            with directory.own(str(tmp_path)):
                pass
        finally:
            os.kill(forked, signal.SIGKILL)


def test_a_directory_of_runs_is_left_alone(tmp_path):
    """--workdir=runs by mistake, while runs/a writes."""
    written = tmp_path / "a" / "rollouts" / "7.parquet.123-456.tmp"
    written.parent.mkdir(parents=True)
    written.touch()
    start(tmp_path)
    assert written.exists()


def test_a_directory_is_one_runs_at_a_time_and_free_when_that_one_is_killed(tmp_path):
    code = "import sys, time; from vade_jax.run import directory as d; o = d.own(sys.argv[1]); print(1); "
    command = [sys.executable, "-uc", code + "time.sleep(60)", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match=f"--workdir={tmp_path} is another run's"):
            directory.own(str(tmp_path))
        other.kill()
    with directory.own(str(tmp_path)), pytest.raises(ValueError, match="another run's"):
        directory.own(str(tmp_path))
    directory.own(str(tmp_path)).close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a\\b", r"has '\\\\', and checkpoints"),
        ("a[1]", r"has '\[', and"),
        ("a*", r"has '\*', and"),
        ("what?", r"has '\?', and"),
        ("a\nb", r"has '\\n', and"),
        ("a\x7f", r"has '\\x7f', and"),
        ("a\udcff", r"has '\\udcff', and"),  # a byte that is no UTF-8
        ("logs:", r"has 'gs:/', and"),
        ("a\\b/c", r"has '\\\\', and"),
        ("/".join(["x" * 200] * 20), r"is longer than 3500 bytes: give a shorter"),
        ("x" * 256, r"cannot be made \(File name too long\)"),
    ],
)
def test_a_name_below_which_checkpoints_could_not_be_read_is_refused(tmp_path, name, told):
    with pytest.raises(ValueError, match=rf"^--workdir=.*{told}") as error:
        directory.make(str(tmp_path / name), "--workdir")
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


NAMES = [
    "-dash",
    " a ",
    "a%20b",
    "a%",
    "日本é",
    "a:b",
    "s3:",
    "$HOME",
    "{x}",
    "it's",
    'a"b',
    "a#b",
    "a|b",
    "x" * 255,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_below_an_odd_name_is_read_again(tmp_path, name):
    workdir = str(tmp_path / name)
    directory.make(workdir, "--workdir")
    for _ in range(2):
        with contextlib.closing(checkpointer(settings.Checkpoint(), workdir)) as checkpoints:
            checkpoints.save(1, {"policy": {"w": np.ones(2)}}, {})
    with contextlib.closing(checkpointer(settings.Checkpoint(), workdir)) as checkpoints:
        trees = checkpoints.restore(checkpoints.latest_step(), {"policy": {"w": np.zeros(2)}})
        assert trees["policy"]["w"].tolist() == [1, 1]
