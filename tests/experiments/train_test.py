"""The whole program on the smoke config: a two-layer model, one device."""

import contextlib
import functools
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from configs import tiny_gspo
from experiments import train
from tests.trainer import small
from vade_jax.models.qwen25vl import config, files
from vade_jax.report import charts, curves, figures, headline
from vade_jax.run import cluster
from vade_jax.store import checkpoints, metrics, rollout_log
from vade_jax.trainer import mesh, update

ROOT = pathlib.Path(__file__).parents[2]


def smoke(num_steps, warm_start):
    c = tiny_gspo.get_config("smoke")
    c.num_steps = num_steps
    c.loss.kl_coef = 0.0
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 2
    c.batch.remat = False
    c.data.length_multiple = 128
    c.optimizer.learning_rate = 1e-3
    c.eval.every = 1
    c.warm_start.directory = str(warm_start)
    return c


@pytest.fixture(scope="module")
def runs(compile_cache, tmp_path_factory):
    """Directories of 2, of 2 + 2 and of 4 steps, what was printed, and the shared warm start.

    Programs are compiled once: the later runs find them in a cache on disk.
    """
    base = tmp_path_factory.mktemp("runs")
    warm, said = base / "warm_start", {}
    one_device, install = mesh.make, signal.signal
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mesh, "make", lambda **a: one_device(**a, devices=jax.devices()[:1]))
        patch.setattr(signal, "signal", lambda *a: None)  # the handlers stay pytest's
        patch.setattr(jax, "jit", functools.partial(jax.jit, compiler_options=small.FAST))
        patch.setitem(config.PRESETS, "tiny", small.SHAPE)

        def run(name, num_steps):
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                try:
                    train.main(smoke(num_steps, warm), str(base / name))
                except SystemExit as error:
                    out.write(str(error))
            said[name, num_steps] = said.get((name, num_steps), "") + out.getvalue()
            return out.getvalue()

        run("resumed", 2)
        shutil.copytree(base / "resumed", base / "two")
        run("resumed", 4)
        run("whole", 4)
        yield base, said, run
    assert signal.signal is install


def latest(directory):
    """The newest checkpoint's arrays, read without knowing what they are for."""
    found = sorted(p for p in (directory / "checkpoints").iterdir() if p.name.isdigit())
    assert found[-1].name == "4"
    import orbax.checkpoint as ocp

    reader = ocp.StandardCheckpointer()
    items = ("policy", "optimizer", "selector")
    return {name: reader.restore(found[-1] / name) for name in items}


def test_two_and_two_steps_equal_four_bit_for_bit(runs):
    base, said, _ = runs
    assert "resuming after step 2" in said["resumed", 4]
    whole, resumed = latest(base / "whole"), latest(base / "resumed")
    assert len(jax.tree.leaves(whole["optimizer"])) > 50
    for (path, a), b in zip(
        jax.tree.leaves_with_path(whole), jax.tree.leaves(resumed), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def test_a_run_writes_every_metric_that_is_drawn(runs):
    base, _, _ = runs
    written = {name for record in metrics.read(base / "whole") for name in record}
    named = {x for name, x in vars(curves).items() if name.isupper() and isinstance(x, str)}
    details = {name for name, _ in (*figures.DETAILS, *charts.DETAILS)}
    timed = {f"timing_s/{name}" for name in headline.PHASES}
    unasked = {"actor/kl_loss", "timing_s/measure"}  # no KL, no pass over all prompts
    assert (named | details | timed) - unasked <= written


def test_the_metrics_of_both_are_the_same_but_for_the_clock(runs):
    base, _, _ = runs
    whole, resumed = metrics.read(base / "whole"), metrics.read(base / "resumed")
    assert [record["step"] for record in whole] == [0, 1, 2, 3, 4]
    for a, b in zip(whole, resumed, strict=True):
        timeless = lambda r: {
            k: v for k, v in r.items() if not k.startswith(("timing_s/", "perf/"))
        }
        assert timeless(a) == timeless(b)
    for name in (
        "actor/pg_loss",
        "actor/grad_norm",
        "actor/ppo_kl",
        "vade/effective_ratio",
        "vade/predicted_effective_ratio",
        "vade/posterior_mean",
        "critic/score/mean",
        "response_length/mean",
        "val/validation/acc/mean@4",
    ):
        assert np.isfinite(whole[-1][name]), name
    assert [r["vade/rollouts_total"] for r in whole] == [0, 16, 32, 48, 64]


def test_the_policy_moved_and_stayed_the_engines(runs):
    """The first mini-batch of a step is on-policy, so log-ratios stay small; weights move."""
    base, _, _ = runs
    records = metrics.read(base / "whole")[1:]
    assert all(abs(r["actor/ppo_kl"]) < 0.05 for r in records)
    _, before = files.load(base / "warm_start")
    _, after = files.load(base / "whole" / "policy")
    moved = [
        np.abs(np.asarray(a) - np.asarray(b)).max()
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ]
    assert min(moved) > 0


def test_the_run_directory(runs):
    base, _, _ = runs
    whole = base / "whole"
    assert json.loads((whole / "config.json").read_text())["num_steps"] == 4
    assert {"samples.png"} < {p.name for p in (whole / "figures").iterdir()}
    assert sorted(p.name for p in (whole / "rollouts").iterdir()) == [
        f"step_{step:05d}.parquet" for step in range(1, 5)
    ]
    rows = rollout_log.read(rollout_log.path(whole, 2))
    assert len(rows["uid"]) == 16 and len(set(rows["uid"])) == 4
    for name in ("alpha", "beta", "p_drawn", "gold", "extracted", "correct", "prompt"):
        assert len(rows[name]) == 16
    assert all(0 < p < 1 for p in rows["p_drawn"])
    assert checkpoints.Checkpointer(whole / "checkpoints").config()["num_prompts"] == 4


def test_transformers_loads_the_policy(runs):
    base, _, _ = runs
    transformers = pytest.importorskip("transformers")
    folder = base / "whole" / "policy"
    found, problems = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, output_loading_info=True
    )
    assert not problems["missing_keys"] and not problems["unexpected_keys"]
    _, ours = files.load(folder)
    np.testing.assert_array_equal(
        found.get_input_embeddings().weight.detach().numpy(), ours["embedding"]
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer.encode(r"\boxed{7}")) == r"\boxed{7}"


def test_running_again_says_that_it_is_done(runs):
    base, _, run = runs
    before = (base / "whole" / "metrics.jsonl").read_bytes()
    again = run("whole", 4)
    assert "is done: 4 steps" in again and "validation" in again
    assert (base / "whole" / "metrics.jsonl").read_bytes() == before


def test_a_loss_that_is_not_a_number_names_the_step_and_keeps_the_checkpoint(runs, monkeypatch):
    base, _, run = runs
    real = update.Learner.__call__

    def diverge(self, state, *rest):
        at = int(state.step)
        state, found = real(self, state, *rest)
        return state, found | {"actor/loss": np.nan if at >= 6 else 0.0}

    monkeypatch.setattr(update.Learner, "__call__", diverge)
    assert "error: step 4: {'actor/loss': nan}" in run("two", 4)  # two updates a step
    assert checkpoints.Checkpointer(base / "two" / "checkpoints").latest_step() == 3


# ------------------------------------------------------------------------------ bad input
def fails(c, workdir, capsys):
    with pytest.raises(SystemExit) as caught:
        train.main(c, str(workdir))
    assert caught.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()
    return next(line for line in said if line.startswith("error: "))


def test_another_config_in_the_same_directory(runs, capsys):
    base, _, _ = runs
    c = smoke(6, base / "warm_start")
    c.optimizer.learning_rate = 5e-4
    line = fails(c, base / "whole", capsys)
    assert "optimizer.learning_rate: 0.001 there, 0.0005 now" in line
    assert "give another --workdir" in line and "num_steps" not in line


def checkpoint(runs, tmp_path, **changes):
    """A copy of the trained policy, to be damaged, and a config that starts from it."""
    base, _, _ = runs
    shutil.copytree(base / "whole" / "policy", tmp_path / "model")
    c = smoke(2, "")
    c.warm_start.num_steps = 0
    c.model.preset, c.model.checkpoint = "", str(tmp_path / "model")
    return c


def test_a_checkpoint_that_is_not_there(runs, tmp_path, capsys):
    c = checkpoint(runs, tmp_path)
    c.model.checkpoint = str(tmp_path / "modle")
    assert "modle is no directory" in fails(c, tmp_path / "run", capsys)
    c.model.checkpoint = str(tmp_path / "model")  # mended: the directory is not taken
    (tmp_path / "model" / "model.safetensors").unlink()
    assert "lacks model.safetensors" in fails(c, tmp_path / "run", capsys)


def test_a_checkpoint_that_is_not_there_for_the_warm_start(runs, tmp_path, capsys):
    c = checkpoint(runs, tmp_path)
    c.model.checkpoint, c.warm_start.num_steps = str(tmp_path / "modle"), 2
    assert "modle is no directory" in fails(c, tmp_path / "run", capsys)


def test_a_checkpoint_cut_short(runs, tmp_path, capsys):
    c = checkpoint(runs, tmp_path)
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    assert "damaged or cut short" in fails(c, tmp_path / "run", capsys)


def test_a_checkpoint_of_another_architecture(runs, tmp_path, capsys):
    c = checkpoint(runs, tmp_path)
    path = tmp_path / "model" / "config.json"
    fields = json.loads(path.read_text())
    fields |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    path.write_text(json.dumps(fields))
    line = fails(c, tmp_path / "run", capsys)
    assert "describes 'LlamaForCausalLM'" in line and "config.json" in line


def test_a_checkpoint_without_a_tokenizer(runs, tmp_path, capsys):
    c = checkpoint(runs, tmp_path)
    (tmp_path / "model" / "tokenizer.json").unlink()
    assert "tokenizer.json does not exist" in fails(c, tmp_path / "run", capsys)


def test_more_prompts_than_usable_rows(runs, tmp_path, capsys):
    """One of five rows has an empty question: listed, and the batch of 5 does not exist."""
    c = checkpoint(runs, tmp_path)
    rows = [{"question": q, "answer": "7"} for q in ("a?", "b?", "c?", "d?", " ")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    c.data.train = c.data.validation = str(path)
    c.num_prompts = c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 5
    line = fails(c, tmp_path / "run", capsys)
    assert "num_prompts=5 is larger than the training set of 4 usable items" in line
    (reject,) = (tmp_path / "run" / "rejects_train.jsonl").read_text().splitlines()
    assert json.loads(reject)["reason"] == "empty_question"


def test_too_long_prompts_are_left_out_or_an_error(runs, tmp_path, capsys):
    c = checkpoint(runs, tmp_path)
    questions = ("a?", "word " * 300, "c?", "d?", "e?")
    rows = [{"question": q, "answer": "7", "id": q[:1]} for q in questions]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    c.data.train = c.data.validation = str(path)
    c.data.drop_too_long = False
    line = fails(c, tmp_path / "run", capsys)
    assert "1 prompts are too long, the first is w" in line
    assert "limit is max_length=128" in line and "data.drop_too_long=True" in line
    c.data.drop_too_long = True
    c.num_prompts = c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 5
    assert "training set of 4 usable items" in fails(c, tmp_path / "run", capsys)


def test_a_server_that_is_not_there(runs, tmp_path, capsys):
    c = checkpoint(runs, tmp_path)
    c.engine.name, c.engine.urls = "vllm_server", ("http://127.0.0.1:9",)
    c.engine.wait_s = 0.0
    assert "http://127.0.0.1:9" in fails(c, tmp_path / "run", capsys)


def test_a_microbatch_that_the_devices_cannot_split(runs, tmp_path, monkeypatch, capsys):
    c = checkpoint(runs, tmp_path)
    four = lambda **a: jax.make_mesh((1, 4, 1), mesh.AXES, devices=jax.devices()[:4])
    monkeypatch.setattr(mesh, "make", four)
    line = fails(c, tmp_path / "run", capsys)
    assert "batch.prompts_per_microbatch=2 is not divisible by 4" in line


# ------------------------------------------------------------------------------ signals
@pytest.mark.slow
def test_sigterm_saves_and_the_next_run_resumes(tmp_path):
    command = [
        *(sys.executable, "-m", "experiments.train", f"--workdir={tmp_path / 'run'}"),
        *("--config=configs/tiny_gspo.py:smoke", "--config.checkpoint.every=1000"),
    ]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    first = subprocess.Popen(
        [*command, "--config.num_steps=500"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "errors").open("w"),
        text=True,
    )
    log = tmp_path / "run" / "metrics.jsonl"
    while first.poll() is None and (not log.exists() or log.read_text().count("\n") < 3):
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate(timeout=120)
    assert first.returncode == 0 and "run again to resume" in said
    done = metrics.read(tmp_path / "run")[-1]["step"]
    assert checkpoints.Checkpointer(tmp_path / "run" / "checkpoints").latest_step() == done
    second = subprocess.run(
        [*command, f"--config.num_steps={done + 1}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert second.returncode == 0, second.stderr
    assert f"resuming after step {done}" in second.stdout
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
