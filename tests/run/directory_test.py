"""Whose a run directory is, what it was made with, and the policy in it."""

import contextlib
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from vade_jax import settings
from vade_jax.run import directory, job
from vade_jax.run.checks import place
from vade_jax.run.recorder import checkpointer
from vade_jax.store import metrics
from vade_jax.types import TrainState


def open_for(run, workdir):
    """As a run does, with all checks passed."""
    directory.open_for(run.to_dict(), workdir, lambda: job.is_done(run, workdir))
    if not job.is_done(run, workdir):
        directory.begin(run.to_dict(), workdir)


def test_a_field_that_an_earlier_version_did_not_know_is_its_default(tmp_path):
    wanted = settings.Run(seed=3).to_dict()
    before = settings.Run(seed=3).to_dict()
    del before["optimizer"]["remainders"], before["measure"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(before))
    same = json.loads(json.dumps(wanted))
    place.check_same(path, same, (), settings.Run())
    with pytest.raises(ValueError, match=r"optimizer.remainders: None there, True now"):
        place.check_same(path, same)
    same["optimizer"]["remainders"] = False
    with pytest.raises(ValueError, match=r"optimizer.remainders: True there, False now"):
        place.check_same(path, same, (), settings.Run())
    vade = {"selector": {"name": "vade", "options": {"decay_rest": 0.9}}}
    path.write_text(json.dumps(vade))
    place.check_same(path, place.filled(vade, settings.Run()), (), settings.Run())
    vade["selector"]["options"] |= {"per": "answer"}  # named by a later version
    place.check_same(path, place.filled(vade, settings.Run()), (), settings.Run())
    vade["selector"]["options"] |= {"per": "token"}
    with pytest.raises(ValueError, match=r"selector.options.per: 'answer' there, 'token' now"):
        place.check_same(path, place.filled(vade, settings.Run()), (), settings.Run())
    path.write_text("[]")
    with pytest.raises(ValueError, match="holds no names and values"):
        place.check_same(path, same, (), settings.Run())


def test_the_policy_of_a_shorter_run_goes_and_a_link_to_it_stays(tmp_path):
    run, disk = tmp_path / "run", tmp_path / "disk"
    for directory_ in (run / "adapter", disk):
        directory_.mkdir(parents=True)
        (directory_ / "config.json").write_text("{}")
    (run / "policy").symlink_to(disk)
    directory.drop_policy(str(run))
    assert list(run.iterdir()) == [run / "policy"]
    assert (run / "policy").readlink() == disk and not list(disk.iterdir())


@pytest.mark.parametrize("text", ['{"model_type": "qwen2_5_vl"}', "[]", "no JSON"])
def test_a_config_of_something_else_is_left_alone(tmp_path, text):
    """A --workdir in the place of a checkpoint's directory must not cost its config.json."""
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"{path} is no run's: give a --workdir of its own"):
        open_for(settings.Run(), str(tmp_path))
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["policy", "adapter", "checkpoints"])
def test_a_new_run_replaces_nobodys_files(tmp_path, name):
    """Such as the checkpoint that it starts from, or a package of that name."""
    (tmp_path / name).mkdir()
    open_for(settings.Run(seed=1), str(tmp_path))  # an empty one may be a mounted disk
    (tmp_path / "config.json").unlink()
    (tmp_path / name / "mine.py").touch()
    with pytest.raises(
        ValueError, match=f"{name} is there and no run's: .* a --workdir of its own"
    ):
        open_for(settings.Run(seed=1), str(tmp_path))
    assert (tmp_path / name / "mine.py").exists()


def test_a_finished_run_without_checkpoints_does_not_start_over(tmp_path):
    workdir, every = str(tmp_path), settings.Checkpoint().every
    (tmp_path / "policy").mkdir()
    (tmp_path / "checkpoints").mkdir()
    for last, exported, lost in [(2 * every, 0, False), (2 * every + 1, 0, True), (1, 1, True)]:
        (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": last}))
        if exported:
            (tmp_path / "policy" / "config.json").touch()
        expected = contextlib.nullcontext()
        if lost:
            expected = pytest.raises(ValueError, match=r"no checkpoint to go on from: put its")
        with expected:
            place.check_goes_on(workdir)
    (tmp_path / "checkpoints" / "20").mkdir()
    place.check_goes_on(workdir)


@pytest.mark.parametrize(("last", "lost"), [(50, False), (201, True)])
@pytest.mark.parametrize("every", [10, 1000])
def test_how_often_a_run_saved_is_known_when_that_changes(tmp_path, last, lost, every):
    saving = lambda every: settings.Run(checkpoint=settings.Checkpoint(every=every))
    open_for(saving(100), str(tmp_path))
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": last}))
    with (
        pytest.raises(ValueError, match="no checkpoint to go") if lost else contextlib.nullcontext()
    ):
        open_for(saving(every), str(tmp_path))


def test_a_start_that_makes_nothing_leaves_a_run_without_a_checkpoint_to_the_next(tmp_path):
    """It wrote that it saves every 5 steps, which the 50 steps before it did not."""
    saving = lambda every: settings.Run(checkpoint=settings.Checkpoint(every=every))
    open_for(saving(100), str(tmp_path))
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": 50}))
    for _ in range(2):
        open_for(saving(5), str(tmp_path))


def test_a_finished_run_keeps_the_settings_that_it_was_made_with(tmp_path):
    done, workdir = settings.Run(num_steps=3), str(tmp_path)
    open_for(done, workdir)
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").touch()
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": 3, "vade/rollouts_total": 9}))
    before = (tmp_path / "config.json").read_bytes()
    open_for(dataclasses.replace(done, eval=settings.Eval(num_samples=9)), workdir)
    assert (tmp_path / "config.json").read_bytes() == before
    open_for(settings.Run(num_steps=5), workdir)
    assert (tmp_path / "config.json").read_bytes() != before


@pytest.mark.parametrize(("total", "is_done"), [(45, False), (46, True)])
def test_a_run_whose_budget_has_no_room_for_the_pass_that_is_due_is_done(tmp_path, total, is_done):
    """10 items, 2 answers to each, after every second step; 66 answers for all."""
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    line = {"step": 2, "vade/rollouts_total": total, "vade/epochs": 0.8}
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line(line))
    batch = {"prompts_per_minibatch": 4, "prompts_per_microbatch": 4}
    values = {
        "num_steps": 6,
        "budget": 66 / 48,
        "num_prompts": 4,
        "num_rollouts": 2,
        "batch": batch,
    }
    run = settings.Run.from_dict(values | {"selector": {"name": "mmr1"}, "measure": {"every": 2}})
    assert run.max_rollouts == 66
    assert job.is_done(run, str(tmp_path)) is is_done


def test_a_run_without_a_step_owns_nothing(tmp_path, capsys):
    open_for(settings.Run(seed=1), str(tmp_path))
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": 0, "val/own/acc/mean@1": 0.5}))
    open_for(settings.Run(seed=1, num_steps=7), str(tmp_path))  # as a run that goes on may have it
    assert capsys.readouterr().out == ""
    open_for(settings.Run(seed=2), str(tmp_path))
    assert (
        "took no step, so this one is to take over (seed: 1 there, 2 now)"
        in capsys.readouterr().out
    )
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 2
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize("what", ["metrics.jsonl", "checkpoints/1", "policy/config.json"])
def test_a_run_with_a_step_owns_its_directory(tmp_path, what):
    open_for(settings.Run(seed=1), str(tmp_path))
    (tmp_path / what).parent.mkdir(exist_ok=True)
    (tmp_path / what).write_bytes(metrics.line({"step": 1}))
    with pytest.raises(ValueError, match=r"is of another config \(seed: 1 there, 2 now\)"):
        open_for(settings.Run(seed=2), str(tmp_path))


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
    open_for(settings.Run(), str(tmp_path))
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
        directory.own(str(tmp_path / name))
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
    workdir, state = (
        str(tmp_path / name),
        TrainState(params={"w": np.ones(2)}, opt_state={}, step=np.int32(1)),
    )
    directory.make(workdir, "--workdir")
    with contextlib.closing(checkpointer(settings.Checkpoint(), workdir)) as saved:
        saved.save(1, state, {}, {}, {}, force=True)
    with contextlib.closing(checkpointer(settings.Checkpoint(), workdir)) as saved:
        assert saved.restore(saved.latest_step(), state, {})[0].params["w"].tolist() == [1, 1]
