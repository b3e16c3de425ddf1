"""`experiments.config` tells every setting, from the one place that defines it."""

import pathlib
import subprocess
import sys

import pytest

from experiments import config
from vade_jax import settings

ROOT = pathlib.Path(__file__).parents[2]


def tell(*arguments):
    command = [sys.executable, "-m", "experiments.config", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout


def test_every_setting_has_a_meaning():
    found = list(config.of_run("vade"))
    assert len(found) > 100 and not [x.path for x in found if not x.meaning]


def test_the_page_is_of_these_settings():
    """So a default or a range that changes is seen there, in one line of a diff."""
    assert (ROOT / "docs/settings.md").read_text() == config.page()


def test_a_config_is_shown_with_its_selectors_options():
    text = tell("--config=configs/tiny_gspo.py", "--config.selector.name=kalman")
    assert "num_prompts = 32 (default 512)\n    int at least 1. " in text
    assert "selector.options.temper = 0.5\n" in text and "decay_rest" not in text


def test_what_follows_the_data_follows_the_command_line():
    data = "--config.data.validation=mine.jsonl", "--grep=validation"
    text = tell("--config=configs/my_data.py", *data)
    assert "data.validation_share = 0\n" in text and "data.num_validation = 0\n" in text
    text = tell("--config=configs/tiny_gspo.py", *data, "--config.data.num_validation=9")
    assert "data.num_validation = 9 (default 0)\n" in text


def test_a_word_finds_settings_by_name_and_meaning():
    text = tell("--grep=NUM_PROMPTS")
    assert "num_prompts = 512\n" in text and "learning_rate" not in text
    assert tell("--grep=zzz") == "no setting has 'zzz' in its name or meaning\n"


@pytest.mark.parametrize(
    ("name", "told"),
    [("seed", "int"), ("batch.vocab_chunk", "int at least 1"), ("lora.vision", "bool")],
)
def test_the_range_is_told_in_words(name, told):
    (found,) = (x for x in config.of_section(settings.Run) if x.path == name)
    assert found.kind == told
