"""Each suite of the core runs, at sizes where only that is learned."""

from experiments.bench import core, timing


def test_a_table_by_hand():
    table = timing.Table("title", {"a": 0.5, "bc": 1e-3, "d": 2.0}, {"a": "why"})
    lines = [[x.strip() for x in line.split("|")[1:-1]] for line in str(table).splitlines()]
    assert lines[4:7] == [
        ["a", "500.0 ms", "1.00", "why"],
        ["bc", "1.0 ms", "0.00", ""],
        ["d", "2,000.0 ms", "4.00", ""],
    ]


def test_selectors_beside_a_step(monkeypatch):
    monkeypatch.setattr(core, "_step_of_tiny_job", lambda words: 2.0)
    (table,) = core.selectors(quick=True)
    *cases, step = table.times
    assert cases == [f"{x} {y}" for x in ("vade", "mmr1", "sec") for y in ("propose", "update")]
    assert step == core.STEP
    assert table.notes["vade propose"] == f"{table.times['vade propose'] / 2:.1%} of that step"
