"""The suites of the core, at sizes where only that they run is learned."""

import pytest

from experiments.bench import core, timing


@pytest.mark.parametrize("suite", [core.draws, core.data])
def test_a_suite_runs(suite):
    for table in suite(quick=True):
        assert all(min(times) > 0 for times in table.times.values())
        assert {len(row) for row in table.rows("x")} == {len(timing.HEADER)}
