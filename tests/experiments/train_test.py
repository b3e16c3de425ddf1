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
from experiments import errors, train
from vade_jax import run
from vade_jax.models.qwen import files
from vade_jax.report import curves, headline
from vade_jax.run import cluster
from vade_jax.store import checkpoints, metrics, rollout_log, run_file
from vade_jax.trainer import mesh
from vade_jax.trainer.scoring import NotFinite

ROOT = pathlib.Path(__file__).parents[2]


def smoke(num_steps, model):
    c = tiny_gspo.get_config("smoke")
    c.model.preset, c.model.checkpoint = "", str(model)
    c.num_steps = num_steps
    c.loss.kl_coef = 0.01  # this policy answers nothing right: no advantage would move it
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 2
    c.data.length_multiple = 128
    c.optimizer.learning_rate = 3e-4
    c.eval.every = 1
    return c


@pytest.fixture(scope="module")
def runs(one_device, small_checkpoint, tmp_path_factory):
    """Directories of 2 + 2 and of 4 steps, and what was printed.

    Programs are compiled once: the later runs find them in a cache on disk.
    """
    base, said = tmp_path_factory.mktemp("runs"), {}

    def run(name, num_steps):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            train.main(smoke(num_steps, small_checkpoint), str(base / name))
        said[name, num_steps] = out.getvalue()
        return out.getvalue()

    run("resumed", 2)
    run("resumed", 4)
    run("whole", 4)
    return base, said, run


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
    details = {name for name, _ in curves.DETAILS}
    timed = {f"timing_s/{name}" for name in headline.PHASES}
    # No KL, no pass over all prompts, no batch made ahead.
    unasked = {"actor/kl_loss", "timing_s/measure", "timing_s/wait_rollouts"}
    untold = {"perf/max_memory_gb", "perf/mfu"}  # by a CPU
    unknown = {curves.FORGOTTEN}  # where no question is ever known
    assert (named | details | timed) - unasked - untold - unknown <= written


def test_the_metrics_of_both_are_the_same_but_for_the_clock(runs):
    base, _, _ = runs
    whole, resumed = metrics.read(base / "whole"), metrics.read(base / "resumed")
    assert [record["step"] for record in whole] == [0, 1, 2, 3, 4]
    for a, b in zip(whole, resumed, strict=True):
        timeless = lambda r: {
            k: v for k, v in r.items() if not k.startswith(("timing_s/", "perf/"))
        }
        assert timeless(a) == timeless(b)
    numbers = [v for r in whole for v in r.values() if isinstance(v, float)]
    assert np.isfinite(numbers).all()
    assert [r["vade/rollouts_total"] for r in whole] == [0, 16, 32, 48, 64]


def test_the_policy_moved_and_stayed_the_engines(runs, small_checkpoint):
    """The first mini-batch of a step is on-policy, so log-ratios stay small; weights move."""
    base, _, _ = runs
    records = metrics.read(base / "whole")[1:]
    assert all(abs(r["actor/ppo_kl"]) < 0.05 for r in records)
    _, before = files.load(small_checkpoint)
    _, after = files.load(base / "whole" / "policy")
    moved = [
        np.abs(np.asarray(a) - np.asarray(b)).max()
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ]
    assert min(moved) > 0


def test_the_run_directory(runs):
    base, _, _ = runs
    whole = base / "whole"
    assert json.loads((whole / "run.json").read_text())["settings"]["num_steps"] == 4
    assert {"samples.png"} == {p.name for p in (whole / "figures").iterdir()}
    assert sorted(p.name for p in (whole / "rollouts").iterdir()) == [
        f"step_{step:05d}.parquet" for step in range(1, 5)
    ]
    rows = rollout_log.read(rollout_log.path(whole, 2))
    assert len(rows["uid"]) == 16 and len(set(rows["uid"])) == 4
    for name in ("alpha", "beta", "p_drawn", "gold", "extracted", "correct", "prompt"):
        assert len(rows[name]) == 16
    assert all(0 < p < 1 for p in rows["p_drawn"])
    assert run_file.settings_of(whole)["num_prompts"] == 4


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
    assert "is done already" in again and "validation" in again
    assert (base / "whole" / "metrics.jsonl").read_bytes() == before


def test_the_policy_which_says_done_is_made_last(runs):
    """Or a kill between the two would leave a run without its report, for good."""
    run = runs[0] / "whole"
    policy, page = (run / name for name in ("policy/config.json", "report.html"))
    assert policy.stat().st_mtime_ns > page.stat().st_mtime_ns


def test_a_run_that_cannot_go_on_ends_with_one_line(monkeypatch, one_device):
    """What the loop does then, and that the last checkpoint stays, is in loop_test."""

    def diverge(*_, **__):
        raise NotFinite("step 4: {'actor/loss': nan}")

    monkeypatch.setattr(run, "train", diverge)
    with pytest.raises(SystemExit, match=r"^error: step 4: {'actor/loss': nan}$"):
        train.main(tiny_gspo.get_config("smoke"), "nowhere")


# ------------------------------------------------------------------------------ bad input
def test_every_metric_of_a_run_is_on_the_page_of_metrics(runs):
    base, _, _ = runs
    page = (pathlib.Path(__file__).parents[2] / "docs/metrics.md").read_text()
    for name in {name for record in metrics.read(base / "whole") for name in record}:
        shown = re.sub(r"^(val|val-aux)/\w+/", r"\1/NAME/", name)
        shown = re.sub(r"NAME/\w+/(acc|forgotten)", r"NAME/FAMILY/\1", shown)
        shown = re.sub(r"mean@\d+", "mean@K", shown).replace("FAMILY/forgotten", "forgotten")
        assert f"`{shown}`" in page, name


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
    assert "optimizer.learning_rate: 0.0003 there, 0.0005 now" in line
    assert "give another --workdir" in line and "num_steps" not in line


@pytest.fixture
def c(one_device, small_checkpoint, tmp_path):
    """A config that starts from a copy of a policy, to be damaged."""
    return smoke(2, shutil.copytree(small_checkpoint, tmp_path / "model"))


def cut_short(model):
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def of_gemma(model):
    path = model / "config.json"
    other = {"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}
    path.write_text(json.dumps(json.loads(path.read_text()) | other))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut_short, ["damaged or cut short"]),
        (of_gemma, ["describes 'GemmaForCausalLM'", "config.json"]),
        (lambda model: (model / "model.safetensors").unlink(), ["lacks model.safetensors"]),
        (lambda model: (model / "tokenizer.json").unlink(), ["tokenizer.json does not exist"]),
    ],
)
def test_a_checkpoint_that_is_damaged(c, tmp_path, capsys, damage, words):
    damage(tmp_path / "model")
    line = fails(c, tmp_path / "run", capsys)
    assert all(word in line for word in words)


def test_a_checkpoint_that_is_not_there(c, tmp_path, capsys):
    c.model.checkpoint = str(tmp_path / "modle")
    assert "modle is no directory" in fails(c, tmp_path / "run", capsys)
    c.model.checkpoint = str(tmp_path / "model")  # mended: the run directory is not taken
    c.data.train = "none.jsonl"
    assert "none.jsonl" in fails(c, tmp_path / "run", capsys)


def use_rows(c, tmp_path, questions):
    rows = [{"question": q, "answer": "7", "id": q[:1]} for q in questions]
    for split in ("train", "validation"):
        path = tmp_path / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        c.data[split] = str(path)
    c.num_prompts = c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 5


def test_more_prompts_than_usable_rows(c, tmp_path, capsys):
    """One of five rows has an empty question: listed, and the batch of 5 does not exist."""
    use_rows(c, tmp_path, ("a?", "b?", "c?", "d?", " "))
    line = fails(c, tmp_path / "run", capsys)
    assert "num_prompts=5 is larger than the training set of 4 usable items" in line
    (reject,) = (tmp_path / "run" / "rejects_train.jsonl").read_text().splitlines()
    assert json.loads(reject)["reason"] == "empty_question"


def test_too_long_prompts_are_left_out(c, tmp_path, capsys):
    use_rows(c, tmp_path, ("a?", "word " * 300, "c?", "d?", "e?"))
    assert "training set of 4 usable items" in fails(c, tmp_path / "run", capsys)


def test_a_server_that_is_not_there(c, tmp_path, capsys):
    c.engine.name, c.engine.url, c.engine.start_s = "vllm_server", "http://127.0.0.1:9", 0.1
    line = fails(c, tmp_path / "run", capsys, code=errors.AGAIN)
    assert "http://127.0.0.1:9 is not ready" in line and line.endswith("the same command goes on")


def test_a_microbatch_that_the_devices_cannot_split(c, tmp_path, monkeypatch, capsys):
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
