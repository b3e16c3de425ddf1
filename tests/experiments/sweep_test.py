"""A whole sweep over programs that only leave what runs leave."""

import sys

import pytest
from absl import flags

from configs import sweep as sweep_config
from experiments import results, sweep
from experiments.arenas import records
from experiments.arenas.runs import planned
from vade_jax.store import rollout_log

SUPERVISE = """
import json, pathlib, sys
flags = dict(x[2:].split("=", 1) for x in sys.argv[1:])
c = json.loads(pathlib.Path(flags["config"].split(":", 1)[1]).read_text())
if c["seed"] == 9:
    sys.exit("error: no warm start")
assert (c["model"]["preset"], flags["lessons.num_steps"]) == ("tiny", "2")
folder = pathlib.Path(flags["directory"])
folder.mkdir(exist_ok=True)
(folder / "config.json").write_text("{}")
"""
TRAIN = """
import json, pathlib, shutil, sys
config, workdir = (x.split("=", 1)[1] for x in sys.argv[1:])
c = json.loads(pathlib.Path(config.split(":", 1)[1]).read_text())
folder = pathlib.Path(workdir)
if c["selector"]["name"] == "mopps":
    sys.exit("error: no luck")
assert not c["model"]["preset"] and pathlib.Path(c["model"]["checkpoint"], "config.json").exists()
folder.mkdir(parents=True)  # once
done = {"state": "done", "num_items": 16, "step": c["num_steps"], "rollouts_total": 8 * c["num_steps"]}
(folder / "run.json").write_text(json.dumps(done | {"settings": c}))
lines = [{"step": step, "val/x/acc/mean@4": 0.1 * step + c["data"]["wrong_golds"],
          "vade/rollouts_total": 8 * step}
         for step in range(c["num_steps"] + 1)]
(folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\\n" for x in lines))
shutil.copytree(pathlib.Path(__file__).with_name("example"), folder, dirs_exist_ok=True)
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    for name, text in (("supervise", SUPERVISE), ("train", TRAIN)):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        monkeypatch.setitem(sweep.COMMANDS, name, (sys.executable, str(path)))
    answers = {"group": [0, 0], "correct": [0, 1], "metadata": [{"stratum": "graded"}] * 2}
    rollout_log.write(rollout_log.path(tmp_path / "example", 1), answers)


def runs(tmp_path, **fields):
    c = sweep_config.get_config("smoke")
    c.update({"losses": "gspo", **fields})
    return planned(c, str(tmp_path / "w"))


@pytest.mark.usefixtures("programs")
def test_a_sweep_from_nothing(tmp_path, capsys):
    made = runs(tmp_path, arms="uniform,mopps,vade", data="clean,wrong10", seeds="0,1")
    failed, stopped = sweep.make(made, 2)
    assert not stopped
    assert {one.program.name for one in failed} == {
        f"{data}/gspo/mopps_seed{seed}" for data in ("clean", "wrong10") for seed in (0, 1)
    }
    assert {(one.code, one.reason()) for one in failed} == {(1, "error: no luck")}
    assert capsys.readouterr().out.startswith("12 runs, 0 of them finished before")
    finished = [run for run in made if run.is_finished()]
    assert len(finished) == 8
    sweep.report(finished, str(tmp_path / "out"), "uniform")
    table = (tmp_path / "out" / "table.md").read_text()
    of_wrong = table.split("## wrong10/gspo")[1]
    assert "## clean/gspo" in table and "| vade | 2 |" in of_wrong and "| 0.300 |" in of_wrong


@pytest.mark.usefixtures("programs")
def test_runs_whose_warm_start_failed_are_not_started(tmp_path):
    failed, _ = sweep.make(runs(tmp_path, arms="uniform", seeds="9,1"), 1)
    assert [one.program.name for one in failed] == ["warm start of seed 9"]
    assert not (tmp_path / "w/clean/gspo/uniform_seed9").exists()
    assert (tmp_path / "w/clean/gspo/uniform_seed1/run.json").exists()


@pytest.mark.usefixtures("programs")
def test_arms_of_an_earlier_command_stay_in_the_table_of_records(tmp_path):
    c = sweep_config.get_config("smoke")
    flags.FLAGS.mark_as_parsed()
    for arm in ("uniform", "vade"):
        c.update({"losses": "gspo", "arms": arm, "seeds": "0", "baseline": arm})
        with pytest.raises(SystemExit, match="0"):
            sweep.main(c, str(tmp_path))
    flags.FLAGS.unparse_flags()
    table = tmp_path / c.name / "records.parquet"
    assert list(records.read(table)["clean/gspo"]) == ["uniform", "vade"]
    results.main([f"--records={table}", f"--workdir={tmp_path / 'again'}"])
    assert (tmp_path / "again" / "sweep.html").exists()
