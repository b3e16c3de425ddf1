"""The suites of the core, at sizes where only that they run is learned."""

import pytest

from experiments.bench import core


@pytest.mark.parametrize("suite", [core.draws, core.data])
def test_a_suite_runs(suite):
    assert all(min(table.times.values()) > 0 for table in suite(quick=True))


def test_selectors_beside_a_step(monkeypatch):
    monkeypatch.setattr(core, "_step_of_tiny_job", lambda words: 2.0)
    (table,) = core.selectors(quick=True)
    *cases, step = table.times
    assert cases == [f"{x} {y}" for x in ("vade", "mmr1", "sec") for y in ("propose", "update")]
    assert step == core.STEP
    assert table.notes["vade propose"] == f"{table.times['vade propose'] / 2:.1%} of that step"
