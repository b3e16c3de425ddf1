"""Selectors in verl: a data set of the rows that a selector chooses.

data.custom_cls.path=pkg://vade_jax.plugins.verl_dataset data.custom_cls.name=SelectingDataset
data.dataloader_num_workers=0
+data.selector.num_rollouts='${actor_rollout_ref.rollout.n}' +data.selector.id_column=id
trainer.v1.sampler.custom_sampler.path=pkg://vade_jax.plugins.verl_replay
trainer.v1.sampler.custom_sampler.name=SelectingReplayBuffer

The last two settings return the rewards to the selector, in the trainers of verl/trainer/ppo/v1/.
"""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from verl.utils.dataset.rl_dataset import RLHFDataset

from vade_jax.plugins import choosing
from vade_jax.selector import right_answers

ID = "selector_id"  # key of the row's id in its extra_info


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings in `data.selector` of verl's config.

    num_rollouts: answers to a row, the value of `actor_rollout_ref.rollout.n`
    name, options, seed: the selector (a key of `samplers.SAMPLERS` or path/to/file.py:NAME), its
        hyperparameters and its seed
    id_column: the column of ids, unique and the same in every run; a dot separates a field of a struct
    category_column, pass_rate_column: those of categories, for `pooled` and other selectors that take them,
        and of a prior; empty: none
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
    pass_rate_column: str = ""
    correct: str = "score"
    threshold: float = 0.5


class SelectingDataset(RLHFDataset):
    """verl's data set, with training batches that a selector chooses; `choosing.Stream` says how.

    Validation files stay as in verl. The id of a row, as text, is in `extra_info["selector_id"]`. verl saves
    the `state_dict` in its `data.pt`. Groups that a selector would drop (`keep`) are trained on. The
    arguments are those of `RLHFDataset`.

    Raises:
        ValueError: `data.selector` or the ids are not valid, or the loader would read ahead.
    """

    # The training data set of this process, for the replay buffer.
    training: "SelectingDataset | None" = None

    def __init__(self, data_files, tokenizer, config, processor=None, max_samples=-1):
        self.stream: Any = None
        if config.dataloader_num_workers != 0:
            raise ValueError(
                f"data.dataloader_num_workers={config.dataloader_num_workers}: set it to 0, or batches are fetched "
                "before the rewards that should decide them"
            )
        if config.train_files == config.val_files:
            raise ValueError(
                f"data.val_files is data.train_files ({config.val_files}): give validation another file"
            )
        super().__init__(data_files, tokenizer, config, processor, max_samples)
        if data_files != config.train_files:
            return
        asked = self.settings = Settings(**OmegaConf.to_container(config.selector))
        ids = [str(x) for x in _column(self.dataframe, asked.id_column)]
        columns = {"category": asked.category_column, "pass_rate": asked.pass_rate_column}
        options = dict(asked.options)
        for name in filter(columns.get, columns):
            options.setdefault("arrays", {})[name] = _column(self.dataframe, columns[name])
        selector = choosing.make_selector(
            ids, asked.name, seed=asked.seed, num_rollouts=asked.num_rollouts, options=options
        )
        self.stream = choosing.Stream(selector, config.train_batch_size)
        self._place = {name: i for i, name in enumerate(ids)}
        SelectingDataset.training = self

    def __getitem__(self, item):
        """Returns the next chosen row, whatever `item` is: verl may fetch a batch row by row."""
        if self.stream is None:
            return super().__getitem__(item)
        name = next(self.stream)
        row = super().__getitem__(self._place[name])
        row["extra_info"][ID] = name
        return row

    def learn(self, ids_N: Sequence[str], score_N: Sequence[float], *, full: bool = True) -> None:
        """Tells the selector the scores of some groups.

        verl drops rows without any successful answer: from a full batch the selector also learns that these
            had no verdict.
        """
        right_N = right_answers(score_N, self.settings.threshold)
        for name in dict.fromkeys(ids_N):
            self.stream.answer(name, right_N[np.array(ids_N) == name])
        for name in list(self.stream.out) if full else ():
            self.stream.answer(name, [])

    def state_dict(self) -> dict[str, Any]:
        return self.stream.state_dict() if self.stream else {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        if self.stream:
            # verl itself restores the prompts that were out and their answers.
            self.stream.load_state_dict({**saved, "out": []})
            self.stream.out |= dict.fromkeys(saved["out"], 0)


def _column(rows: Any, column: str) -> list[Any]:
    """Returns the values of a column; "extra_info.level" is a field of a struct."""
    name, *path = column.split(".")
    return [functools.reduce(operator.getitem, path, x) for x in rows.select_columns([name])[name]]
