import math

import pytest

from vade_jax.report import selection
from vade_jax.store import rollout_log


def write(workdir, step, families, correct):
    """Two answers a group."""
    group = [m for m in range(len(families)) for _ in range(2)]
    metadata = [{"family": families[m], "level": 0} for m in group]
    rollout_log.write(
        rollout_log.path(workdir, step),
        {"group": group, "correct": correct, "metadata": metadata},
    )


def test_shares_and_mixed_groups_of_the_last_steps(tmp_path):
    write(tmp_path / "a", 1, ["old", "old"], [1, 1, 1, 1])
    write(tmp_path / "a", 2, ["x", "y"], [1, 0, 1, 1])
    write(tmp_path / "b", 1, ["x", "x"], [0, 0, 1, 0])
    lines = selection.table(
        {"one": [tmp_path / "a"], "two": [tmp_path / "b"]}, last=0.5
    ).splitlines()
    assert lines[0] == "| family, level | one | two |"
    assert lines[2:] == [
        "| x 0 | 50% (1.00) | 100% (0.50) |",
        "| y 0 | 50% (0.00) | - |",
    ]


def test_a_run_without_rollouts_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no rollouts in"):
        selection.table({"one": [tmp_path]})


def test_the_share_of_rollouts_on_hopeless_prompts(tmp_path):
    stratum = {"graded": {"stratum": "graded"}, "impossible": {"stratum": "impossible"}}
    wrong = {"stratum": "graded", "mislabelled": True}
    both = {"stratum": "impossible", "mislabelled": True}  # counts once
    for step, of in (
        (1, [stratum["graded"], wrong, both]),
        (2, [stratum["impossible"]]),
    ):
        path = rollout_log.path(tmp_path, step)
        rollout_log.write(path, {"metadata": of})
    assert selection.hopeless_share(tmp_path) == 0.75
    assert math.isnan(selection.hopeless_share(tmp_path / "none"))
    write(tmp_path / "other", 1, ["x"], [1, 0])  # data that know no strata
    assert math.isnan(selection.hopeless_share(tmp_path / "other"))
