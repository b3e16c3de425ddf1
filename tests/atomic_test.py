"""A file is the old one or the new one, whatever stops the writing."""

import os
import subprocess
import sys

import pytest

from vade_jax import atomic


@pytest.mark.parametrize("fsync", [False, True])
def test_a_file_is_replaced_at_once(tmp_path, fsync):
    path = tmp_path / "new" / "a.txt"
    atomic.write_text(path, "one", fsync=fsync)
    with atomic.replacing(path, fsync=fsync) as temporary:
        temporary.write_text("two \n")
        assert path.read_text() == "one"
    assert path.read_text() == "two \n"
    atomic.write_text(path, "broken \ud800 é")
    assert path.read_text("utf-8") == "broken ? é"
    assert os.listdir(path.parent) == ["a.txt"]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic.replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    with pytest.raises(FileNotFoundError), atomic.replacing(path):
        pass  # nothing was written
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    """It had no time to clean up; what only looks like it stays."""
    script = (
        "import os, signal, sys; from vade_jax import atomic\n"
        "with atomic.replacing(sys.argv[1]) as path:\n"
        "    path.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "figures" / "a.svg"
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert len(os.listdir(path.parent)) == 1
    (tmp_path / "notes.my-own.tmp").write_text("mine")
    (tmp_path / ".policy.new" / "deeper").mkdir(parents=True)
    for mine in ("my.old", ".vim.old"):
        (tmp_path / mine).mkdir()
    atomic.remove_strays(tmp_path, ["policy"])
    assert os.listdir(path.parent) == []
    assert sorted(os.listdir(tmp_path)) == [".vim.old", "figures", "my.old", "notes.my-own.tmp"]


def test_what_a_killed_process_left_behind_a_link_is_removed(tmp_path):
    """It lies beside the link's target."""
    run, disk = tmp_path / "run", tmp_path / "disk"
    for directory in (run, disk / "mine", disk / ".mine.new", disk / ".policy.new"):
        directory.mkdir(parents=True)
    (run / "policy").symlink_to(disk / "mine")
    atomic.remove_strays(run, ["policy"])
    assert sorted(os.listdir(disk)) == [".policy.new", "mine"]
    assert os.listdir(run) == ["policy"]
