"""What a user's mistake looks like: exit code 2 and one line."""

import errno
import logging
import pathlib
import re
import shutil
import subprocess
import sys

import absl.logging
import pytest
from absl import flags

from experiments import cli, errors

ROOT = pathlib.Path(__file__).parents[2]


def parse(monkeypatch, *arguments):
    """Runs the real parser; ml_collections looks for overrides in sys.argv."""
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    flags.FLAGS.unparse_flags()
    try:
        cli.parse(sys.argv)
    finally:
        flags.FLAGS.unparse_flags()


def test_paths_of_flags_may_be_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copy(ROOT / "configs" / "from_json.py", tmp_path)
    (tmp_path / "config.json").write_text('{"num_steps": 7}')
    words = ["train", "--config=~/from_json.py:~/config.json", "--workdir=~/run"]
    monkeypatch.setattr(sys, "argv", words)
    flags.FLAGS.unparse_flags()
    try:
        cli.parse(sys.argv)
        assert cli.WORKDIR.value == f"{tmp_path}/run"
        assert cli.CONFIG.value.num_steps == 7
    finally:
        flags.FLAGS.unparse_flags()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config=configs/tiny_gspo.py:unifrom"], "did you mean 'uniform'?"),
        (["--config=configs/tiny_gspoo.py"], "configs/tiny_gspoo.py"),
        (["--config=configs"], "Is a directory: 'configs'"),
        (["--config=README.md"], "README.md, line "),
        (["--config=configs/sweep.py:frontier,updates=0"], "updates=0: must be 1 or more"),
        (
            ["--config=configs/tiny_gspo.py", "--config.engine.options.max_num_seqs=8"],
            "no such field: max_num_seqs",
        ),
        (["--workdri=x"], "Did you mean: workdir ?"),
        (
            [
                "--config=configs/tiny_gspo.py",
                "--config.selector.options.decay_selcted=0.3",
            ],
            'Did you mean "decay_selected"',
        ),
        (["--config=configs/tiny_gspo.py", "--config.num_steps=ten"], "'ten'"),
        (
            ["--config=configs/tiny_gspo.py", "config.num_steps=9"],
            "'config.num_steps=9' is no flag: did you mean --config.num_steps=9?",
        ),
        (
            [
                "--config=configs/tiny_gspo.py:uniform",
                "--config.selector.options.draw=mean",
            ],
            "no such field: draw",
        ),
    ],
)
def test_a_wrong_flag_is_one_line(arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as caught:
        parse(monkeypatch, *arguments)
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert message in said and said.startswith("error: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["convert", "--help"], 0, "--source: A run directory or a GGUF file."),
        (
            ["convert", "--source=a", "--target=b", "--bogus=1"],
            2,
            "error: Unknown command line flag",
        ),
        (["train", "--help"], 0, "--workdir: The run directory; an existing one is resumed."),
        (["train", "--config=configs/tiny.py"], 2, "no attribute 'get_config'"),
        (["arenas.pages", "--help"], 0, "usage: experiments.arenas.pages [-h]"),
    ],
)
def test_help_and_mistakes_of_a_process(command, code, message):
    words = [sys.executable, "-m", f"experiments.{command[0]}", *command[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    said = done.stderr if code else done.stdout
    assert done.returncode == code and message in said
    assert not code or said.count("\n") == 1


def test_a_right_command_gives_the_config_and_a_directory(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "train",
            "--config=configs/tiny_gspo.py:seed=3,smoke",
            "--config.num_prompts=7",
        ],
    )
    flags.FLAGS.unparse_flags()
    cli.parse(sys.argv)
    assert (cli.CONFIG.value.seed, cli.CONFIG.value.num_prompts) == (3, 7)
    assert cli.default_workdir() == "runs/tiny_gspo_seed_3_smoke"
    flags.FLAGS.unparse_flags()


@pytest.mark.parametrize(("name", "options"), [("vade", {"warmup": "none"}), ("kalman", {})])
def test_the_configs_own_selector_named_again_changes_nothing(name, options, monkeypatch):
    monkeypatch.chdir(ROOT)
    given = ["--config=configs/tiny_gspo.py", f"--config.selector.name={name}"]
    monkeypatch.setattr(sys, "argv", ["train", *given])
    flags.FLAGS.unparse_flags()
    cli.parse(sys.argv)
    found = cli.config().selector
    assert found.name == name
    assert {key: found.options.get(key) for key in options} == options
    assert name == "vade" or "warmup" not in found.options
    delattr(flags.FLAGS, "config.selector.name")  # parsing defines it
    flags.FLAGS.unparse_flags()


@pytest.mark.parametrize("kind", [ValueError, FileNotFoundError])
def test_user_errors_are_one_line_and_code_2(kind, capsys):
    with pytest.raises(SystemExit) as caught, errors.user_errors():
        raise kind("num_prompts=9 is wrong")
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: num_prompts=9 is wrong\n"


def test_threads_are_silent_about_a_closed_loop_alone(monkeypatch):
    """A damaged checkpoint is one line, whatever tensorstore's threads still had to say."""
    said = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: said.append(str(found.exc_value)))

    class Late:
        def __init__(self, words):
            self.words = words

        def __del__(self):
            raise RuntimeError(self.words)

    with pytest.raises(SystemExit), errors.user_errors():
        raise ValueError("checkpoint 3 is damaged")
    Late("Event loop is closed")
    Late("something else")
    assert said == ["something else"]


@pytest.mark.parametrize("guard", [errors.user_errors, errors.disk_errors])
def test_other_errors_keep_their_traceback(guard):
    with pytest.raises(ZeroDivisionError), guard():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/runs/a/metrics.jsonl"),
        # As tensorstore says it.
        ValueError('Error writing "/runs/a/metrics.jsonl": No space left on device\n[source ...]'),
    ],
)
def test_a_disk_that_takes_nothing_more_is_one_line(error, monkeypatch, capsys):
    savers = [logging.getLogger(name) for name in errors.SAVERS]
    for saver in savers:
        monkeypatch.setattr(saver, "disabled", False)
    with pytest.raises(SystemExit) as caught, errors.disk_errors():
        raise error
    assert caught.value.code == 1
    savers[0].error("Future exception was never retrieved")  # of a save that failed with it
    absl.logging.error("a thread that still saved failed too")
    assert re.fullmatch(
        r"error: .*/runs/a/metrics.jsonl.*: make room .* whole\n", capsys.readouterr().err
    )
