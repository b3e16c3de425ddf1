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
sys.excepthook = lambda kind, error, trace: print("error:", error)
done, total = json.loads(path.read_text()) if path.exists() else (0, 0)
for number in range(done + 1, 31):
    total += number
    new.write_text(json.dumps([SAVED, total])); os.replace(new, path)
    if number == 9 and not waits.exists():
        waits.touch()
        for _ in range(600 * (place.name == "run")):
            time.sleep(0.1)
            (place / "grows").open("ab").write(bytes(1 << 19))
new.unlink(missing_ok=True)
"""


def results(workdir):
    return {"sum": json.loads((workdir / "sum.json").read_text())}


def ends(monkeypatch, workdir, kind, saved="number"):
    """Returns how a trial with a fault ends, of a job that says that `saved` numbers are added."""
    good, script = (COUNTS.replace("SAVED", x) for x in ("number", saved))
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
    outcome = ends(monkeypatch, tmp_path, faults.KILL, saved="number - 1")
    assert outcome == (campaign.FAILED, "sum differ")
    assert json.loads((tmp_path / "trial" / "run" / "sum.json").read_text())[0] == 29


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
