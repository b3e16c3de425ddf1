"""Whose a run directory is, and what it was made with."""

import shutil
import subprocess
import sys

import pytest

from vade_jax import settings
from vade_jax.run import directory
from vade_jax.store import run_file

IDENTITY = {"items": 5, "questions": 6, "details": 7, "pictures": 8, "model": 9, "verifier": 2}


def start(workdir, identity=IDENTITY, **changes):
    """As a run does, with all checks passed."""
    run = settings.Run(**changes)
    directory.check_settings(run, str(workdir))
    if not directory.is_done(run, str(workdir)):
        directory.begin(run, str(workdir), identity, num_items=10)


def saved(workdir, **changes):
    """A run that has saved step 3."""
    start(workdir, **changes)
    run_file.change(workdir, state="running")
    (workdir / "checkpoints" / "3").mkdir(parents=True)


@pytest.mark.parametrize("name", ["policy", "adapter", "checkpoints"])
def test_a_new_run_replaces_nobodys_files(tmp_path, name):
    """Such as the checkpoint that it starts from, or a package of that name."""
    (tmp_path / name).mkdir()
    start(tmp_path)  # an empty one may be a mounted disk
    (tmp_path / "run.json").unlink()
    (tmp_path / name / "mine.py").touch()
    with pytest.raises(ValueError, match=f"{name} exists and is not from a run"):
        start(tmp_path)
    assert (tmp_path / name / "mine.py").exists()


def test_a_run_that_saved_nothing_owns_nothing(tmp_path, capsys):
    start(tmp_path, seed=1)
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


def test_a_finished_run_keeps_its_settings_and_needs_no_checkpoints(tmp_path):
    saved(tmp_path, num_steps=3)
    run_file.change(tmp_path, state="done", step=3)
    lengths = (
        {"num_steps": 5},
        {"num_steps": 2},
        {"num_steps": 3, "budget": 0.5},
        {"num_epochs": 2.0},
    )
    done = [directory.is_done(settings.Run(**length), str(tmp_path)) for length in lengths]
    assert done == [False, True, True, False]
    shutil.rmtree(tmp_path / "checkpoints")
    before = (tmp_path / "run.json").read_bytes()
    start(tmp_path, num_steps=3, eval=settings.Eval(num_samples=9))
    assert (tmp_path / "run.json").read_bytes() == before
    with pytest.raises(ValueError, match="finished run without checkpoints"):
        start(tmp_path, num_steps=5)
    with pytest.raises(ValueError, match="of a run with other settings"):
        start(tmp_path, num_steps=3, seed=2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("items", "data.train"),
        ("questions", "data.validation"),
        ("details", "choices"),
        ("model", "model.checkpoint"),
    ],
)
def test_a_run_goes_on_with_the_data_and_the_model_that_it_began_with(tmp_path, name, message):
    """The selector knows items by their places alone, and an adapter's checkpoint has no other weights."""
    start(tmp_path)
    start(tmp_path, IDENTITY | {name: 0})  # nothing was saved
    saved(tmp_path)
    with pytest.raises(ValueError, match=f"has changed: .*{message}"):
        start(tmp_path, IDENTITY | {name: 0})


def test_what_a_kill_left_half_written_is_removed_and_not_that_of_runs_below(tmp_path):
    names = "run.json.12-34.tmp", "rollouts/step_00001.parquet.12-34.tmp", "other/run.json.1-2.tmp"
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    start(tmp_path)
    assert [(tmp_path / name).exists() for name in names] == [False, False, True]


# ------------------------------------------------------------------------------ the lock


def test_a_directory_is_one_runs_at_a_time_and_free_when_that_one_is_killed(tmp_path):
    # `own` without the seconds that it takes to import.
    code = "import fcntl, os, sys, time; o = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(o, fcntl.LOCK_EX); "
    command = [sys.executable, "-uc", code + "print(1); time.sleep(60)", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match=f"--workdir={tmp_path} is in use"):
            directory.own(str(tmp_path))
        other.kill()
    with directory.own(str(tmp_path)), pytest.raises(ValueError, match="another run"):
        directory.own(str(tmp_path))
    directory.own(str(tmp_path)).close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a[1]", "a\nb"])
def test_a_name_below_which_checkpoints_could_not_be_read_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"^--workdir=") as error:
        directory.make(str(tmp_path / name), "--workdir")
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())
