"""Where a run writes to: metrics, rollouts, checkpoints and the progress bar.

Of several processes all save their part of a checkpoint; the leader writes the rest.
"""

from collections.abc import Mapping

import numpy as np
import tqdm

from vade_jax import samplers
from vade_jax.store import checkpoints, metrics, rollout_log
from vade_jax.trainer import loop, processes
from vade_jax.types import Metrics


class Recorder:
    """Implements `loop.Recorder` for a run directory."""

    def __init__(
        self,
        workdir: str,
        checkpointer: checkpoints.Checkpointer,
        config: Mapping,
        step: int,
    ):
        """Starts after `step`: what metrics hold of later steps is made again."""
        self._workdir = workdir
        self._checkpointer = checkpointer
        self._config = config
        self._metrics = None
        if processes.is_leader():
            self._metrics = metrics.Writer(
                workdir,
                tensorboard=config["tensorboard"],
                wandb=config["wandb"],
                config=config,
            )
            self._metrics.truncate_after(step if step else -1)
        self._bar = tqdm.tqdm(
            disable=not processes.is_leader(),
            total=config["num_steps"],
            initial=step,
            desc="RL",
            unit=" steps",
            smoothing=0.1,
        )

    def step(self, step: int, values: Metrics, data: loop.StepData | None) -> None:
        """See `loop.Recorder`."""
        if self._metrics is None:
            return
        self._metrics.write(step, values)
        if data is not None:
            rollout_log.write(rollout_log.path(self._workdir, step), table(data))
            self._bar.update()
        self._bar.set_postfix(_key_numbers(values, self._bar))

    def save(self, progress: loop.Progress, *, last: bool) -> None:
        """See `loop.Recorder`."""
        counters = {
            "step": progress.step,
            "seed": self._config["seed"],
            "rollouts_total": progress.rollouts_total,
            "tokens_total": progress.tokens_total,
            "seen": sorted(progress.seen),
            "skipped_updates": progress.skipped_updates,
        }
        self._checkpointer.save(
            progress.step,
            progress.state,
            progress.selector,
            counters,
            self._config,
            force=last,
        )
        if last:
            self._checkpointer.wait()

    def close(self) -> None:
        """Finishes what is being written."""
        self._bar.close()
        self._checkpointer.close()
        if self._metrics is not None:
            self._metrics.close()


def table(data: loop.StepData) -> dict:
    """Returns the columns of the rollout log, one row an answer, round after round."""
    tables = [_table(one) for one in data.rounds]
    trained_M = np.isin(np.arange(len(data.keep_M)), data.learned_M) & data.keep_M
    group_N = data.rollouts.group_N
    answers = [len(one.rollouts.group_N) for one in data.rounds]
    return {
        "round": np.repeat(np.arange(1, 1 + len(answers)), answers),
        "group": group_N,
        "trained": trained_M[group_N],
        **{name: [x for one in tables for x in one[name]] for name in tables[0]},
    }


def _table(data):
    """The columns that a round fills by itself."""
    group_N = data.rollouts.group_N
    by_answer = lambda values_M: [values_M[m] for m in group_N]
    belief = samplers.beliefs(data.selector, data.proposal)
    posterior = {
        name: by_answer(np.asarray(belief[name]))
        for name in ("alpha", "beta")
        if belief
    }
    if data.proposal.p_M is not None:
        posterior["p_drawn"] = by_answer(np.asarray(data.proposal.p_M))
    return {
        "uid": by_answer([item.uid for item in data.items]),
        "prompt": by_answer([prompt.text for prompt in data.prompts]),
        "answer": data.scores.text_N,
        "extracted": data.scores.extracted_N,
        "reason": data.scores.reason_N,
        "gold": by_answer([item.answer for item in data.items]),
        "kind": by_answer([item.kind for item in data.items]),
        "correct": data.scores.correct_N,
        "reward": data.scores.reward_N,
        "length": data.rollouts.length_N,
        "finished": data.rollouts.finished_N,
        **posterior,
        "metadata": by_answer([dict(item.metadata) for item in data.items]),
    }


def _key_numbers(values, bar):
    """The numbers a person watches; the last validation stays in sight."""
    names = {
        "score": "critic/score/mean",
        "effective": "vade/effective_ratio",
        "predicted": "vade/predicted_effective_ratio",
    }
    shown = {k: f"{values[name]:.2f}" for k, name in names.items() if name in values}
    if "timing_s/step" in values:
        shown["rollouts/s"] = f"{values['perf/rollouts_per_s']:.0f}"
    valid = [v for name, v in values.items() if name.startswith("val/validation/")]
    if valid:
        bar.set_description(f"RL, validation {valid[0]:.3f}")
    return shown
