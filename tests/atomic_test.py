"""A file is the old one or the new one, whatever stops the writing."""

import os
import subprocess
import sys

import pytest

from vade_jax import atomic


def test_a_file_is_replaced_at_once(tmp_path):
    path = tmp_path / "new" / "a.txt"
    atomic.write_text(path, "one")
    with atomic.replacing(path) as temporary:
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
    (path.parent / "notes.my-own.tmp").write_text("mine")
    atomic.remove_strays(path.parent)
    assert os.listdir(path.parent) == ["notes.my-own.tmp"]


def test_a_directory_is_replaced_at_once_and_the_next_call_removes_what_a_kill_left(tmp_path):
    path = tmp_path / "policy"
    for end in ("new", "old"):
        (tmp_path / f".policy.{end}" / "deeper").mkdir(parents=True)
    for name in ("one", "two"):
        with atomic.replacing_directory(path) as fresh:
            (fresh / name).touch()
    with pytest.raises(KeyboardInterrupt), atomic.replacing_directory(path) as fresh:
        raise KeyboardInterrupt
    assert os.listdir(path) == ["two"] and os.listdir(tmp_path) == ["policy"]
