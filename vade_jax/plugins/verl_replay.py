"""Replay buffers for verl that tell the selector which answers were right.

verl_dataset explains the settings. `SelectingReplayBuffer` is for `trainer.v1.trainer_mode=sync`,
`SelectingReplayBufferAsync` for the other modes. verl passes `algorithm.filter_groups` only to its own
buffers, so with these groups are not filtered.
"""

from typing import Any

import numpy as np
import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from vade_jax.plugins import verl_dataset


class Selecting:
    """A mixin for replay buffers: `class Mine(Selecting, MyReplayBuffer): pass`.

    Raises:
        ValueError: the buffer does not fit the trainer's mode, or the answers have no verdict.
    """

    def __init__(self, trainer_mode: str, **kwargs):
        if isinstance(self, ReplayBufferAsync) == (trainer_mode == "sync"):
            raise ValueError(
                f"trainer.v1.trainer_mode={trainer_mode!r}: set trainer.v1.sampler.custom_sampler.name to "
                f"SelectingReplayBuffer{'' if trainer_mode == 'sync' else 'Async'}"
            )
        super().__init__(trainer_mode=trainer_mode, **kwargs)

    def sample(self, global_steps: int, partition_id: str, batch_size: int):
        """Returns verl's sample and metrics; the selector learns from it if it is a training batch."""
        batch, metrics = super().sample(
            global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
        )
        if partition_id == "train":
            full = not isinstance(self, ReplayBufferAsync)
            metrics = {**metrics, "vade/effective_ratio_correct": _learn(batch, full)}
        return batch, metrics


class SelectingReplayBuffer(Selecting, ReplayBuffer):
    """verl's synchronous replay buffer, with reports to the selector."""


class SelectingReplayBufferAsync(Selecting, ReplayBufferAsync):
    """verl's asynchronous replay buffer, with reports to the selector.

    A batch may be chosen before all rewards of the earlier batches are known, and may have prompts in common
    with them. It may be sampled in parts: the selector learns once for every `train_batch_size` prompts.
    """


def _learn(batch: tq.KVBatchMeta, full: bool) -> float:
    """Tells the selector of this process which answers were right; returns the share of mixed groups."""
    dataset = verl_dataset.SelectingDataset.training
    if dataset is None:
        raise RuntimeError("data.custom_cls is not a SelectingDataset: see verl_dataset")
    correct = dataset.settings.correct
    field = "rm_scores" if correct == "score" else "extra_fields"
    data = tq.kv_batch_get(
        keys=_last_outputs(batch.keys),
        partition_id=batch.partition_id,
        select_fields=["extra_info", field],
    )
    if field not in data:
        raise ValueError(
            "the answers have no rm_scores yet when the batch is sampled: set "
            "reward.reward_model.enable_resource_pool=True, so that a reward model scores earlier"
        )
    ids_N = [_plain(extra)[verl_dataset.ID] for extra in data["extra_info"]]
    score_N = [_score(_plain(value), correct) for value in data[field]]
    return dataset.learn(ids_N, np.asarray(score_N, float), full=full)


def _score(value: Any, correct: str) -> float:
    if correct == "score":
        return float(value.sum())
    return value["reward_extra_info"][correct]


def _last_outputs(keys: list[str]) -> list[str]:
    """Returns one key per answer: that of its last output, from keys "{prompt}_{answer}_{output}"."""
    last = {}
    for key in sorted(keys, key=lambda key: int(key.rsplit("_", 1)[1])):
        last[key.rsplit("_", 1)[0]] = key
    return list(last.values())


def _plain(value: Any) -> Any:
    """Returns the value, without the wrapper that tensordict may have put around it."""
    return getattr(value, "data", value)
