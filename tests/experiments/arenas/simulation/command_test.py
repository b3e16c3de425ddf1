"""The command: what it writes."""

from configs import simulate as config
from experiments import simulate


def test_what_a_run_leaves(tmp_path):
    c = config.get_config()
    c.seeds, c.num_items, c.num_prompts, c.rollouts = "0,1", 200, 10, 20 * 80
    c.worlds, c.selectors = "skills,skills_clean", "uniform,oracle"
    simulate.main(c, str(tmp_path))
    overview, skills, clean = (tmp_path / "report.md").read_text().split("## ")[1:]
    assert overview.startswith("All worlds") and clean.startswith("skills_clean: 200 items")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in skills.splitlines()]
    head, *rows = [row for row in rows if len(row) > 1]
    of = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    ratio = lambda name: float(of[name]["effective ratio"].split()[0])
    assert ratio("oracle") > ratio("uniform") and float(of["uniform"]["hopeless"]) > 0
