"""Selectors in TRL: a GRPOTrainer that rolls out the prompts that a selector chooses.

trainer = SelectingGRPOTrainer(
    model="Qwen/Qwen2.5-VL-3B-Instruct", args=args, train_dataset=rows,
    reward_funcs=[accuracy, format], correct="accuracy", id_column="id",
)

TRL's loader reads batches ahead, before the rewards are known that should determine them. So here the loader
only iterates over placeholder rows, and the real rows are chosen and read when a generation starts. Every
choice then knows all earlier rewards, for any number of iterations or accumulation steps. The hooks are
methods of `GRPOTrainer` in trl/trainer/grpo_trainer.py. `trl_async` is for `AsyncGRPOTrainer`.
"""

import json
import pathlib
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import datasets
import numpy as np
from accelerate.utils import broadcast_object_list
from trl import GRPOTrainer

from vade_jax.plugins import choosing
from vade_jax.selector import right_answers

TESTED = "1.16.0"
FILE = "selector.json"  # in every checkpoint


def require_hooks(kind: Any, *hooks: str) -> None:
    """Raises TypeError if a class lacks a method that is overridden here."""
    if missing := [name for name in hooks if not hasattr(kind, name)]:
        raise TypeError(
            f"trl {metadata.version('trl')} has no {', '.join(missing)}: use trl {TESTED}"
        )


class WithSelector:
    """A mixin for a trainer of TRL, which makes its selector and saves it in every checkpoint.

    Args:
        *args, **kwargs: arguments of the trainer.
        selector: name of the selector, a key of `samplers.SAMPLERS` or path/to/file.py:NAME.
        selector_options: its hyperparameters, and optionally `seed` (default: the trainer's) and
            `arrays`, such as {"category": rows["level"]} for `pooled`.
        id_column: the column of `train_dataset` with the id of each row, unique and the same in every
            run.
        correct: says which answers are right. It is the name of a reward function, or a function that
            takes the rewards [N, functions] and returns 1, 0 or NaN (no verdict) for each answer. Required if
            there are several reward functions, because their sum may also reward the format.
        threshold: if `correct` is a name, an answer is right when that reward is above the threshold.

    Raises:
        ValueError: the ids are not unique, `correct` names no reward function, or the selector cannot work
            in this trainer.
    """

    BY_STEP = True  # whether the groups of a step come back all together

    def __init__(
        self,
        *args: Any,
        selector: str = "vade",
        selector_options: Mapping[str, Any] | None = None,
        id_column: str = "id",
        correct: str | Callable[[np.ndarray], np.ndarray] | None = None,
        threshold: float = 0.5,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self._ids = list(self.train_dataset[id_column])
        self.selector = choosing.make_selector(
            self._ids,
            selector,
            seed=self.args.seed,
            num_rollouts=self.args.num_generations,
            options=selector_options,
            by_step=self.BY_STEP,
        )
        self._saved: Any = self.selector
        self._right = _verdict(correct, threshold, self.reward_func_names)

    def _save_checkpoint(self, model, trial):
        # The selector is saved first, because TRL uploads the folder after it has written its own files.
        if self.is_world_process_zero():
            folder = pathlib.Path(self._get_output_dir(trial=trial))
            folder /= f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FILE).write_text(json.dumps(self._saved.state_dict()))
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.is_world_process_zero():
            self._saved.load_state_dict(json.loads((pathlib.Path(checkpoint) / FILE).read_text()))


class Selecting(WithSelector):
    """A mixin for a GRPOTrainer: `class Mine(Selecting, MyGRPOTrainer): pass`.

    The selector of the first process chooses the prompts for all processes. Only that selector learns,
    and every checkpoint saves it. A run that resumes at the end of a generation chooses what the
    uninterrupted run would have chosen; within one, TRL drops the rest of the generation. Evaluation
    stays as in TRL. Groups that a selector would drop (`keep`) are trained on. The arguments are those of
    `WithSelector`.

    Raises:
        TypeError: when the class is defined, the trainer lacks a method that this mixin overrides.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        hooks = ("get_train_dataloader", "_generate_and_score_completions", "_calculate_rewards")
        require_hooks(super(), *hooks, "_save_checkpoint", "_load_optimizer_and_scheduler")

    def get_train_dataloader(self):
        """Returns TRL's loader over placeholders, one for each row of the data set."""
        rows = self.train_dataset
        self.train_dataset = datasets.Dataset.from_dict({"prompt": [""] * len(rows)})
        try:
            return super().get_train_dataloader()
        finally:
            self.train_dataset = rows

    def _generate_and_score_completions(self, inputs):
        if self.model.training:
            inputs = self._choose(len(inputs))
        return super()._generate_and_score_completions(inputs)

    def _choose(self, num_rows: int) -> list[dict[str, Any]]:
        """Returns the `num_rows` rows of this process: its part of G copies of each chosen row."""
        processes, rank = self.accelerator.num_processes, self.accelerator.process_index
        chosen: list[Any] = [None]
        if rank == 0:
            num_prompts = num_rows * processes // self.num_generations
            chosen = [self.selector.propose(num_prompts).index_M.tolist()]
        # TRL expects the G copies of a row next to each other, over all processes in the order of rank.
        self._places = np.repeat(broadcast_object_list(chosen)[0], self.num_generations).tolist()
        rows = self.train_dataset
        if self.args.remove_unused_columns:
            rows = self._remove_unused_columns(rows, "training")
        return rows.__getitems__(self._places[rank * num_rows :][:num_rows])

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        # TRL has gathered the rewards of all processes.
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.model.training and self.accelerator.process_index == 0:
            right_N = self._right(rewards.float().cpu().numpy())
            ids_N = [self._ids[place] for place in self._places]
            mixed = self.selector.observe(ids_N, rewards=right_N, threshold=np.asarray)
            metrics = self._metrics["train"]
            metrics["vade/effective_ratio_correct"].append(mixed)
            metrics["vade/unscored_ratio"].append(float(np.isnan(right_N).mean()))
        return rewards


class SelectingGRPOTrainer(Selecting, GRPOTrainer):
    """TRL's GRPOTrainer on the prompts that a selector chooses: see `Selecting`."""


def _verdict(correct: Any, threshold: float, names: list[str]) -> Callable[[Any], np.ndarray]:
    """Returns a function of the rewards [N, functions] that gives 1, 0 or NaN for each answer."""
    if callable(correct):
        return lambda reward_NF: right_answers(reward_NF, correct)
    if correct is None and len(names) == 1:
        correct = names[0]
    if correct is None or names.count(correct) != 1:
        raise ValueError(
            f"correct={correct!r}: name the one reward function that says whether an answer is right, of {names}, "
            "or give a function of all rewards"
        )
    column = names.index(correct)
    return lambda reward_NF: right_answers(np.asarray(reward_NF)[:, column], threshold)
