"""The command that writes a tiny checkpoint; what it writes is tested with the models."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--directory=/dev/null/x"],
            "--directory=/dev/null/x cannot be made (Not a directory): give",
        ),
        (["--directory=/dev/null/x", "--taught"], "--directory=/dev/null/x cannot be made"),
        (["--directory=tests"], "--directory=tests exists: give a new directory"),
        (["--directory=unused", "--seed=-1"], "--seed=-1: must be in [0, "),
        (["--directory=unused", "seed", "1"], "'seed' is no flag: give values as --name=value"),
    ],
)
def test_a_mistake_is_one_line(arguments, message):
    run = [sys.executable, "-m", "experiments.make_tiny", *arguments]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
    assert message in ended.stderr
