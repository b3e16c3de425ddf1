"""The table over arenas, by hand."""

import pytest

from experiments import results
from experiments.arenas import across, comparison, records
from tests.experiments.arenas.comparison_test import recorded


def late(*values):
    """Validations whose last three are the same."""
    return {seed: [0.1, *[value] * 3] for seed, value in enumerate(values)}


@pytest.fixture
def groups(tmp_path):
    """Two arenas. Arm a has 0.1, 0.2, 0.3 more in one and 0.3, 0.2 in the other; b is in one of them."""
    arms = {
        "one/clean": {"uniform": late(0.2, 0.2, 0.2), "a": late(0.3, 0.4, 0.5)},
        "two/clean": {"uniform": late(0.4, 0.4, 0.4), "a": late(0.7, 0.6), "b": late(0.5)},
    }
    return {
        name: {
            arm: [recorded(tmp_path / name / arm / str(s), s, x) for s, x in of_arm.items()]
            for arm, of_arm in group.items()
        }
        for name, group in arms.items()
    }


def test_a_seeds_mean_over_the_arenas_that_have_it(groups):
    compared = comparison.compare(groups)
    mean = across.seeds_mean(compared, "a")
    # Seed 0: (0.1 + 0.3) / 2, seed 1: (0.2 + 0.2) / 2; seed 2 is in one arena alone.
    assert mean.mean == pytest.approx(0.2) and mean.count == 2
    assert across.seeds_mean(compared, "b").count == 0
    lines = across.markdown(compared).splitlines()
    assert lines[0] == "| arm | one/clean | two/clean | mean of all (seeds) |"
    uniform, a, b = (line.split(" | ") for line in lines[2:5])
    assert uniform[1:] == ["0.200", "0.400", " |"]
    assert a[1].startswith("+0.200 ± ") and a[2].startswith("+0.250 ± ")
    assert a[3].startswith("+0.200") and a[3].endswith("(2) |")
    assert b == ["| b", "", "+0.100", " |"]


def test_the_command_keeps_arenas_of_the_same_name_inside_apart(groups, tmp_path, capsys):
    files = []
    for name, arms in groups.items():
        arena, _, data = name.partition("/")
        files.append(str(tmp_path / f"{arena}.parquet"))
        records.write({f"{data}/gspo": arms}, files[-1])
    results.main(["--across", "--records", *files, "--workdir", str(tmp_path / "out")])
    text = (tmp_path / "out" / "across.md").read_text()
    assert "| arm | one/clean/gspo | two/clean/gspo |" in text
    assert (tmp_path / "out" / "across.png").read_bytes().startswith(b"\x89PNG")
    assert text in capsys.readouterr().out + "\n"
    with pytest.raises(SystemExit):
        results.main(["--across", "--records", *files, "--workdir", "x", "--arms", "uniform"])
    assert "no arm beside the baseline uniform" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        results.main(["--across", "--records", *files[:1] * 2, "--workdir", str(tmp_path)])
    assert "two have the same: rename one" in capsys.readouterr().err


def test_one_table_has_its_arenas_inside(groups, tmp_path):
    path = str(tmp_path / "both.parquet")
    records.write(groups, path)
    results.main(["--across", "--records", path, "--workdir", str(tmp_path / "out")])
    text = (tmp_path / "out" / "across.md").read_text()
    assert text.startswith("| arm | one/clean | two/clean | mean of all (seeds) |")
