"""Writes metrics, the rollout log and checkpoints of a run, and restores a run from them.

With several processes each saves its part of a checkpoint, and the leader writes the rest.
"""

import contextlib
import os
from collections.abc import Mapping
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.run import directory
from vade_jax.store import checkpoints, metrics, rollout_log, run_file
from vade_jax.trainer import processes
from vade_jax.trainer.choosing import Pool
from vade_jax.trainer.collect import StepData
from vade_jax.trainer.progress import Progress
from vade_jax.types import Metrics

EXAMPLE = 300  # characters of the first prompt and answer
# Metrics that are printed, by the start of their name.
SHOWN = {
    "val/validation/": "validation",
    "val-aux/validation/forgotten": "forgotten",
    "critic/score/mean": "score",
    "vade/trained_effective_ratio_correct": "effective",
    "timing_s/step": "seconds",
}
# Fields of `Progress` that a checkpoint stores as JSON.
COUNTERS = ("step", "rollouts_total", "tokens_total", "validated", "skipped_updates", "visits")


class RunRecorder:
    """Implements `loop.Recorder` for a run directory, and restores a run from it."""

    def __init__(self, workdir: str, config: Mapping[str, Any]):
        """Opens the directory; `config` has all settings."""
        self.workdir, self._config = workdir, config
        self._metrics = None
        if processes.is_leader():
            self._metrics = metrics.Writer(workdir, wandb=config["wandb"], config=config)
        # A step's answers are written while the engine makes the next ones.
        self._log_thread = futures.ThreadPoolExecutor(1, "rollouts")
        self._log_written = self._log_thread.submit(lambda: None)
        path, keep = os.path.join(workdir, directory.CHECKPOINTS), config["checkpoint"]["keep"]
        self._checkpoints = checkpoints.manager_of(path, keep=keep, is_sole=True)
        self._latest = self._checkpoints.latest_step()  # None: nothing is saved
        self._recorded = self._latest  # the step of the last line of metrics.jsonl
        self.resumes = self._latest is not None

    def restore(self, progress: Progress, pool: Pool) -> Progress:
        """Returns the progress of the latest checkpoint, or `progress` itself if there is none.

        Records of later steps are removed, because those steps are taken again.

        Args:
            progress: gives the shapes.
            pool: builds the prompts of a batch that waits.

        Raises:
            ValueError: the checkpoint is damaged, or the metrics end before it, so there would be a gap.
        """
        step = self._latest or 0
        if self._metrics is not None:
            self._metrics.resume_after(step)
            rollout_log.remove_after(self.workdir, step)
        if not step:
            return progress
        examples = _trees(progress) | {"waiting": None}
        content, trees = checkpoints.restore(self._checkpoints, step, examples)
        waits = "waiting" in trees
        print(f"resuming after step {step}" + ", 1 made ahead" * waits)
        selector, counters = trees["selector"], content["progress"]
        return Progress(
            state=progress.state.replace(params=trees["policy"], **trees["optimizer"]),
            # Not committed to a device, like a fresh state, because it is combined with arrays on any mesh.
            posterior=jax.tree.map(jnp.asarray, selector["posterior"]),
            visited_I=selector["visited_I"],
            waiting=StepData.unpack(trees["waiting"], content["waiting"], pool) if waits else None,
            known=frozenset(counters["known"]),
            **{name: counters[name] for name in COUNTERS},
        )

    def record(self, step: int, metrics: Metrics, data: StepData | None = None) -> None:
        """See `loop.Recorder`."""
        if self._metrics is None:
            return
        write = self._metrics.add if step == self._recorded else self._metrics.write
        write(step, metrics)
        self._recorded = step
        show(step, metrics)
        if data is None:
            return
        self._log_written.result()
        path = rollout_log.path(self.workdir, step)
        self._log_written = self._log_thread.submit(lambda: rollout_log.write(path, *tables(data)))
        if step == 1:
            print(first_answer(data))

    def save(self, progress: Progress, *, last: bool) -> None:
        """See `loop.Recorder`."""
        step, every = progress.step, self._config["checkpoint"]["every"]
        if step == 0 or not (last or step % every == 0):
            return
        self._log_written.result()  # the answers of a checkpoint are written before it
        counters = {name: getattr(progress, name) for name in COUNTERS}
        content: dict[str, Any] = {
            "progress": counters | {"known": sorted(progress.known), "seed": self._config["seed"]},
            "config": self._config,
        }
        trees = _trees(progress)
        if progress.waiting:
            trees["waiting"], content["waiting"] = progress.waiting.pack()
        if not self.resumes and self._metrics is not None:  # now there is progress to lose
            run_file.change(self.workdir, state=run_file.RUNNING)
        self.resumes = True
        checkpoints.save(self._checkpoints, step, trees, content)
        if last:
            self._checkpoints.wait_until_finished()

    def close(self) -> None:
        """Completes pending writes and closes the files; raises the error of a failed write of answers."""
        # The stack calls them in reverse order, each one even if others raise.
        with contextlib.ExitStack() as stack:
            if self._metrics is not None:
                stack.callback(self._metrics.close)
            stack.callback(self._checkpoints.close)
            stack.callback(self._log_written.result)
            stack.callback(self._log_thread.shutdown)


def _trees(progress: Progress) -> dict[str, Any]:
    """Returns the arrays of a checkpoint."""
    state = progress.state
    return {
        "policy": state.params,
        "optimizer": {"opt_state": state.opt_state, "step": state.step},
        # Arrays over all items are too large for JSON.
        "selector": {"posterior": progress.posterior, "visited_I": progress.visited_I},
    }


def show(step: int, values: Metrics) -> None:
    """Prints the metrics of a step that a user follows."""
    shown = [
        f"{label} {x:.3f}"
        for start, label in SHOWN.items()
        for name, x in values.items()
        if name.startswith(start)
    ]
    if shown:
        print(f"step {step}: {', '.join(shown)}", flush=True)


def first_answer(data: StepData) -> str:
    """Returns the first prompt of a step as the policy saw it, and an answer with its reward."""
    prompt, scored = data.prompts[0], data.scored[0]
    shown = ", ".join(f"{x.shape[1]} x {x.shape[0]}" for x in prompt.images) or "none"
    return (
        f"first prompt: {prompt.text[:EXAMPLE]!r}, {prompt.length} tokens, pictures: {shown}\n"
        f"first answer: {scored.text[:EXAMPLE]!r}, reward {scored.reward:.2f}; the gold is "
        f"{data.items[0].answer[:EXAMPLE]!r}"
    )


def tables(data: StepData) -> tuple[rollout_log.Table, rollout_log.Table]:
    """Returns the columns of the rollout log, for all answers and for all groups, round after round."""
    known_N = np.array([one.is_known for one in data.scored], bool)
    answers = {
        "answer": [one.text for one in data.scored],
        "extracted": [one.extracted for one in data.scored],
        "reason": [one.reason for one in data.scored],
        "correct": np.where(known_N, data.feedback.correct_N, np.nan),
        "reward": np.where(known_N, data.feedback.reward_N, np.nan),
        "length": data.rollouts.length_N,
        "finished": data.rollouts.finished_N,
        "group": data.rollouts.group_N,
    }
    groups = {
        "uid": [item.uid for item in data.items],
        "prompt": [prompt.text for prompt in data.prompts],
        "gold": [item.answer for item in data.items],
        "kind": [item.kind for item in data.items],
        **{x: data.belief[x] for x in ("alpha", "beta", "p_drawn") if x in data.belief},
        "metadata": [dict(item.metadata) for item in data.items],
        "round": data.round_M,
        "trained": np.isin(np.arange(len(data.keep_M)), data.learned_M) & data.keep_M,
    }
    return answers, groups
