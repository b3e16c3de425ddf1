"""Selectors in verl: a data set whose rows are those that a selector chooses.

data.custom_cls.path=pkg://vade_jax.plugins.verl_dataset data.custom_cls.name=SelectingDataset
data.dataloader_num_workers=0
+data.selector.num_rollouts='${actor_rollout_ref.rollout.n}' +data.selector.id_column=id
trainer.v1.sampler.custom_sampler.path=pkg://vade_jax.plugins.verl_replay
trainer.v1.sampler.custom_sampler.name=SelectingReplayBuffer

The last two settings return the rewards to the selector in verl's default trainer (`PPOTrainer` in
verl/trainer/ppo/v1/trainer_base.py). verl's deprecated trainer (`trainer.use_v1=False`, `RayPPOTrainer` in
verl/trainer/ppo/ray_trainer.py) calls `on_batch_end` instead.
"""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from verl import DataProto
from verl.utils.dataset.rl_dataset import RLHFDataset

from vade_jax.plugins import choosing

ID = "selector_id"  # key of the row's id in its extra_info
PATIENCE = 64  # batches without any reward after which the run stops


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings in `data.selector` of verl's config.

    num_rollouts: answers to a row, the value of `actor_rollout_ref.rollout.n`
    name, options, seed: the selector (a key of `samplers.SAMPLERS` or path/to/file.py:NAME), its
        hyperparameters and its seed
    id_column: the column of ids, unique and the same in every run; a dot separates a field of a struct
    category_column: the column of the rows' categories, named in the same way, for `pooled` and other
        selectors that take it
    correct: the value that says whether an answer is right: "score", or a key of `reward_extra_info`
    threshold: an answer is right if that value is above it. verl's own mixed rewards are above 0.5 only
        for right answers
    """

    num_rollouts: int
    name: str = "vade"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    id_column: str = "id"
    category_column: str = ""
    correct: str = "score"
    threshold: float = 0.5


class SelectingDataset(RLHFDataset):
    """verl's data set, with training batches that a selector chooses.

    Validation files stay as in verl. The id of a row, as text, is in `extra_info["selector_id"]`. verl saves
    the `state_dict` in its `data.pt`. Groups that a selector would drop (`keep`) are trained on. The
    arguments are those of `RLHFDataset`.

    Raises:
        ValueError: `data.selector` or the ids are not valid, or the loader would read ahead.
    """

    # The training data set of this process, for the replay buffer.
    training: "SelectingDataset | None" = None

    def __init__(self, data_files, tokenizer, config, processor=None, max_samples=-1):
        self.selector: Any = None
        self._queue, self._unanswered = [], 0
        self._given: list[str] = []  # rows since answers were last learned
        self._answers: list[tuple[str, float]] = []  # parts of a batch, not learned yet
        chooses = data_files == config.train_files
        self.settings: Any = _settings(config) if chooses else None
        super().__init__(data_files, tokenizer, config, processor, max_samples)
        if not chooses:
            return
        ids = [str(x) for x in _column(self.dataframe, self.settings.id_column)]
        of_rows = self.settings.category_column
        self.selector = choosing.make_selector(
            ids,
            self.settings.name,
            seed=self.settings.seed,
            num_rollouts=self.settings.num_rollouts,
            options=self.settings.options,
            category=_column(self.dataframe, of_rows) if of_rows else None,
        )
        self._place = {name: i for i, name in enumerate(ids)}
        SelectingDataset.training = self

    def __getitem__(self, item):
        """Returns the next chosen row, whatever `item` is: verl may fetch a batch row by row."""
        if self.selector is None:
            return super().__getitem__(item)
        if not self._queue:
            self._queue = self._choose()
        name = self._queue.pop(0)
        self._given.append(name)
        row = super().__getitem__(self._place[name])
        row["extra_info"][ID] = name
        return row

    def learn(self, ids_N: Sequence[str], score_N: Sequence[float], *, full: bool = True) -> float:
        """Tells the selector which answers are right (above the threshold); returns the mixed share.

        A selector takes what it observes for a step, and lets everything else decay. So parts of a batch
        (`full` is False) wait until they have as many answers as a batch. verl leaves out rows whose
        answers all failed: of a full batch the selector also learns that these had no verdict.
        """
        right_N = choosing.above(np.asarray(score_N, float), self.settings.threshold)
        self._unanswered = 0
        self._answers += zip(ids_N, right_N.tolist(), strict=True)
        # Answers are counted, not rows: two batches in flight may share a row.
        size = self.config.train_batch_size * self.settings.num_rollouts
        if full:
            answered = {name for name, _ in self._answers}
            self._answers += [(name, np.nan) for name in self._given if name not in answered]
        self._given = []
        if full or len(self._answers) >= size:
            all_ids_N, all_right_N = zip(*self._answers, strict=True)
            self._answers = []
            choosing.observe(self.selector, all_ids_N, np.array(all_right_N))
        return choosing.mixed_share(*choosing.counted(ids_N, right_N)[1:])

    def on_batch_end(self, batch: DataProto) -> None:
        """Learns from a batch of verl's deprecated trainer, which calls this after every step.

        That trainer saves its checkpoint before this call, so a resumed run lacks the answers of the last
        step. If the last step ended an epoch, it restores no data state, and the selector starts again.
        """
        ids_N = [extra[ID] for extra in batch.non_tensor_batch["extra_info"]]
        if self.settings.correct == "score":
            score_N = batch.batch["token_level_scores"].sum(-1).float().cpu().numpy()
        else:
            score_N = batch.non_tensor_batch[self.settings.correct]
        self.learn(ids_N, score_N)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the selector, the chosen rows not yet fetched, the answers not yet learned."""
        if self.selector is None:
            return {}
        return {
            "selector": self.selector.state_dict(),
            "queue": list(self._queue),
            "answers": list(self._answers),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned."""
        if self.selector is None:
            return
        self.selector.load_state_dict(saved["selector"])
        self._queue = list(saved["queue"])
        self._answers = [(name, right) for name, right in saved["answers"]]

    def _choose(self) -> list[str]:
        if self._unanswered == PATIENCE:
            raise RuntimeError(
                f"{PATIENCE} batches were chosen and no reward came back: set "
                "trainer.v1.sampler.custom_sampler to SelectingReplayBuffer"
            )
        self._unanswered += 1
        return self.selector.select(self.config.train_batch_size)


def _settings(config: Any) -> Settings:
    if config.dataloader_num_workers != 0:
        raise ValueError(
            f"data.dataloader_num_workers={config.dataloader_num_workers}: set it to 0, or batches are fetched "
            "before the rewards that should decide them"
        )
    if config.train_files == config.val_files:
        raise ValueError(
            f"data.val_files is data.train_files ({config.val_files}): give validation a file of its own"
        )
    return Settings(**OmegaConf.to_container(config.selector))


def _column(rows: Any, column: str) -> list[Any]:
    """Returns the values of a column; "extra_info.level" is a field of a struct."""
    name, *path = column.split(".")
    return [functools.reduce(operator.getitem, path, x) for x in rows.select_columns([name])[name]]
