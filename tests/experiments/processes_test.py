"""The whole program as two processes of four devices, against one process of eight.

This file is also what those processes run: `python -m tests.experiments.processes_test`.
"""

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

from vade_jax.rollout.vllm import process
from vade_jax.store import checkpoints, metrics, rollout_log

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow
SIZES = dict(prompts_per_minibatch=8, prompts_per_microbatch=8)
LIMIT_S = 300


def start(base, name, count, num_steps, mesh=(1, 8, 1), **changes):
    """Starts the processes of a run on eight devices in all; their output goes to files."""
    fields = dict(zip(("data", "fsdp", "tensor"), mesh, strict=True))
    fields = {f"mesh.{axis}": size for axis, size in fields.items()}
    fields |= {f"batch.{field}": value for field, value in SIZES.items()}
    fields |= {"num_steps": num_steps, "num_prompts": 8, "engine.prompts_per_call": 8}
    fields |= {"eval.every": 1, "loss.old_logp": "trainer"} | changes
    command = [
        *(sys.executable, "-m", "tests.experiments.processes_test"),
        *("--config=configs/tiny_grpo.py:smoke", f"--workdir={base / name}"),
        *(f"--config.{field}={value}" for field, value in fields.items()),
    ]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(8 // count),
        "JAX_COMPILATION_CACHE_DIR": str(base / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
    }
    address = f"--coordinator_address=127.0.0.1:{process.free_port()}"
    members = []
    for i in range(count):
        place = [address, f"--num_processes={count}", f"--process_id={i}"]
        members.append(
            subprocess.Popen(
                command + (place if count > 1 else []),
                cwd=ROOT,
                env=environment,
                stdout=(base / f"{name}.{i}.out").open("a"),
                stderr=(base / f"{name}.{i}.err").open("a"),
            )
        )
    return members


def finish(members, limit=LIMIT_S):
    """Returns the exit codes; nothing is left running."""
    deadline = time.monotonic() + limit
    try:
        return [m.wait(max(0.1, deadline - time.monotonic())) for m in members]
    finally:
        for member in members:
            member.kill()
            member.wait()


def until_step(base, name, step, members):
    """Waits for the line of `step` in the metrics."""
    log, deadline = base / name / "metrics.jsonl", time.monotonic() + LIMIT_S
    while not log.exists() or log.read_text().count("\n") <= step:
        assert all(member.poll() is None for member in members), said(base, name)
        assert time.monotonic() < deadline
        time.sleep(0.1)


def run(base, name, count, num_steps, **options):
    codes = finish(start(base, name, count, num_steps, **options))
    assert codes == [0] * count, said(base, name)


def said(base, name):
    return "\n".join(path.read_text() for path in sorted(base.glob(f"{name}.*.*")))


def checkpoint(directory, step):
    """The arrays on one device, whatever devices saved them."""
    saved = checkpoints.manager_of(directory / "checkpoints")
    names = ("policy", "optimizer", "selector")
    return checkpoints.restore(saved, step, dict.fromkeys(names))[1]


def assert_same_run(one, other, steps):
    """Equal choices and tokens, equal selector to the bit, losses to 1e-5."""
    records = [{r["step"]: r for r in metrics.read(directory)} for directory in (one, other)]
    for step in steps:
        a, b = (rollout_log.read(rollout_log.path(d, step)) for d in (one, other))
        for name in ("uid", "answer", "length", "correct", "alpha", "beta", "p_drawn"):
            assert a[name] == b[name], (step, name)
        a, b = (record[step] for record in records)
        assert a["actor/grad_norm"] > 1e-3
        for name in ("actor/loss", "actor/grad_norm", "actor/kl_loss"):
            np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-7)
    a, b = (checkpoint(directory, max(steps)) for directory in (one, other))
    jax.tree.map(np.testing.assert_array_equal, a["selector"], b["selector"])
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-5)
    jax.tree.map(close, a["policy"], b["policy"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two steps as one process and as two, then a third by the other number of processes."""
    base = tmp_path_factory.mktemp("runs")
    run(base, "one", 1, 2)
    run(base, "two", 2, 2)
    shutil.copytree(base / "one", base / "one_then_two")
    shutil.copytree(base / "two", base / "two_then_one")
    run(base, "one_then_two", 2, 3)
    run(base, "two_then_one", 1, 3)
    return base


def test_two_processes_equal_one(runs):
    assert_same_run(runs / "one", runs / "two", (1, 2))


def test_a_checkpoint_is_restored_by_another_number_of_processes(runs):
    for name in ("one_then_two", "two_then_one"):
        assert "resuming after step 2" in (runs / f"{name}.0.out").read_text()
    assert_same_run(runs / "one_then_two", runs / "two_then_one", (1, 2, 3))


def test_only_process_0_prints_and_everything_is_written_once(runs):
    assert "finished in" in (runs / "two.0.out").read_text()
    silent = (runs / "two.1.out").read_text()  # but for what Gloo says
    assert not any(x in silent for x in ("finished", "step 1"))
    assert [r["step"] for r in metrics.read(runs / "one_then_two")] == [0, 1, 2, 3]
    listing = lambda name: sorted(
        str(path.relative_to(runs / name))
        for path in (runs / name).rglob("*")
        if "checkpoints" not in path.parts
    )
    assert listing("one") == listing("two")


def test_sigterm_to_any_process_stops_all_after_the_same_step(runs):
    members = start(runs, "stopped", 2, 500, **{"checkpoint.every": 1000})
    until_step(runs, "stopped", 1, members)
    members[1].send_signal(signal.SIGTERM)
    assert finish(members) == [0, 0], said(runs, "stopped")
    done = metrics.read(runs / "stopped")[-1]["step"]
    assert f"stopped after step {done}" in (runs / "stopped.0.out").read_text()
    assert [p.name for p in (runs / "stopped" / "checkpoints").iterdir()] == [str(done)]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_is_killed_ends_the_other(runs, killed):
    name = f"killed_{killed}"
    members = start(runs, name, 2, 500)
    until_step(runs, name, 1, members)
    before = time.monotonic()
    members[killed].kill()
    codes = finish(members)
    assert codes[killed] == -signal.SIGKILL and codes[1 - killed] != 0
    assert time.monotonic() - before < 60
    run(runs, name, 2, int(metrics.read(runs / name)[-1]["step"]) + 1)


def _member():
    """A two-layer model whose answers are judged by their length in characters: rewards differ."""
    from experiments import cli, train
    from tests.trainer import small
    from vade_jax.models.qwen import presets
    from vade_jax.rewards import functions
    from vade_jax.run import build
    from vade_jax.trainer import scoring

    def judge(item, texts, answers):
        odd = [float(int(np.sum(tokens)) % 2) for tokens in answers]
        return [functions.Judgement(x, x) for x in odd]

    presets.PRESETS["tiny"] = small.SHAPE
    build.make_scorer = lambda *_: scoring.Scorer(lambda x: str(list(x)), judge)
    cli.run(train.main)


if __name__ == "__main__":
    _member()
