"""The command: what it writes."""

import json

from configs import simulate as config
from experiments import simulate


def small(**changes):
    c = config.get_config()
    c.seeds, c.num_items, c.num_prompts, c.rollouts = "0,1", 200, 10, 20 * 80
    c.update(changes)
    return c


def played(tmp_path, **changes):
    simulate.main(small(**changes), str(tmp_path))
    return json.loads((tmp_path / "results.json").read_text())


def test_what_a_run_leaves(tmp_path):
    found = played(tmp_path, worlds="skills,skills_clean", selectors="uniform,oracle")
    text = (tmp_path / "report.md").read_text()
    for part in ("## All worlds", "## skills: 200 items", "## skills_clean", "| oracle"):
        assert part in text
    assert list(found) == ["skills", "skills_clean"]
    uniform, oracle = (found["skills"][name]["values"] for name in ("uniform", "oracle"))
    assert len(oracle["progress"]["seeds"]) == 2
    assert oracle["effective"]["mean"] > uniform["effective"]["mean"]
    clean = found["skills_clean"]["uniform"]["values"]["hopeless"]["mean"]
    assert clean == 0 < uniform["hopeless"]["mean"]
