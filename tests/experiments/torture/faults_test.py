"""The same seed brings the same faults, and damage is done to one file."""

import pytest

from experiments.torture import faults


def test_a_seed_and_a_number_draw_the_same_fault_whatever_was_drawn_before():
    moments = [*faults.OF_TRAINING]
    drawn = [faults.draw(3, number, faults.KINDS, moments) for number in range(300)]
    assert faults.draw(3, 41, faults.KINDS, moments) == drawn[41]
    assert faults.draw(4, 41, faults.KINDS, moments) != drawn[41]
    assert {fault.kind for fault in drawn} == {*faults.KINDS}
    # Only damage comes to a run that has ended; every moment has its faults.
    ended = {fault.kind for fault in drawn if fault.moment == faults.END}
    assert ended and ended <= {*faults.DAMAGE}
    assert {fault.moment for fault in drawn} == {*moments, faults.END}


@pytest.mark.parametrize("kind", faults.DAMAGE)
def test_damage_changes_one_file_and_only_as_its_kind_says(tmp_path, kind):
    for trial in range(20):
        before = {name: bytes(range(1, 50)) for name in ("a", "b")}
        for name, content in before.items():
            (tmp_path / name).write_bytes(content)
        (tmp_path / "empty").touch()
        path = faults.damage(tmp_path, faults.Fault(0, 0, kind, faults.START, 0.0, choice=trial))
        after = {name: (tmp_path / name).read_bytes() for name in before}
        assert [name for name in before if after[name] != before[name]] == [path.name]
        old, new = before[path.name], after[path.name]
        if kind == faults.TRUNCATE:
            assert len(new) < len(old) and old.startswith(new)
        else:
            assert sum(a != b for a, b in zip(old, new, strict=True)) == 1


def test_nothing_is_there_to_be_damaged(tmp_path):
    assert faults.damage(tmp_path, faults.Fault(0, 0, faults.FLIP, "start", 0.0, 0)) is None
