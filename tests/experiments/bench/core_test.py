"""The suites of the core, at sizes where only that they run is learned."""

import pytest

from experiments.bench import core
from vade_jax.rewards import verify


@pytest.mark.parametrize("suite", [core.draws, core.verdicts, core.data])
def test_a_suite_runs(suite):
    for table in suite(quick=True):
        assert min(table.times.values()) > 0 and str(table).startswith(table.title)


def test_what_is_called_right_in_other_words_is_right():
    for kind, (gold, answers) in core.ANSWERS.items():
        verdicts = [verify.verify(rf"\boxed{{{text}}}", gold, kind).correct for text in answers]
        assert verdicts == [True, True, False], kind


def test_selectors_beside_a_step(monkeypatch):
    monkeypatch.setattr(core, "_step_of_tiny_job", lambda words: 2.0)
    (table,) = core.selectors(quick=True)
    *cases, step = table.times
    assert cases == [f"{x} {y}" for x in ("vade", "mmr1", "sec") for y in ("propose", "update")]
    assert step == core.STEP
    assert table.notes["vade propose"] == f"{table.times['vade propose'] / 2:.1%} of that step"
