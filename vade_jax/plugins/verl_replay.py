"""The way back in verl: replay buffers that tell the selector which answers were right.

See verl_dataset for the settings. `SelectingReplayBuffer` is for `trainer.v1.trainer_mode=sync`,
`SelectingReplayBufferAsync` for the others. verl hands `algorithm.filter_groups` to its own buffers
only: with these, groups are not filtered.
"""

from typing import Any

import numpy as np
import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from vade_jax.plugins import choosing, verl_dataset


class Selecting:
    """Goes before a replay buffer: `class Mine(Selecting, MyReplayBuffer): pass`.

    Raises:
        TypeError: when the class is made, the buffer lacks what this builds on.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        wanted = "self, global_steps, partition_id, batch_size"
        found = getattr(super(), "sample", None)
        choosing.check_hooks("verl", verl_dataset.TESTED, {"sample": (found, wanted)})

    def sample(self, global_steps: int, partition_id: str, batch_size: int):
        """Returns verl's sample and metrics; of a training batch, the selector has then learned."""
        batch, metrics = super().sample(
            global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
        )
        if partition_id == "train":
            metrics = {**metrics, "vade/effective_ratio_correct": _learn(batch)}
        return batch, metrics


class SelectingReplayBuffer(Selecting, ReplayBuffer):
    """verl's synchronous replay buffer, heard by the selector."""


class SelectingReplayBufferAsync(Selecting, ReplayBufferAsync):
    """verl's asynchronous replay buffer, heard by the selector; it chooses batches ahead."""


def _learn(batch: Any) -> float:
    dataset = verl_dataset.SelectingDataset.training
    if dataset is None:
        raise RuntimeError("data.custom_cls is no SelectingDataset: see verl_dataset")
    correct = dataset.settings.correct
    field = "rm_scores" if correct == "score" else "extra_fields"
    data = tq.kv_batch_get(
        keys=_last_outputs(batch.keys),
        partition_id=batch.partition_id,
        select_fields=["extra_info", field],
    )
    ids_N = [_plain(extra)[verl_dataset.ID] for extra in data["extra_info"]]
    if correct == "score":
        score_N = [float(score_T.sum()) for score_T in data[field]]
    else:
        score_N = [_plain(x)["reward_extra_info"][correct] for x in data[field]]
    return dataset.learn(ids_N, np.asarray(score_N, float))


def _last_outputs(keys: list[str]) -> list[str]:
    """Returns one key an answer: of several outputs, "{prompt}_{answer}_{output}", the last."""
    last = {}
    for key in sorted(keys, key=lambda key: int(key.rsplit("_", 1)[1])):
        last[key.rsplit("_", 1)[0]] = key
    return list(last.values())


def _plain(value: Any) -> Any:
    """Returns the value that tensordict may have wrapped."""
    return getattr(value, "data", value)
