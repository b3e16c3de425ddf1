"""The command: its files, and one clear error before anything is played."""

import json
import re

import pytest

from configs import simulate as config
from experiments import simulate
from experiments.arenas.simulation import arena, selectors


def small(**changes):
    c = config.get_config("smoke")
    c.worlds, c.selectors = "skills,skills_clean", "uniform,oracle"
    c.update(changes)
    return c


def cells_of(c):
    return selectors.cells(selectors.Settings.from_dict(c.to_dict()))


def refuse(*args, **kwargs):
    raise AssertionError("nothing is to be played")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("simulate")
    simulate.main(small(), str(path))
    return path


def test_what_a_run_leaves(workdir):
    text = (workdir / "report.md").read_text()
    for part in ("## skills: 200 items", "## skills_clean", "| uniform", "| oracle"):
        assert part in text
    found = json.loads((workdir / "results.json").read_text())
    assert list(found) == ["skills", "skills_clean"]
    values = found["skills"]["oracle"]["values"]
    assert len(values["progress"]["seeds"]) == 2
    assert values["effective"]["mean"] > found["skills"]["uniform"]["values"]["effective"]["mean"]
    clean = found["skills_clean"]["uniform"]["values"]
    assert clean["hopeless"]["mean"] == 0 < found["skills"]["uniform"]["values"]["hopeless"]["mean"]
    assert not list(workdir.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"worlds": "skils"}, "worlds='skils': did you mean 'skills'"),
        ({"worlds": ""}, "worlds='': name one of"),
        ({"selectors": "vade,unifrom"}, "selectors='unifrom': did you mean 'uniform'"),
        ({"selectors": " , "}, "selectors=' , ': name one of"),
        ({"world.skills.hopeless": 1.5}, "world skills: hopeless=1.5: must be in"),
        ({"world.skills.kind": "skil"}, "world skills: kind='skil'"),
        ({"rollouts": 79}, "world skills: rollouts=79: a step of 10 prompts"),
        ({"rollouts": 0}, r"rollouts=0: must be in \[1, inf\)"),
        ({"seeds": "0,x"}, "seeds='0,x': numbers with commas"),
        ({"num_prompts": 201}, "world skills: num_prompts=201: must be in"),
        ({"num_rollouts": 1}, "world skills: num_rollouts=1: must be in"),
        ({"selectors": "vade_measured", "rollouts": 800}, "measures 200 items first"),
        ({"selectors": "strata"}, "strata needs the pass_rate .* measure_every"),
        ({"selector.vade_mean.options.draw": "best"}, "selector vade_mean: draw='best'"),
    ],
)
def test_a_mistake_is_one_error_before_anything_is_played(
    change, message, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(arena, "run", refuse)
    c = small(selectors="uniform,vade_mean")
    c.update_from_flattened_dict(change)
    with pytest.raises(SystemExit) as caught:
        simulate.main(c, str(tmp_path))
    said = capsys.readouterr().err
    assert caught.value.code == 2 and said.count("\n") == 1
    assert re.search(message, said), said


def test_every_selector_of_the_package_is_in_the_default_config():
    c = config.get_config()
    planned = cells_of(c)
    names = {cell.entry.name for cells in planned.values() for cell in cells}
    # strata is a control of real runs: here the oracle needs no passes to know the pass rates.
    assert names == set(selectors.SELECTORS) - {"strata"}


@pytest.mark.slow
def test_every_selector_plays(tmp_path):
    c = small(worlds="skills", selectors=config.DEFAULT, rollouts=60 * 80)
    simulate.main(c, str(tmp_path))
    found = json.loads((tmp_path / "results.json").read_text())["skills"]
    assert set(found) == set(config.DEFAULT.split(","))
    for label, cell in found.items():
        values = cell["values"]
        assert 0.05 < values["effective"]["mean"] <= 1, label
        assert values["progress"]["mean"] > values["start"]["mean"], label
        assert values["steps"]["mean"] <= 60, label
