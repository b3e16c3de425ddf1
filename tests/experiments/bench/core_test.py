"""The suites of the core, at sizes where only that they run is learned."""

import pytest

from experiments.bench import core, timing


@pytest.mark.parametrize("suite", [core.draws, core.data])
def test_a_suite_runs(suite):
    for table in suite(quick=True):
        assert all(min(times) > 0 for times in table.times.values())
        assert {len(row) for row in table.rows("x")} == {len(timing.HEADER)}


def test_selectors_beside_a_step(monkeypatch):
    monkeypatch.setattr(core, "_step_of_tiny_job", lambda words: 2.0)
    (table,) = core.selectors(quick=True)
    assert [*table.times] == ["vade", "mmr1", "sec"]
    assert table.notes["vade"] == f"{min(table.times['vade']) / 2:.1%} of {core.STEP}"
