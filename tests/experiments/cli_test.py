"""Flags and configs of a command, and what errors print; mistakes_test.py has the mistakes themselves."""

import pathlib
import sys

import pytest
from absl import flags

from experiments import cli, config, errors
from vade_jax import settings

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def parse(monkeypatch):
    """Runs the real parser; ml_collections looks for overrides in sys.argv."""
    monkeypatch.chdir(ROOT)

    def parse(*arguments):
        monkeypatch.setattr(sys, "argv", ["train", *arguments])
        flags.FLAGS.unparse_flags()
        cli.parse(sys.argv)

    yield parse
    for name in [x for x in flags.FLAGS if x.startswith("config.")]:  # parsing defines them
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


def test_a_right_command_gives_the_config_and_a_directory(parse):
    parse("--config=configs/tiny_gspo.py:seed=3,smoke", "--config.num_prompts=7")
    assert (cli.CONFIG.value.seed, cli.CONFIG.value.num_prompts) == (3, 7)
    assert cli.default_workdir() == "runs/tiny_gspo_seed_3_smoke"


# ------------------------------------------------------------------------------ experiments.config
def shown(capsys, parse, *arguments, grep=""):
    parse(*arguments, f"--grep={grep}")
    config.main([])
    return capsys.readouterr().out


def test_a_config_is_shown_with_its_selectors_options(capsys, parse):
    words = "--config=configs/tiny_gspo.py", "--config.selector.name=kalman"
    text = shown(capsys, parse, *words)
    assert "num_prompts = 32 (default 512)\n    int at least 1. " in text
    assert "selector.options.temper = 0.5\n" in text and "decay_rest" not in text
    # What follows the data follows the command line.
    words = "--config=configs/my_data.py", "--config.data.validation=mine.jsonl"
    text = shown(capsys, parse, *words, grep="VALIDATION")
    assert "data.validation_share = 0\n" in text and "data.num_validation = 0\n" in text
    assert "learning_rate" not in text


def test_every_setting_has_a_meaning():
    found = list(config.of_run("vade"))
    assert len(found) > 110 and not [x.path for x in found if not x.meaning]
    kinds = {x.path: x.kind for x in config.of_section(settings.Run)}
    assert (kinds["seed"], kinds["batch.vocab_chunk"]) == ("int", "int at least 1")


# ------------------------------------------------------------------------------ errors
@pytest.mark.parametrize("kind", [ValueError, FileNotFoundError])
def test_user_errors_are_one_line_and_code_2(kind, capsys):
    with pytest.raises(SystemExit) as caught, errors.user_errors():
        raise kind("num_prompts=9 is wrong")
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: num_prompts=9 is wrong\n"
