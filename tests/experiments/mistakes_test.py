"""What a user's mistake looks like, command by command: exit code 2, and one line that names the setting."""

import importlib
import os
import pathlib
import subprocess
import sys

import jax
import pytest
from absl import flags
from ml_collections import ConfigDict

from configs import eval_paper, tiny_gspo
from configs import simulate as simulate_config
from configs import sweep as sweep_config
from experiments import cli, evaluate, simulate, supervise, train
from experiments.arenas import runs
from experiments.bench import plan, targets
from experiments.evals.settings import Evaluation
from experiments.vade_9k import build
from tests.experiments.evals.benchmarks import files
from tests.experiments.vade_9k import build_test
from vade_jax import settings

ROOT = pathlib.Path(__file__).parents[2]


# ------------------------------------------------------------------------------ commands
def words(tmp_path, config):
    name, _, argument = config.partition(":")
    importlib.import_module(f"configs.{name}").get_config(argument)


def flag(tmp_path, arguments):
    """The real parser; ml_collections looks for overrides in sys.argv."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["train", *arguments.split(" ")])
        flags.FLAGS.unparse_flags()
        try:
            cli.parse(sys.argv)
        finally:
            flags.FLAGS.unparse_flags()


def sweep(tmp_path, fields):
    c = sweep_config.get_config("smoke")
    c.update({"arms": "uniform,vade", "losses": "gspo", "seeds": "0"} | fields)
    runs.planned(c, str(tmp_path))


def simulated(tmp_path, fields):
    c = simulate_config.get_config()
    c.update_from_flattened_dict({"worlds": "skills", "selectors": "uniform,vade_mean"} | fields)
    simulate.main(c, str(tmp_path))


def run(tmp_path, fields):
    c = tiny_gspo.get_config("smoke")
    c.update_from_flattened_dict(fields)
    train.main(c, str(tmp_path / "run"))


def taught(tmp_path, lessons):
    c = tiny_gspo.get_config("smoke")
    lessons = {"num_steps": 2, "batch_size": 8} | lessons
    supervise.main(c, str(tmp_path / "taught"), ConfigDict(lessons))


def evaluation(tmp_path, fields):
    Evaluation.from_dict(fields).check_complete()


def evaluated(tmp_path, fields):
    c = eval_paper.get_config()
    for name in ("mathvista", "chartqa"):
        c.benchmarks[name] = files.save(tmp_path / f"{name}.parquet", getattr(files, name)())
    c.model.checkpoint = "nowhere"
    c.update_from_flattened_dict(fields)
    evaluate.main(c, str(tmp_path / "out"))


def built(tmp_path, fields):
    build_test.write_all(tmp_path)
    build.build(
        build_test.taking(tmp_path, tmp_path, own=fields.pop("own", ()), **fields), tmp_path / "out"
    )


def planned(tmp_path, fields):
    fields = {"batch.prompts_per_microbatch": 4} | fields
    c, target = tiny_gspo.get_config("smoke"), fields.pop("target", "h200")
    devices = jax.devices()[: fields.pop("devices", 1)]
    c.update_from_flattened_dict(fields)
    plan.make(settings.Run.from_dict(c.to_dict()), devices, targets.TARGETS[target])


SERVER = {"url": "http://x", "model": "m"}
TINY = "--config=configs/tiny_gspo.py"
SIZES = ("num_prompts", "batch.prompts_per_minibatch", "batch.prompts_per_microbatch")
MISTAKES = [
    (words, "tiny_gspo:unifrom", "did you mean 'uniform'"),
    (words, "tiny_gspo:uniform,selector=dapo", "one selector"),
    (words, "sweep:frontier,ladder", "one job"),
    (flag, "--config=configs/tiny_gspo.py:unifrom", "did you mean 'uniform'"),
    (flag, "--config=README.md", "README.md, line "),
    (flag, f"{TINY} --config.selector.options.decay_selcted=0.3", 'Did you mean "decay_selected"'),
    (flag, "--workdri=x", "workdir"),
    (flag, "workdir x", "'workdir'"),
    (sweep, {"arms": "unifrom@1e-4"}, "did you mean 'uniform'"),
    (sweep, {"run": {"seed": 7}}, "run.seed=7"),
    (sweep, {"run": {"num_prompts": 3}}, "batch.prompts_per_m"),
    (simulated, {"worlds": "skils"}, "worlds='skils'"),
    (simulated, {"selectors": "vade,unifrom"}, "selectors='unifrom'"),
    (simulated, {"selector.vade_mean.options.draw": "best"}, "selector vade_mean: draw='best'"),
    (run, {"model.preset": "", "model.checkpoint": "modle"} | dict.fromkeys(SIZES, 8), "modle"),
    (run, {"data.train": "none.jsonl"} | dict.fromkeys(SIZES, 8), "none.jsonl"),
    (run, {"batch.prompts_per_microbatch": 2, "mesh.fsdp": 8}, "prompts_per_microbatch=2"),
    (taught, {"noise": {"colour_0": 0.5}}, "lessons.noise='colour_0'"),
    (evaluation, {}, "--checkpoint"),
    (evaluation, {"benchmarks": {"mathvsta": "x"}}, "benchmarks.mathvsta"),
    (evaluation, {"judge": SERVER | {"rules": True}}, "--rules"),
    (evaluated, {}, "--judge_server"),
    (evaluated, {"judge.rules": True, "benchmarks.chartqa": "gone"}, "benchmarks.chartqa=gone"),
    (built, {"paths": {"geo3k": "geo3"}}, "geo3"),
    (built, {"takes": {"geo3k": 9999}}, "subsets.geo3k.take=9999"),
    (planned, {"devices": 4, "mesh.tensor": 4, "mesh.fsdp": 1}, "tensor=4"),
    (planned, {"target": "v5p", "engine.name": "vllm_server"}, "TPUs"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "given", "name"), MISTAKES, ids=lambda x: getattr(x, "__name__", str(x))[:40]
)
def test_a_mistake_is_one_line_that_names_the_setting(
    command, given, name, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(ROOT)
    with pytest.raises((ValueError, KeyError, FileNotFoundError, SystemExit)) as caught:
        command(tmp_path, dict(given) if isinstance(given, dict) else given)
    line, error = str(caught.value), caught.value
    if isinstance(error, SystemExit):
        assert error.code == 2
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert line.startswith("error: ")
    assert name in line, line


def test_help(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        flag(tmp_path, "--help")
    assert ended.value.code == 0
    assert "--workdir: The run directory; an existing one is resumed." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--suite=plan", 1, "--config"),
        ("--suite=plan --config=configs/tiny.py", 2, "get_config"),
        ("--suite=decode --quick", 0, "transformers' generate"),
    ],
)
def test_mistakes_and_a_small_suite_of_a_process(words, code, message):
    run = [sys.executable, "-m", "experiments.bench", *words.split()]
    env = os.environ | {"XLA_FLAGS": ""}  # one device
    done = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True)
    said = done.stderr if code else done.stdout
    assert done.returncode == code and message in said
    assert not code or (said.startswith("error: ") and said.count("\n") == 1)
