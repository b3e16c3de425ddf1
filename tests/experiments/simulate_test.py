"""The command: files, resuming, and one clear error before anything is played."""

import json
import re
import shutil

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
    for world in found:
        assert (workdir / "figures" / f"{world}.png").read_bytes()[:4] == b"\x89PNG"
    assert not list(workdir.rglob("*.tmp"))


def test_what_is_there_is_not_played_again(workdir, monkeypatch, capsys):
    before = (workdir / "results.json").read_text()
    monkeypatch.setattr(arena, "run", refuse)
    simulate.main(small(), str(workdir))
    assert capsys.readouterr().out.count("kept from before") == 4
    assert (workdir / "results.json").read_text() == before


def test_changed_settings_are_played_again(workdir, tmp_path, capsys):
    shutil.copytree(workdir / "cells", tmp_path / "cells")
    c = small(worlds="skills")
    c.world.skills.hopeless = 0.2
    simulate.main(c, str(tmp_path))
    assert capsys.readouterr().out.count("settings changed") == 2


def test_a_damaged_cell_is_named(workdir, tmp_path, capsys):
    shutil.copytree(workdir / "cells", tmp_path / "cells")
    path = tmp_path / "cells" / "skills" / "oracle.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(SystemExit):
        simulate.main(small(), str(tmp_path))
    assert f"error: {path} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"worlds": "skils"}, r"the world 'skils' is unknown: did you mean 'skills'\?"),
        ({"worlds": ""}, "worlds='': name one of"),
        ({"selectors": "vade,unifrom"}, "'unifrom' is unknown: did you mean 'uniform'"),
        ({"highlight": "vade,oracel"}, "highlight: the selector 'oracel' is unknown: did you mean"),
        ({"selectors": " , "}, "selectors=' , ': name one of"),
        ({"world.skills.hopeless": 1.5}, "world skills: hopeless=1.5: must be in"),
        ({"world.skills.kind": "skil"}, "world skills: the kind 'skil' is unknown"),
        ({"rollouts": 79}, "world skills: rollouts=79: a step of 10 prompts"),
        ({"rollouts": 0}, r"rollouts=0: must be in \[1, inf\)"),
        ({"seeds": "0,x"}, "seeds='0,x': numbers with commas"),
        ({"num_prompts": 201}, "world skills: num_prompts=201: must be in"),
        ({"num_rollouts": 1}, "world skills: num_rollouts=1: must be in"),
        ({"selectors": "vade_measured", "rollouts": 800}, "measures 200 items first"),
        ({"selectors": "strata"}, "strata needs the pass_rate of every item: set measure_every"),
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
    assert set(selectors.words(c.highlight)) <= set(selectors.words(c.selectors))


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
