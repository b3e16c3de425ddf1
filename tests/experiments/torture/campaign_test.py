"""Trials with jobs of a few lines: what recovers passes, and what does not is a failure."""

import json
import subprocess
import sys

import pytest

from experiments.torture import campaign, faults
from vade_jax.models.qwen import files
from vade_jax.store import metrics, rollout_log

# Adds 1 to 30 and writes the sum down after each; started again it goes on from there. The first start of a
# trial waits after 9 for its fault, however busy the machine is; the reference does not wait.
COUNTS = """
import json, os, pathlib, sys, time
place = pathlib.Path(sys.argv[1].removeprefix("--workdir=")); path = place / "sum.json"
waits, new = place.parent / "waits", place / "new"
try:
    done, total = json.loads(path.read_text()) if path.exists() else (0, 0)
except ValueError:
    sys.exit(DAMAGED)
for number in range(done + 1, 31):
    total += number
    new.write_text(json.dumps([SAVED, total])); os.replace(new, path)
    if number == 9 and not waits.exists():
        waits.touch()
        time.sleep(60 * (place.name == "run"))
new.unlink(missing_ok=True)
"""
GOOD = {"DAMAGED": "f'error: {path} is damaged'", "SAVED": "number"}


def results(workdir):
    path = workdir / "sum.json"
    try:
        return {"sum": json.loads(path.read_text())}
    except ValueError as error:
        raise ValueError(f"{path} is damaged") from error


def ends(monkeypatch, workdir, kind, **words):
    """Returns how a trial with a fault ends, of a job with some words of its script changed."""
    script, good = COUNTS, COUNTS
    for word, text in GOOD.items():
        good = good.replace(word, text)
        script = script.replace(word, words.get(word, text))
    monkeypatch.setattr(campaign, "results", results)
    monkeypatch.setitem(faults.MOMENTS, "waits", "waits")
    known = campaign.reference([sys.executable, "-c", good], workdir / "reference")
    fault = faults.Fault(0, 0, kind, "waits", later=0.2, choice=1)
    return campaign.trial([sys.executable, "-c", script], fault, known, workdir / "trial")


@pytest.mark.parametrize("kind", [x for x in faults.KINDS if x != faults.FLIP])
def test_a_job_that_goes_on_where_it_was_ends_equal(monkeypatch, tmp_path, kind):
    assert ends(monkeypatch, tmp_path, kind) == (campaign.EQUAL, "")
    assert not (tmp_path / "trial").exists()


def test_a_job_that_counts_twice_fails_and_stays(monkeypatch, tmp_path):
    outcome = ends(monkeypatch, tmp_path, faults.KILL, SAVED="number - 1")
    assert outcome == (campaign.FAILED, "sum differ")
    assert json.loads((tmp_path / "trial" / "run" / "sum.json").read_text())[0] == 29


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ("f'error: {path} is damaged'", campaign.NAMED),
        ("'error: something is damaged'", campaign.FAILED),
        ("1", campaign.FAILED),
    ],
)
def test_damage_has_to_be_named(monkeypatch, tmp_path, said, result):
    def cut(workdir, fault):
        (workdir / "sum.json").write_text("[")
        return workdir / "sum.json"

    monkeypatch.setattr(faults, "damage", cut)
    assert ends(monkeypatch, tmp_path, faults.FLIP, DAMAGED=said)[0] == result


def test_a_seed_and_a_number_draw_the_same_fault_and_damage_is_one_byte(tmp_path):
    drawn = [faults.draw(3, number) for number in range(200)]
    assert faults.draw(3, 41) == drawn[41] != faults.draw(4, 41)
    assert {fault.kind for fault in drawn} == {*faults.KINDS}
    assert {fault.moment for fault in drawn} == {*faults.MOMENTS}
    fault = drawn[0]._replace(kind=faults.FLIP)
    assert faults.damage(tmp_path, fault) is None
    (tmp_path / "checkpoints").mkdir()
    before = {tmp_path / "checkpoints" / name: bytes(range(50)) for name in ("a", "b")}
    for path, content in before.items():
        path.write_bytes(content)
    damaged = faults.damage(tmp_path, fault)
    for path, content in before.items():
        differs = sum(a != b for a, b in zip(path.read_bytes(), content, strict=True))
        assert differs == (path == damaged)


def test_results_are_of_policy_metrics_and_answers_without_times(tmp_path):
    def left(name, weight=0.5, answer="7", score=0.25, seconds=1.0):
        workdir = tmp_path / name
        for made in ("policy", "rollouts", "checkpoints/1/array"):
            (workdir / made).mkdir(parents=True)
        (workdir / "policy" / "weights").write_bytes(str(weight).encode())
        (workdir / "policy" / files.CHECKSUMS).write_text("{}")
        (workdir / "checkpoints" / "1" / "array" / name).touch()
        writer = metrics.Writer(workdir)
        writer.write(1, {"critic/score/mean": score, "timing_s/step": seconds})
        writer.close()
        rollout_log.write(rollout_log.path(workdir, 1), {"uid": ["a"], "answer": [answer]})
        return campaign.results(workdir)

    one = left("one")
    assert left("later", seconds=2.0) == one
    changes = {"policy": {"weight": 0.25}, "rollouts": {"answer": "8"}, "metrics": {"score": 0.5}}
    for name, change in changes.items():
        other = left(name, **change)
        assert [x for x in one if one[x] != other[x]] == [name]


@pytest.mark.slow  # three runs of the tiny job
def test_the_smallest_campaign(tmp_path):
    command = [sys.executable, "-m", "experiments.torture", "--config=configs/torture.py"]
    done = subprocess.run(
        [*command, "--kills=1", f"--workdir={tmp_path}"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "1 of 1 trials ended well" in done.stdout
