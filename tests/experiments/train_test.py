"""The whole program on the smoke config: a two-layer model, one device."""

import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from configs import tiny_gspo
from experiments import convert, errors, train
from vade_jax.data import hub
from vade_jax.models.qwen import files
from vade_jax.report import curves, headline
from vade_jax.run import cluster
from vade_jax.store import checkpoints, metrics, rollout_log, run_file

ROOT = pathlib.Path(__file__).parents[2]


def smoke(num_steps, model):
    c = tiny_gspo.get_config("smoke")
    c.model.preset, c.model.checkpoint = "", str(model)
    c.num_steps = num_steps
    c.loss.kl_coef = 0.01  # this policy answers nothing right: no advantage would move it
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 2
    c.optimizer.learning_rate = 3e-4
    c.eval.every = 1
    c.checkpoint.keep = 3
    return c


def killed(whole, copy, step):
    """Copies a run as a kill after this step would have left it, but with the logs of later steps."""
    shutil.copytree(whole, copy)
    steps = (copy / "checkpoints").iterdir()
    for later in (copy / "policy", *(x for x in steps if int(x.name) > step)):
        shutil.rmtree(later)
    run_file.change(copy, state=run_file.RUNNING)


@pytest.fixture(scope="module")
def runs(one_device, small_checkpoint, tmp_path_factory):
    """Directories of a run of 4 steps and of one killed after 2 and resumed, and what was printed."""
    base, said = tmp_path_factory.mktemp("runs"), {}

    def run(name, num_steps):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            train.main(smoke(num_steps, small_checkpoint), str(base / name))
        said[name, num_steps] = out.getvalue()
        return out.getvalue()

    run("whole", 4)
    killed(base / "whole", base / "resumed", 2)
    run("resumed", 4)
    return base, said, run


def latest(directory):
    """The newest checkpoint's arrays, read without knowing what they are for."""
    import orbax.checkpoint as ocp

    folders = (directory / "checkpoints").iterdir()
    reader, folder = ocp.StandardCheckpointer(), max(folders, key=lambda x: int(x.name))
    return {name: reader.restore(folder / name) for name in ("policy", "optimizer", "selector")}


def timeless(record):
    return {k: v for k, v in record.items() if not k.startswith(("timing_s/", "perf/"))}


def test_two_and_two_steps_equal_four_bit_for_bit(runs):
    base, said, _ = runs
    assert "resuming after step 2" in said["resumed", 4]
    whole, resumed = latest(base / "whole"), latest(base / "resumed")
    assert len(jax.tree.leaves(whole["optimizer"])) > 50
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)
    of_whole, of_resumed = (metrics.read(base / name) for name in ("whole", "resumed"))
    assert [*map(timeless, of_whole)] == [*map(timeless, of_resumed)]
    assert [record["step"] for record in of_whole] == [0, 1, 2, 3, 4]
    assert [record["vade/rollouts_total"] for record in of_whole] == [0, 16, 32, 48, 64]
    numbers = [v for r in of_whole for v in r.values() if isinstance(v, float)]
    assert np.isfinite(numbers).all()


def test_every_metric_that_is_drawn_is_written_and_every_written_one_is_on_its_page(runs):
    base, _, _ = runs
    written = {name for record in metrics.read(base / "whole") for name in record}
    named = {x for name, x in vars(curves).items() if name.isupper() and isinstance(x, str)}
    details = {name for name, _ in curves.DETAILS}
    timed = {f"timing_s/{name}" for name in headline.PHASES}
    # No KL, no pass over all prompts, no batch made ahead.
    unasked = {"actor/kl_loss", "timing_s/measure", "timing_s/wait_rollouts"}
    untold = {"perf/max_memory_gb", "perf/mfu"}  # by a CPU
    unknown = {curves.FORGOTTEN}  # where no question is ever known
    assert (named | details | timed) - unasked - untold - unknown <= written
    page = (ROOT / "docs/metrics.md").read_text()
    for name in written:
        shown = re.sub(r"^(val|val-aux)/\w+/", r"\1/NAME/", name)
        shown = re.sub(r"NAME/\w+/(acc|forgotten)", r"NAME/FAMILY/\1", shown)
        shown = re.sub(r"mean@\d+", "mean@K", shown).replace("FAMILY/forgotten", "forgotten")
        assert f"`{shown}`" in page, name


def test_the_policy_moved_and_stayed_the_engines(runs, small_checkpoint):
    """The first mini-batch of a step is on-policy, so log-ratios stay small; weights move."""
    base, _, _ = runs
    assert all(abs(r["actor/ppo_kl"]) < 0.05 for r in metrics.read(base / "whole")[1:])
    before, after = files.load(small_checkpoint)[1], files.load(base / "whole" / "policy")[1]
    moved = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - np.asarray(b)).max(), before, after)
    assert min(jax.tree.leaves(moved)) > 0


def test_the_run_directory(runs):
    base, _, run = runs
    whole = base / "whole"
    assert json.loads((whole / "run.json").read_text())["settings"]["num_steps"] == 4
    assert {"samples.png"} == {p.name for p in (whole / "figures").iterdir()}
    assert [p.stem for p in rollout_log.paths(whole)] == [f"step_0000{n}" for n in (1, 2, 3, 4)]
    rows = rollout_log.read(rollout_log.path(whole, 2))
    assert len(rows["uid"]) == 16 and len(set(rows["uid"])) == 4
    for name in ("alpha", "beta", "p_drawn", "gold", "extracted", "correct", "prompt"):
        assert len(rows[name]) == 16
    assert all(0 < p < 1 for p in rows["p_drawn"])
    # Made last, or a kill between the two would leave a run without its report, for good.
    policy, page = (whole / name for name in ("policy/config.json", "report.html"))
    assert policy.stat().st_mtime_ns > page.stat().st_mtime_ns
    before = (whole / "metrics.jsonl").read_bytes()
    again = run("whole", 4)
    assert "is done already" in again and "validation" in again
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_transformers_loads_the_policy(runs):
    base, _, _ = runs
    transformers = pytest.importorskip("transformers")
    folder = base / "whole" / "policy"
    found, problems = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, output_loading_info=True
    )
    assert not problems["missing_keys"] and not problems["unexpected_keys"]
    _, ours = files.load(folder)
    embedding = found.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(embedding, ours["embedding"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer.encode(r"\boxed{7}")) == r"\boxed{7}"


# ------------------------------------------------------------------------------ experiments.convert
def test_a_step_of_a_run_becomes_a_model_directory(runs, tmp_path, small_checkpoint, monkeypatch):
    whole = runs[0] / "whole"
    convert.convert(whole, tmp_path / "last")
    exported = files.load(whole / "policy")[1]
    jax.tree.map(np.testing.assert_array_equal, files.load(tmp_path / "last")[1], exported)
    name = f"owner/name@{'a' * 40}"  # where the model is now, or was then
    monkeypatch.setattr(hub, "model", {name: str(small_checkpoint)}.__getitem__)
    convert.convert(whole, tmp_path / "third", "bfloat16", step=3, base=name)
    _, third = files.load(tmp_path / "third")
    differs = jax.tree.map(lambda a, b: np.abs(a - b).max() > 1e-6, exported, third)
    assert all(jax.tree.leaves(differs))
    size = lambda name: (tmp_path / name / "model.safetensors").stat().st_size
    assert size("third") < 0.6 * size("last")
    assert (tmp_path / "third" / "tokenizer.json").exists()


# ------------------------------------------------------------------------------ bad input
def fails(c, workdir, capsys, code=2):
    with pytest.raises(SystemExit) as caught:
        train.main(c, str(workdir))
    assert caught.value.code == code
    said = capsys.readouterr().err.strip().splitlines()
    return next(line for line in said if line.startswith("error: "))


def test_another_config_in_the_same_directory(runs, small_checkpoint, capsys):
    base, _, _ = runs
    c = smoke(6, small_checkpoint)
    c.optimizer.learning_rate = 5e-4
    line = fails(c, base / "whole", capsys)
    assert "optimizer.learning_rate: 0.0003 there, 0.0005 now" in line and "num_steps" not in line


@pytest.fixture
def c(one_device, small_checkpoint, tmp_path):
    """A config that starts from a copy of a policy, to be damaged."""
    return smoke(2, shutil.copytree(small_checkpoint, tmp_path / "model"))


def test_rows_that_cannot_be_used_are_listed_and_a_batch_needs_enough_others(c, tmp_path, capsys):
    rows = [{"question": q, "answer": "7"} for q in ("a?", "word " * 300, "c?", "d?", " ", "f?")]
    for split in ("train", "validation"):
        path = tmp_path / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        c.data[split] = str(path)
    c.num_prompts = c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 5
    assert "num_prompts=5" in fails(c, tmp_path / "run", capsys)
    rejects = (tmp_path / "run" / "rejects_train.jsonl").read_text().splitlines()
    assert [json.loads(x)["reason"] for x in rejects] == ["too_long", "empty_question"]


def test_a_server_that_is_not_there(c, tmp_path, capsys):
    c.engine.name, c.engine.url, c.engine.start_s = "vllm_server", "http://127.0.0.1:9", 0.1
    line = fails(c, tmp_path / "run", capsys, code=errors.AGAIN)
    assert "http://127.0.0.1:9 is not ready" in line and line.endswith("the same command continues")


# ------------------------------------------------------------------------------ signals
@pytest.mark.slow
def test_sigterm_saves_and_the_next_run_resumes(tmp_path):
    command = [
        *(sys.executable, "-m", "experiments.train", f"--workdir={tmp_path / 'run'}"),
        *("--config=configs/tiny_gspo.py:smoke", "--config.checkpoint.every=1000"),
    ]
    where = {"cwd": ROOT, "env": os.environ | {"JAX_PLATFORMS": "cpu"}, "text": True}
    with (tmp_path / "errors").open("w") as file:
        more = {"stdout": subprocess.PIPE, "stderr": file}
        first = subprocess.Popen([*command, "--config.num_steps=500"], **where, **more)
    log = tmp_path / "run" / "metrics.jsonl"
    while first.poll() is None and (not log.exists() or log.read_text().count("\n") < 3):
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate(timeout=120)
    assert first.returncode == 0 and "run again to resume" in said
    done = metrics.read(tmp_path / "run")[-1]["step"]
    assert checkpoints.manager_of(tmp_path / "run" / "checkpoints").latest_step() == done
    again = [*command, f"--config.num_steps={done + 1}"]
    second = subprocess.run(again, **where, capture_output=True)
    assert second.returncode == 0 and f"resuming after step {done}" in second.stdout
    steps = [record["step"] for record in metrics.read(tmp_path / "run")]
    assert steps == list(range(done + 2))


def test_the_stop_signal(monkeypatch):
    handlers = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    stop = cluster.StopSignal()
    assert set(handlers) == {signal.SIGTERM, signal.SIGINT} and not stop()
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert stop()
    with pytest.raises(KeyboardInterrupt):  # asked twice
        handlers[signal.SIGINT](signal.SIGINT, None)
