"""Selectors beside a step, at sizes where only that they run is learned."""

from experiments.bench import core


def test_selectors_beside_a_step(monkeypatch):
    monkeypatch.setattr(core, "_step_of_tiny_job", lambda words: 2.0)
    (table,) = core.selectors(quick=True)
    *cases, step = table.times
    assert cases == [f"{x} {y}" for x in ("vade", "mmr1", "sec") for y in ("propose", "update")]
    assert step == core.STEP
    assert table.notes["vade propose"] == f"{table.times['vade propose'] / 2:.1%} of that step"
