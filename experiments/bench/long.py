"""Measures what a long run over many items costs the host at each step: memory, files, threads and time.

The loop, the selector, the thread for prompts, the scoring, metrics.jsonl, the rollout log and the
checkpoints are those of a real run. The engine is fake and answers from known pass rates; the learner learns
nothing. Each also sleeps WAIT_S, which is less than a real engine or learner takes, and the time of both is
left out. So the measured time is the overhead of a step, without the work that overlaps with engine and
learner: the next prompts are chosen while the policy learns; answers are scored, and those of the last step
written, while others are sampled. The CPU time is that of all threads and includes this work.
"""

import contextlib
import functools
import io
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from configs import tiny_gspo
from experiments.bench import host, timing
from vade_jax import report, samplers, settings
from vade_jax.rollout import fake
from vade_jax.run.recorder import RunRecorder, checkpointer, restore
from vade_jax.store import metrics
from vade_jax.trainer import choosing, loop, scoring
from vade_jax.trainer.producer import Producer
from vade_jax.types import Item, Prompt, TrainState

NUM_PROMPTS, SAVE_EVERY, LOOK_EVERY, WAIT_S = 32, 1000, 10, 0.02
SIZES = ((10_000, 10_000), (1_000_000, 1_000))  # items, steps
QUICK = ((200, 40),)


def run(quick: bool) -> Iterator[timing.Table]:
    """Yields a table for each number of items."""
    logging.set_verbosity(logging.WARNING)  # orbax logs every operation at INFO
    for num_items, num_steps in QUICK if quick else SIZES:
        with tempfile.TemporaryDirectory() as workdir:
            yield _table(num_items, num_steps, workdir)


class Items(Sequence):
    """Questions without images, made on demand."""

    def __init__(self, size: int):
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Item:
        metadata = {"family": "sum", "level": i % 3}
        return Item(str(i), f"What is {i} + 1?", (), str(i + 1), "int", metadata)


def prompt(item: Item) -> Prompt:
    nothing_P = np.zeros(0, np.int32)
    return Prompt(item.uid, item.question, nothing_P, nothing_P[:, None], ())


def score(item: Item, answers: Sequence[np.ndarray]) -> list[scoring.Scored]:
    right = [float(tokens[0] == fake.RIGHT) for tokens in answers]
    return [scoring.Scored(item.answer, item.answer, x, x, "ok") for x in right]


class Probe:
    """Subtracts the time of engine and learner, and inspects the process after steps."""

    def __init__(self, engine: fake.FakeEngine):
        self._engine, self.elsewhere = engine, np.zeros(2)
        self.seconds = []  # after each step: total by the clock and of CPU, without engine and learner
        self.process = []  # (bytes, files, threads), every LOOK_EVERY steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, *arguments, on_group, **options):
        """Calls the engine, then hands the groups on and waits, so that scoring can run meanwhile."""
        start, groups = _now(), []
        rollouts = self._engine.generate(
            *arguments, on_group=lambda *group: groups.append(group), **options
        )
        self.elsewhere += _now() - start
        for group in groups:
            on_group(*group)
        self._wait()
        return rollouts

    def learn(self, state, prompts, rollouts, advantage_N):
        self._wait()
        return state, {"actor/loss": 0.0}

    def _wait(self) -> None:
        """Sleeps, and leaves the sleep out of the clock but not of CPU time, which other threads may use."""
        start = time.perf_counter()
        time.sleep(WAIT_S)
        self.elsewhere[0] += time.perf_counter() - start

    def look(self) -> bool:
        """Records a step; serves as the loop's `stop`, and returns False so that the loop goes on."""
        start = _now()
        self.seconds.append(start - self.elsewhere)
        # Reading these files lets other threads run, which would be a cost at every step.
        if len(self.seconds) % LOOK_EVERY == 0:
            files, threads = (len(os.listdir(f"/proc/self/{x}")) for x in ("fd", "task"))
            self.process.append((host.memory(), files, threads))
        self.elsewhere += _now() - start
        return False


def _now() -> np.ndarray:
    """Returns the clock, and the CPU time of all threads, which does not grow on a busy machine."""
    return np.array([time.perf_counter(), time.process_time()])


def _table(num_items: int, num_steps: int, workdir: str) -> timing.Table:
    config = tiny_gspo.get_config()
    config.num_steps, config.checkpoint.every = num_steps, min(SAVE_EVERY, num_steps // 2)
    settings_of_run = settings.Run.from_dict(config.to_dict())
    selector = samplers.SAMPLERS["vade"](num_rollouts=8, warmup="none")
    rng = np.random.default_rng(0)
    engine = fake.FakeEngine(
        dict(zip(map(str, range(num_items)), rng.random(num_items), strict=True))
    )
    probe = Probe(engine)
    state = TrainState(params={"w": jnp.zeros(1000)}, opt_state=(), step=jnp.int32(0))
    visited_I = np.zeros(num_items, np.int32)
    anew = loop.Progress(state, selector.init(num_items), visited_I)
    saved = checkpointer(settings_of_run.checkpoint, workdir)
    with contextlib.redirect_stderr(io.StringIO()):  # hides the progress bar
        recorder = RunRecorder(workdir, saved, settings_of_run.to_dict(), 0)
        with contextlib.closing(recorder):
            loop.Loop(
                num_steps=num_steps,
                producer=Producer(
                    choosing.ChoosePrompts(selector, Items(num_items), prompt),
                    probe,
                    scoring.Scorer(score),
                    key=jax.random.key(0),
                    num_prompts=NUM_PROMPTS,
                ),
                learn=probe.learn,
                validate=lambda engine, key, version, known: ({}, known),
                recorder=recorder,
                eval_every=num_steps,
            ).run(anew, probe.look)
    cases = {
        "metrics are read": functools.partial(metrics.read, workdir),
        "the report is written": functools.partial(report.write, workdir, items=Items(num_items)),
        "the run resumes": lambda: _resume(settings_of_run, workdir, anew),
    }
    with contextlib.redirect_stdout(io.StringIO()):
        times = {name: timing.seconds(case) for name, case in cases.items()}
    facts = _facts(np.array(probe.seconds), np.array(probe.process))
    step = f"a step of {NUM_PROMPTS} prompts"
    note = "median {median_ms:.1f} ms, {cpu_ms:.1f} ms of CPU; memory {mb_per_1000:+.2f} MB in 1,000 steps, "
    note += "{files:+d} open files, {threads:+d} threads since the first tenth"
    return timing.table(
        f"{num_items:,} items, {num_steps:,} steps",
        {step: facts["mean_ms"] / 1000} | times,
        {},
        "none; neither engine nor learner; memory is the process's own (Linux)",
        notes={step: note.format(**facts)},
        facts={step: facts},
    )


def _resume(run: settings.Run, workdir: str, anew: loop.Progress) -> loop.Progress:
    saved = checkpointer(run.checkpoint, workdir)
    with contextlib.closing(saved):
        progress = restore(saved, anew)
    metrics.Writer(workdir).truncate_after(progress.step)
    return progress


def _facts(seconds_S2: np.ndarray, process_L3: np.ndarray) -> dict[str, float]:
    """Returns a step's times and the growth of the process, without the first tenth, which warms up."""
    step_S2 = np.diff(_after_a_tenth(seconds_S2), axis=0)
    process_L3 = _after_a_tenth(process_L3)
    slope = np.polyfit(LOOK_EVERY * np.arange(len(process_L3)), process_L3[:, 0], 1)[0]
    first, last = process_L3[0], process_L3[-1]
    return {
        "mean_ms": 1e3 * float(step_S2[:, 0].mean()),
        "median_ms": 1e3 * float(np.median(step_S2[:, 0])),
        "cpu_ms": 1e3 * float(np.median(step_S2[:, 1])),
        "mb_per_1000": float(1000 * slope / 2**20),
        "files": int(last[1] - first[1]),
        "threads": int(last[2] - first[2]),
    }


def _after_a_tenth(x):
    return x[max(1, len(x) // 10) :]
