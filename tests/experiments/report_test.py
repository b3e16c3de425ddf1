"""The command, the page at the end of a run, and where its pictures come from."""

import json

import pytest

from experiments import report
from tests.report.report_run import make
from vade_jax.data import procedural
from vade_jax.report import at_end, pictures
from vade_jax.store import rollout_log, run_file


@pytest.fixture
def run_of_data(tmp_path):
    """A run on built-in data, and these data."""
    config = {"seed": 3, "data": {"train": "procedural", "num_train": 6}}
    items = procedural.Procedural(3, 6)
    make(tmp_path, rollouts=False)
    run_file.write(tmp_path, {"settings": config})
    rows = {
        "uid": [item.uid for item in items],
        "prompt": [f"<|im_start|>user\n{item.question}<|im_end|>" for item in items],
        "answer": ["?"] * 6,
        "extracted": [None] * 6,
        "gold": [item.answer for item in items],
        "correct": [0.0] * 6,
        "metadata": [dict(item.metadata) for item in items],
    }
    rollout_log.write(rollout_log.path(tmp_path, 1), rows)
    return tmp_path, items


def num_pictures(path):
    data = path.read_text().split('id="data">')[1].split("</script>")[0]
    return sum(bool(p["picture"]) for p in json.loads(data)["prompts"][0].values())


def test_the_end_of_a_run_keeps_versions_and_pictures(run_of_data):
    workdir, items = run_of_data
    path = at_end(str(workdir), items)
    assert path == workdir / "report.html" and num_pictures(path) == 6
    versions = json.loads((workdir / "versions.json").read_text())
    assert {"python", "jax", "numpy"} <= versions.keys()
    assert f"jax <code>{versions['jax']}</code>" in path.read_text()
    assert pictures.read(workdir)[0].keys() == {item.uid for item in items}
    run_file.write(workdir, {"settings": {"data": {"train": "gone.jsonl"}}})
    report.main([f"--workdir={workdir}"])
    assert num_pictures(path) == 6


def test_the_command_draws_built_in_pictures_again_and_says_what_is_gone(
    run_of_data, tmp_path_factory
):
    workdir, _ = run_of_data
    report.main([f"--workdir={workdir}"])
    assert num_pictures(workdir / "report.html") == 6
    assert not (workdir / "pictures.parquet").exists()
    run_file.write(workdir, {"settings": {"data": {"train": "gone.jsonl"}}})
    report.main([f"--workdir={workdir}"])
    text = (workdir / "report.html").read_text()
    assert "prompts on this page without their picture: 6 (6 are not in the data" in text
    others = [make(tmp_path_factory.mktemp(name)) for name in "ab"]
    report.main(["--workdir", str(workdir), "--compare", *map(str, others)])
    assert (workdir / "comparison.html").exists()
    with pytest.raises(SystemExit, match="2"):
        report.main([f"--workdir={workdir / 'figures'}"])
