"""Trials with jobs of a few lines: what recovers passes, and what does not is a failure."""

import json
import subprocess
import sys
from typing import ClassVar

import pytest

from experiments.torture import campaign, faults, jobs

# Adds 1 to 30 and writes the sum down after each; started again it goes on from there. The first start of a
# trial waits after 9 for its fault, however busy the machine is; the reference does not wait.
COUNTS = """
import json, os, pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1]); path = place / "sum.json"
waits, new = place.parent / "waits", place.parent / "new"
try:
    done, total = json.loads(path.read_text()) if path.exists() else (0, 0)
except ValueError:
    sys.exit(DAMAGED)
for number in range(done + 1, 31):
    total += number
    new.write_text(json.dumps([SAVED, total])); os.replace(new, path)
    if number == 9 and not waits.exists():
        waits.touch(); time.sleep(60 * (place.name == "run"))
(place / "end.json").write_text(json.dumps(total))
"""
GOOD = {"DAMAGED": "f'error: {path} is damaged'", "SAVED": "number"}


class Script(jobs.Job):
    """A job of a few lines."""

    moments: ClassVar = {
        **faults.OF_OTHERS,
        "waits": lambda workdir: (workdir.parent / "waits").exists(),
    }

    def __init__(self, script):
        super().__init__("train", (script,))

    def start(self, workdir, log, clock=()):
        with log.open("ab") as file:
            command = [sys.executable, "-c", *self.arguments, str(workdir)]
            return jobs.Running(
                [subprocess.Popen(command, stdout=file, stderr=file)], log, log.stat().st_size
            )


def counting(**words):
    script = COUNTS
    for word, text in {**GOOD, **words}.items():
        script = script.replace(word, text)
    return Script(script)


def ends(job, workdir, kind, moment="waits"):
    known = campaign.reference(counting(), workdir)
    fault = faults.Fault(0, 0, kind, moment, share=0.6, choice=1)
    return campaign.trial(job, fault, known, workdir / "trial")


@pytest.mark.parametrize("kind", [faults.KILL, faults.TERMINATE, faults.INTERRUPT])
def test_a_job_that_goes_on_where_it_was_ends_equal(tmp_path, kind):
    outcome = ends(counting(), tmp_path, kind)
    assert outcome.result == campaign.EQUAL, outcome
    assert not (tmp_path / "trial").exists()


def test_a_job_that_counts_twice_fails_and_stays(tmp_path):
    outcome = ends(counting(SAVED="number - 1"), tmp_path, faults.KILL)
    assert (outcome.result, outcome.why) == (
        campaign.FAILED,
        "end.json differs; sum.json differs",
    )
    assert json.loads((tmp_path / "trial" / "run" / "sum.json").read_text())[0] == 29


@pytest.mark.parametrize(
    ("said", "result", "why"),
    [
        ("f'error: {path} is damaged'", campaign.NAMED, "sum.json is damaged"),
        ("'error: something is damaged'", campaign.FAILED, "was damaged, but it said"),
        ("1", campaign.FAILED, "without one line of error"),
    ],
)
def test_damage_has_to_be_named(tmp_path, said, result, why):
    # The only file, cut at its start: JSON that is none.
    job = counting(DAMAGED=said)
    outcome = ends(job, tmp_path, faults.TRUNCATE)
    assert outcome.result == result and why in outcome.why


def test_a_second_run_has_to_be_refused(tmp_path):
    second = "import os, sys, time; os.chdir(sys.argv[1]); first = not os.path.exists('a')\n"
    job = Script(second + "open('a', 'w').close(); time.sleep(20 * first)")
    outcome = ends(job, tmp_path, faults.SECOND, moment=faults.START)
    assert (outcome.result, outcome.why) == (campaign.FAILED, "a second run was let in")


def test_the_table_counts_outcomes_of_each_fault():
    fault = {"job": "train tiny", "kind": faults.KILL}
    records = [{**fault, "result": x} for x in ("equal", "equal", "failed")]
    assert campaign.table(records).splitlines()[2:] == ["| train tiny | SIGKILL | 3 | 2 | 0 | 1 |"]


def test_an_unknown_fault_is_named():
    with pytest.raises(ValueError, match="--faults='flood': this job has SIGKILL, "):
        campaign.kinds(jobs.Job("simulate", ()), "SIGKILL, flood")


def test_a_job_that_fails_without_a_fault_says_why(tmp_path):
    with pytest.raises(
        RuntimeError, match=r"without a fault failed: no luck: see .*reference\.log$"
    ):
        campaign.reference(Script("raise SystemExit('error: no luck')"), tmp_path)


@pytest.mark.parametrize("command", sorted({*jobs.COMMANDS} - {"train"}))
def test_only_a_run_is_of_several_processes(command):
    with pytest.raises(ValueError, match=f"--processes=2 is of --command=train: two of {command} "):
        jobs.Job(command, (), 2)


def test_a_wrong_command_is_one_line(tmp_path):
    command = ["-m", "experiments.torture", "--config=configs/torture.py", "--kills=1", "--workdir"]
    wrong = ["--", "--no_such_flag"]
    done = subprocess.run(
        [sys.executable, *command, str(tmp_path), *wrong], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith(
        "error: the job without a fault failed: "
    )
    assert "no_such_flag" in done.stderr and done.stderr.count("\n") == 1
