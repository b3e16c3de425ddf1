"""Where a run writes to: metrics, rollouts, checkpoints and the progress bar.

Of several processes all save their part of a checkpoint; the leader writes the rest.
"""

import numpy as np
import tqdm

from vade_jax import samplers, settings
from vade_jax.store import checkpoints, metrics, rollout_log
from vade_jax.trainer import loop, processes
from vade_jax.trainer.rounds import Round, StepData
from vade_jax.types import Metrics

# Fits a terminal of 80 columns with all of its numbers.
BAR = "RL {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{remaining} left{postfix}]"


class RunRecorder:
    """Implements `loop.Recorder` for a run directory."""

    def __init__(
        self,
        workdir: str,
        checkpointer: checkpoints.Checkpointer,
        run: settings.Run,
        sampler: samplers.Sampler,
        step: int,
    ):
        """Starts after `step`: what metrics hold of later steps is made again.

        Args:
            workdir: of the run.
            checkpointer: saves it.
            run: its settings, which are stored with it.
            sampler: says what it believed of the prompts, for the rollout log.
            step: steps done.
        """
        self._workdir, self._checkpointer = workdir, checkpointer
        self._run, self._sampler = run, sampler
        self._metrics = None
        if processes.is_leader():
            self._metrics = metrics.Writer(
                workdir,
                tensorboard=run.tensorboard,
                wandb=run.wandb,
                config=run.to_dict(),
            )
            self._metrics.truncate_after(step if step else -1)
        self._bar = tqdm.tqdm(
            disable=not processes.is_leader(),
            total=run.num_steps,
            initial=step,
            bar_format=BAR,
            smoothing=0.1,
        )
        self._watched: dict[str, str] = {}

    def step(self, step: int, values: Metrics, data: StepData | None) -> None:
        """See `loop.Recorder`."""
        if self._metrics is None:
            return
        self._metrics.write(step, values)
        if data is not None:
            path = rollout_log.path(self._workdir, step)
            rollout_log.write(path, table(data, self._sampler))
            self._bar.update()
        self._watched |= _key_numbers(values)  # the last validation stays in sight
        self._bar.set_postfix(self._watched)

    def save(self, progress: loop.Progress, *, last: bool) -> None:
        """See `loop.Recorder`."""
        counters = {
            "step": progress.step,
            "seed": self._run.seed,
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
            self._run.to_dict(),
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


def table(data: StepData, sampler: samplers.Sampler) -> dict:
    """Returns the columns of the rollout log, one row an answer, round after round."""
    tables = [_columns(one, sampler) for one in data.rounds]
    trained_M = np.isin(np.arange(len(data.keep_M)), data.learned_M) & data.keep_M
    group_N = data.rollouts.group_N
    answers = [len(one.rollouts.group_N) for one in data.rounds]
    return {
        "round": np.repeat(np.arange(1, 1 + len(answers)), answers),
        "group": group_N,
        "trained": trained_M[group_N],
        **{name: [x for one in tables for x in one[name]] for name in tables[0]},
    }


def _columns(one: Round, sampler: samplers.Sampler) -> dict:
    """Returns the columns that a round fills by itself."""
    chosen, group_N = one.chosen, one.rollouts.group_N

    def by_answer(values_M):
        return [values_M[m] for m in group_N]

    belief = sampler.believe(one.selector, chosen.proposal)
    counts = {name: belief[name] for name in ("alpha", "beta") if name in belief}
    if chosen.proposal.p_M is not None:
        counts["p_drawn"] = chosen.proposal.p_M
    return {
        "uid": by_answer([item.uid for item in chosen.items]),
        "prompt": by_answer([prompt.text for prompt in chosen.prompts]),
        "answer": one.scores.text_N,
        "extracted": one.scores.extracted_N,
        "reason": one.scores.reason_N,
        "gold": by_answer([item.answer for item in chosen.items]),
        "kind": by_answer([item.kind for item in chosen.items]),
        "correct": one.scores.correct_N,
        "reward": one.scores.reward_N,
        "length": one.rollouts.length_N,
        "finished": one.rollouts.finished_N,
        **{name: by_answer(np.asarray(x_M)) for name, x_M in counts.items()},
        "metadata": by_answer([dict(item.metadata) for item in chosen.items]),
    }


def _key_numbers(values: Metrics) -> dict[str, str]:
    """Returns the numbers that a person watches."""
    names = {"score": "critic/score/mean", "effective": "vade/effective_ratio"}
    shown = {k: f"{values[name]:.2f}" for k, name in names.items() if name in values}
    valid = [v for name, v in values.items() if name.startswith("val/validation/")]
    return {"valid": f"{valid[0]:.3f}", **shown} if valid else shown
