"""Selectors in TRL: a GRPOTrainer that rolls out the prompts that a selector chooses.

trainer = SelectingGRPOTrainer(
    model="Qwen/Qwen2.5-VL-3B-Instruct", args=args, train_dataset=rows,
    reward_funcs=[accuracy, format], correct="accuracy", id_column="id",
)

TRL's loader reads batches ahead, before the rewards that should decide them are known. So here the
loader only counts steps over placeholder rows. The real rows are chosen and read when a generation
starts. Every choice then knows all earlier rewards, for any number of iterations or accumulation
steps. The hooks are methods of `GRPOTrainer` in trl/trainer/grpo_trainer.py.
"""

import pathlib
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import datasets
import numpy as np
from accelerate.utils import broadcast_object_list, gather_object
from trl import GRPOTrainer

from vade_jax.plugins import choosing
from vade_jax.rewards import functions

TESTED = "1.16.0"
FILE = "selector.npz"  # in every checkpoint
HOOKS = (
    *("get_train_dataloader", "_generate_and_score_completions", "_calculate_rewards"),
    *("_save_checkpoint", "_load_optimizer_and_scheduler"),
)


class Selecting:
    """A mixin for a GRPOTrainer: `class Mine(Selecting, MyGRPOTrainer): pass`.

    The selector of the first process chooses the prompts for all processes. Only that selector learns,
    and every checkpoint saves it. A run that resumes at the end of a generation chooses what the
    uninterrupted run would have chosen; within one, TRL drops the rest of the generation. Evaluation
    stays as in TRL. Groups that a selector would drop (`keep`) are trained on.

    Args:
        *args: arguments of the trainer.
        selector: name of the selector, a key of `samplers.SAMPLERS` or path/to/file.py:NAME.
        selector_options: its hyperparameters, and optionally `seed` (default: the trainer's) and
            `arrays`.
        id_column: the column of `train_dataset` with the id of each row, unique and the same in every
            run.
        category_column: the column with the category of each row, a name or a number, for `pooled` and other
            selectors that take it.
        correct: says which answers are right. It is the name of a reward function, or a function that
            takes the rewards [N, functions] and returns 1, 0 or NaN (no verdict) for each answer. Required
            if there are several reward functions, whose sum also rewards the format.
        threshold: if `correct` is a name, an answer is right when that reward is above the threshold. A
            reward function may also return two lists, the rewards and which answers are correct (see
            `vade_jax.rewards.functions`); then the second list decides.
        **kwargs: arguments of the trainer.

    Raises:
        TypeError: when the class is defined, the trainer lacks a method that this mixin overrides.
        ValueError: the ids are not unique, `correct` names no reward function, or the selector cannot work
            in this trainer.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        parent = super()
        if missing := [name for name in HOOKS if not hasattr(parent, name)]:
            # Nothing would call what is overridden here: the run would train on placeholders.
            raise TypeError(
                f"trl {metadata.version('trl')} has no {', '.join(missing)}: use trl {TESTED}"
            )

    def __init__(
        self,
        *args: Any,
        selector: str = "vade",
        selector_options: Mapping[str, Any] | None = None,
        id_column: str = "id",
        category_column: str | None = None,
        correct: str | Callable[[np.ndarray], np.ndarray] | None = None,
        threshold: float = 0.5,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        ids = list(self.train_dataset[id_column])
        self.selector = choosing.make_selector(
            ids,
            selector,
            seed=self.args.seed,
            num_rollouts=self.num_generations,
            options=selector_options,
            category=self.train_dataset[category_column] if category_column else None,
        )
        self._right = _verdict(correct, threshold, self.reward_func_names)
        self._verdicts = {}  # name of a reward function -> which answers it calls correct
        self._place = {name: i for i, name in enumerate(ids)}
        self._chosen = []

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
            chosen = [self.selector.select(num_prompts)]
        self._chosen = broadcast_object_list(chosen)[0]
        # TRL expects the G copies of a row next to each other, over all processes in the order of rank.
        places = np.repeat([self._place[i] for i in self._chosen], self.num_generations)
        rows = self.train_dataset
        if self.args.remove_unused_columns:
            rows = self._remove_unused_columns(rows, "training")
        return rows.__getitems__(places[rank * num_rows :][:num_rows].tolist())

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        # TRL takes only rewards from a function, so the functions are wrapped while TRL calls them.
        functions_of_user, self._verdicts = self.reward_funcs, {}
        names = self.reward_func_names
        self.reward_funcs = [*map(self._only_rewards, names, functions_of_user)]
        try:
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        finally:
            self.reward_funcs = functions_of_user
        # TRL has gathered the rewards of all processes.
        verdicts = {x: gather_object(self._verdicts[x]) for x in names if x in self._verdicts}
        if self.model.training and self.accelerator.process_index == 0:
            right_N = self._right(rewards.float().cpu().numpy(), verdicts)
            ids_N = [name for name in self._chosen for _ in range(self.num_generations)]
            mixed = choosing.observe(self.selector, ids_N, right_N)
            metrics = self._metrics["train"]
            metrics["vade/effective_ratio_correct"].append(mixed)
            metrics["vade/unscored_ratio"].append(float(np.isnan(right_N).mean()))
        return rewards

    def _only_rewards(self, name: str, function: Any) -> Any:
        """Returns a reward function that returns only rewards; which answers are correct is stored."""
        if hasattr(function, "forward"):
            return function  # a reward model

        def keep(returned):
            rewards, correct = functions.as_pair(returned)
            if correct is not None:
                self._verdicts[name] = [np.nan if x is None else float(x) for x in correct]
            return rewards

        async def later(**columns):
            return keep(await function(**columns))

        return (
            later if functions.is_async(function) else lambda **columns: keep(function(**columns))
        )

    def _save_checkpoint(self, model, trial):
        # The selector is saved first, because TRL uploads the folder after it has written its own files.
        if self.is_world_process_zero():
            folder = pathlib.Path(self._get_output_dir(trial=trial))
            folder /= f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            self.selector.save(folder / FILE)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.is_world_process_zero():
            self.selector.load(pathlib.Path(checkpoint) / FILE)


class SelectingGRPOTrainer(Selecting, GRPOTrainer):
    """TRL's GRPOTrainer on the prompts that a selector chooses: see `Selecting`."""


def _verdict(correct: Any, threshold: float, names: list[str]) -> Callable:
    """Returns a function of (rewards [N, functions], `_verdicts`) that gives 1, 0 or NaN for each answer."""
    if callable(correct):
        return lambda reward_NF, verdicts: np.asarray(correct(reward_NF), np.float32)
    if correct is None and len(names) == 1:
        correct = names[0]
    if correct is None or names.count(correct) != 1:
        raise ValueError(
            f"correct={correct!r}: name the one reward function that says whether an answer is right, of {names}, "
            "or give a function of all rewards"
        )

    def right(reward_NF, verdicts):
        if correct in verdicts:
            return np.asarray(verdicts[correct], np.float32)
        return choosing.above(reward_NF[:, names.index(correct)], threshold)

    return right
