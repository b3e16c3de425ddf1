"""What a user's mistake looks like, command by command: exit code 2, and one line that names the setting."""

import importlib
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
from experiments import cli, evaluate, hooks, simulate, supervise, train
from experiments.arenas import runs
from experiments.arenas.simulation import selectors
from experiments.bench import device, plan, targets
from experiments.diva import hook
from experiments.evals import in_training
from experiments.evals.settings import Evaluation
from experiments.vade_9k import build
from tests.experiments.evals.benchmarks import files
from tests.experiments.vade_9k import build_test
from vade_jax import settings
from vade_jax.run import checks
from vade_jax.types import Item

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


def entry(tmp_path, fields):
    found = selectors.Entry.of(fields.pop("label", "vade"), fields)
    found.check(8)


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


def validated(tmp_path, benchmarks):
    in_training.paths(settings.Eval(benchmarks=benchmarks))


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


def described(tmp_path, target):
    targets.devices(*target)


def measured(tmp_path, program):
    c = tiny_gspo.get_config("smoke")
    device.run(c.to_dict(), [program], 1, None)


def of_diva(tmp_path, fields):
    c = importlib.import_module("configs.tiny_diva").get_config("smoke")
    c.update(fields)
    checks.check(settings.Run.from_dict(c.to_dict()), hooks.ALL)


def varied(tmp_path, metadata):
    run = settings.Run(selector=settings.Selector(name="diva"), data=settings.Data(train="a.jsonl"))
    hook.make(run, [Item("a", "Why?", (), "1", "int", metadata)], None)


SERVER = {"url": "http://x", "model": "m"}
TINY = "--config=configs/tiny_gspo.py"
SIZES = ("num_prompts", "batch.prompts_per_minibatch", "batch.prompts_per_microbatch")
MISTAKES = [
    (words, "tiny_gspo:unifrom", "did you mean 'uniform'"),
    (words, "tiny_gspo:zzz", "known are "),
    (words, "tiny_gspo:selector=kalmn", "did you mean 'kalman'"),
    (words, "tiny_gspo:seed=many", "seed"),
    (words, "tiny_gspo:uniform,selector=dapo", "one selector"),
    (words, "tiny_gspo:uniform=False", "uniform"),
    (words, "qwen7b_gspo:split,local", "one layout"),
    (words, "tiny_diva:arms,uniform", "no selector"),
    (words, "from_json:none", "none"),
    (words, "from_json:README.md", "README.md"),
    (words, "sweep:forntier", "did you mean 'frontier'"),
    (words, "sweep:prompts=32", "prompts"),  # of an arena alone
    (words, "sweep:frontier,ladder", "one job"),
    (words, "sweep:frontier,base=configs/tiny_gspo.py", "one job"),
    (words, "sweep:decays,losses", "one of"),
    (words, "sweep:base=configs/none.py", "configs/none.py"),
    (words, "sweep:base=configs/tiny_gspo.py:uniform", "VADE"),
    (flag, "--config=configs/tiny_gspo.py:unifrom", "did you mean 'uniform'"),
    (flag, "--config=configs/tiny_gspoo.py", "configs/tiny_gspoo.py"),
    (flag, "--config=configs", "configs"),
    (flag, "--config=README.md", "README.md, line "),
    (flag, f"{TINY} --config.engine.options.max_num_seqs=8", "max_num_seqs"),
    (flag, f"{TINY} --config.selector.options.decay_selcted=0.3", 'Did you mean "decay_selected"'),
    (flag, f"{TINY} --config.num_steps=ten", "'ten'"),
    (flag, f"{TINY} config.num_steps=9", "did you mean --config.num_steps=9"),
    (flag, "--workdri=x", "workdir"),
    (sweep, {"arms": "unifrom@1e-4"}, "did you mean 'uniform'"),
    (sweep, {"arms": "vade@fast"}, "arms='vade@fast'"),
    (sweep, {"arms": "vade@-1"}, "vade@-1_seed0: optimizer.learning_rate=-1"),
    (sweep, {"arms": " "}, "arms"),
    (sweep, {"baseline": "unifrom"}, "baseline='unifrom'"),
    (sweep, {"losses": "ppo"}, "losses='ppo'"),
    (sweep, {"data": "dirty"}, "data='dirty'"),
    (sweep, {"seeds": "0-4"}, "seeds='0-4'"),
    (sweep, {"run": {"seed": 7}}, "run.seed=7"),
    (sweep, {"run": {"num_prompts": 3}}, "batch.prompts_per_m"),
    (sweep, {"lessons": {"noise": {"color_3": 0.5}}}, "lessons.noise='color_3'"),
    (simulated, {"worlds": "skils"}, "worlds='skils'"),
    (simulated, {"worlds": ""}, "worlds=''"),
    (simulated, {"selectors": "vade,unifrom"}, "selectors='unifrom'"),
    (simulated, {"selectors": " , "}, "selectors="),
    (simulated, {"seeds": "0,x"}, "seeds='0,x'"),
    (simulated, {"world.skills.hopeless": 1.5}, "world skills: hopeless=1.5"),
    (simulated, {"world.skills.kind": "skil"}, "world skills: kind='skil'"),
    (simulated, {"rollouts": 79}, "rollouts=79"),
    (simulated, {"num_prompts": 4001}, "num_prompts=4001"),
    (simulated, {"selectors": "vade_measured", "rollouts": 3200}, "rollouts=3200"),
    (simulated, {"selectors": "strata"}, "measure_every"),
    (simulated, {"selector.vade_mean.options.draw": "best"}, "selector vade_mean: draw='best'"),
    (entry, {"label": "x", "name": "diva"}, "name='diva'"),
    (entry, {"option": {}}, "did you mean 'options'"),
    (entry, {"options": {"darw": ""}}, "option='darw'"),
    (entry, {"max_rounds": "3"}, "max_rounds='3'"),
    (entry, {"label": "vcrl"}, "max_rounds"),
    (run, {"model.preset": "", "model.checkpoint": "modle"}, "modle"),
    (run, {"data.train": "none.jsonl"} | dict.fromkeys(SIZES, 8), "none.jsonl"),
    (run, {"batch.prompts_per_microbatch": 2, "mesh.fsdp": 8}, "prompts_per_microbatch=2"),
    (taught, {"num_steps": 0}, "lessons.num_steps=0"),
    (taught, {"batch": 3}, "batch"),
    (taught, {"mixture": {"color_9": 1}}, "color_9"),
    (taught, {"noise": {"colour_0": 0.5}}, "lessons.noise='colour_0'"),
    (taught, {"noise": {"color_0": 1.0}}, "lessons.noise.color_0=1.0"),
    (evaluation, {}, "--checkpoint"),
    (evaluation, {"server": SERVER, "model": {"checkpoint": "there"}}, "--checkpoint"),
    (evaluation, {"model": {"checkpoint": "there"}}, "benchmark"),
    (evaluation, {"profile": "chain"}, "profile='chain'"),
    (evaluation, {"benchmarks": {"mathvsta": "x"}}, "benchmarks.mathvsta"),
    (evaluation, {"data": {"max_pixels": 2000}}, "data.max_pixels=2000"),
    (evaluation, {"server": {"url": "http://x"}}, "server.model"),
    (evaluation, {"judge": {"fields": "{"}}, "judge.fields="),
    (evaluation, {"judge": SERVER | {"rules": True}}, "--rules"),
    (evaluation, {"server": SERVER, "sampling": {"top_k": 20}}, "sampling.top_k=20"),
    (evaluated, {}, "--judge_server"),
    (evaluated, {"judge.rules": True}, "nowhere"),
    (evaluated, {"judge.rules": True, "benchmarks.chartqa": "gone"}, "benchmarks.chartqa=gone"),
    (evaluated, {"judge.rules": True, "compare": ("gone",)}, "--compare=gone"),
    (validated, "chart:x", "'chart:x'"),
    (validated, "chartqa:gone.parquet", "gone.parquet"),
    (built, {"paths": {"geo3k": "geo3"}}, "geo3"),
    (built, {"takes": {"geo3k": 9999}}, "subsets.geo3k.take=9999"),
    (built, {"takes": {"geo3k": -1}}, "subsets.geo3k.take=-1"),
    (built, {}, "tokenizer.json"),
    (built, {"own": ("mine", "mine")}, "mine"),
    (built, {"subsets": ()}, "subsets"),
    (planned, {"devices": 4, "mesh.tensor": 4, "mesh.fsdp": 1}, "tensor=4"),
    (planned, {"devices": 3}, "fsdp"),
    (planned, {"devices": 8}, "prompts_per_microbatch=4"),
    (planned, {"batch.answers_per_row": 1}, "answers_per_row=1"),
    (planned, {"target": "v5p", "engine.name": "vllm_server"}, "TPUs"),
    (described, ("v5p", 3), "--devices=3"),
    (described, ("h100", 9), "--devices=9"),
    (measured, "score", "'score'"),
    (of_diva, {"selector": {"options": {"changes": ("rotate", "crop")}}}, "changes='crop'"),
    (of_diva, {"data": {"mixture": {"color_0": 1, "plus_0": 1}}}, "data.mixture"),
    (of_diva, {"num_prompts": 5, "batch": {"prompts_per_minibatch": 5, "prompts_per_microbatch": 5}}, "num_prompts=5"),
    (varied, {"steps": ["1."]}, "paraphrases"),
    (varied, {"paraphrases": ["So?"]}, "steps"),
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


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("train --help", 0, "--workdir: The run directory; an existing one is resumed."),
        ("train --config=configs/tiny.py", 2, "get_config"),
        ("make_tiny --directory=unused seed 1", 2, "'seed'"),
        ("bench --suite=plan", 1, "--config"),
    ],
)
def test_help_and_mistakes_of_a_process(command, code, message):
    name, *rest = command.split()
    run = [sys.executable, "-m", f"experiments.{name}", *rest]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    said = done.stderr if code else done.stdout
    assert done.returncode == code and message in said
    assert not code or (said.startswith("error: ") and said.count("\n") == 1)
