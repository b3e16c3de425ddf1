"""Each suite of the core runs, at sizes where only that is learned."""

import subprocess
import sys

import pytest

from experiments.bench import core, timing
from tests.trainer import small
from vade_jax.models.qwen import presets
from vade_jax.rewards import verify


def test_a_table_by_hand():
    table = timing.Table("title", {"a": 0.5, "bc": 1e-3, "d": 2.0}, {"a": "why"})
    lines = [[x.strip() for x in line.split("|")[1:-1]] for line in str(table).splitlines()]
    assert lines[4:7] == [
        ["a", "500.0 ms", "1.00", "why"],
        ["bc", "1.0 ms", "0.00", ""],
        ["d", "2,000.0 ms", "4.00", ""],
    ]


@pytest.mark.parametrize("suite", [core.draws, core.data, core.verdicts])
def test_a_suite_runs(monkeypatch, suite):
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    for table in suite(quick=True):
        assert min(table.times.values()) > 0 and str(table).startswith(table.title)


def test_selectors_beside_a_step(monkeypatch):
    monkeypatch.setattr(core, "_step_of_tiny_job", lambda words: 2.0)
    (table,) = core.selectors(quick=True)
    *cases, step = table.times
    assert cases == [f"{x} {y}" for x in ("vade", "mmr1", "sec") for y in ("propose", "update")]
    assert step == core.STEP
    assert table.notes["vade propose"] == f"{table.times['vade propose'] / 2:.1%} of that step"


def test_a_step_of_the_tiny_job_is_timed(monkeypatch, one_device):
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    assert 0 < core._step_of_tiny_job("smoke") < 60


def test_what_is_called_right_in_other_words_is_right():
    for kind, (gold, answers) in core.ANSWERS.items():
        verdicts = [verify.verify(rf"\boxed{{{text}}}", gold, kind).correct for text in answers]
        assert verdicts == [True, True, False], kind


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--suite=draws", "--quick"], 0, "numpy Generator.beta"),
        (["--suite=plan"], 1, "needs --config"),
        (
            [
                "--suite=plan",
                "--config=configs/qwen7b_gspo.py:smoke",
                "--target=v5p",
                "--devices=3",
            ],
            2,
            "a slice has",
        ),
    ],
)
def test_the_command(words, code, said):
    command = [sys.executable, "-m", "experiments.bench", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code and said in done.stdout + done.stderr
