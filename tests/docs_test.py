"""What README.md and docs/ name is there, and the README's selector runs."""

import importlib.util
import json
import pathlib
import re
import runpy

import cogapp
import jax
import numpy as np
import pytest

import vade_jax
from experiments.arenas import pages as tables
from tests.samplers import environment
from vade_jax import samplers, settings
from vade_jax.store import rollout_log

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = {ROOT / "docs/settings.md", ROOT / "docs/report.html"}  # by docs/hooks.py
FOLDERS = "vade_jax|experiments|configs|tests|docs|third_party"


def missing(page):
    """Yields the links, paths, commands and functions of a page that are not there."""
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        path = (page.parent / link).resolve()
        if not (path.exists() or (path in GENERATED and page.name != "README.md")):
            yield link
    for link, anchor in re.findall(r"\]\(([\w./]*)#([^)]+)\)", text):
        if anchor not in anchors(page.parent / link if link else page):
            yield f"{link}#{anchor}"
    for path in re.findall(rf"`((?:{FOLDERS})/[\w/.]+)", text):
        if not (ROOT / path).exists():
            yield path
    for command in re.findall(r"-m (experiments\.\w+)", text):
        if not importlib.util.find_spec(command):
            yield command
    for name in re.findall(r"`((?:trainer|samplers|losses|selector)\.[\w.]+\w)`", text):
        module, _, attribute = f"vade_jax.{name}".rpartition(".")
        if module == "vade_jax.selector" and attribute in settings.Selector.__dataclass_fields__:
            continue  # the section of a run's settings
        parent = importlib.import_module(module)
        is_module = hasattr(parent, "__path__") and importlib.util.find_spec(f"vade_jax.{name}")
        if not (hasattr(parent, attribute) or is_module):
            yield name


def anchors(page):
    """Returns the headings of a page as GitHub links to them; none where there is no such page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL) if page.is_file() else ""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", name).lower().replace(" ", "-") for name in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page):
    assert not list(missing(page))


def test_tables_are_those_of_the_records():
    paths = [path for name in tables.PAGES for path in (ROOT / "docs").glob(name)]
    assert sum(path.read_text().count("[[[cog") for path in paths) > 10
    check = ["cog", "--check", "--diff", "-P", *map(str, paths)]
    assert cogapp.Cog().main(check) == 0, "run python -m experiments.arenas.pages"


def test_all_records_are_one_table(monkeypatch):
    """By the lines of their page, which also lists each file with the number of its runs."""
    page = (ROOT / "docs/results/README.md").read_text()
    monkeypatch.chdir(ROOT)
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names := {})
    counts = {}
    for files, numbers in re.findall(r"^\| (`.+`) \| ([\d, ]+) \| ", page, re.MULTILINE):
        counts |= dict(zip(re.findall(r"\w+", files), map(int, numbers.split(",")), strict=True))
    assert names["runs"].groupby("table").size().to_dict() == counts


def test_one_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {vade_jax.__version__}\n" in citation
    assert f"\n## {vade_jax.__version__} " in (ROOT / "docs/changelog.md").read_text()


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100 and len(text.split()) <= 700
    assert max(map(len, text.splitlines())) <= 120
    first_screen = "\n".join(text.splitlines()[:30])
    assert "make train" in first_screen and "make test" in first_screen


def test_the_record_of_a_run_becomes_a_column(tmp_path):
    """Of "a" one of two is right; row 1 has no id; "b" has no verdict, and "c" was not asked."""
    log = {"uid": ["a", "a", "rows:1", "b"], "correct": [1.0, 0.0, 1.0, None]}
    rollout_log.write(rollout_log.path(tmp_path, 1), log)
    rows, rated = tmp_path / "rows.jsonl", tmp_path / "rated.jsonl"
    rows.write_text("".join(json.dumps({"id": x}) + "\n" for x in ("a", None, "b", "c")))
    runpy.run_path(str(ROOT / "docs/examples/pass_rates.py"))["main"](tmp_path, rows, rated)
    rates = [json.loads(line)["pass_rate"] for line in rated.read_text().splitlines()]
    assert rates == [0.5, 1.0, None, None]


def test_a_prior_is_what_the_pass_brought_with_noise_or_of_another_prompt():
    rate_I, right_I = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.0]), {}
    for name in ("RIGHT", "NOISY", "WRONG"):
        selector = samplers.find(f"{ROOT}/docs/examples/priors.py:{name}")(num_rollouts=8)
        everything = selector.propose(selector.init(6), jax.random.key(0), 6)
        feedback = environment.feedback(everything, rate_I, np.random.default_rng(0))
        state = selector.update(selector.init(6), feedback)
        np.testing.assert_allclose(state.alpha_I + state.beta_I, 8, rtol=1e-6)
        right_I[name] = np.asarray(state.alpha_I).tolist()
    assert right_I["RIGHT"] == (8 * rate_I).tolist() != right_I["WRONG"]
    assert sorted(right_I["WRONG"]) == sorted(right_I["RIGHT"]) and min(right_I["NOISY"]) > 0


def test_the_selector_of_the_page_takes_rows_in_order_until_they_are_mastered():
    file = ROOT / "docs/examples/my_selector.py"
    assert f"```python\n{file.read_text()}```" in (ROOT / "docs/tutorials/selector.md").read_text()
    spec = samplers.find(f"{file}:SPEC")
    selector, rng = spec(num_rollouts=4, mastered=0.5), np.random.default_rng(0)
    state, rate_I = selector.init(5), np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    chosen = []
    for step in range(3):
        proposal = selector.propose(state, jax.random.key(step), 2)
        chosen.append(set(np.asarray(proposal.index_M).tolist()))
        state = selector.update(state, environment.feedback(proposal, rate_I, rng))
    assert chosen == [{0, 1}, {1, 2}, {1, 3}]  # uniform's first two would be any
