"""The replay buffer for verl that tells the selector which answers were right; see verl_dataset.

verl passes `algorithm.filter_groups` only to its own buffers, so with these groups are not filtered.
"""

from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from vade_jax.plugins import verl_dataset


class Selecting:
    """A mixin for replay buffers: `class Mine(Selecting, MyReplayBuffer): pass`.

    In the asynchronous modes a batch is chosen before all rewards of the earlier ones are known, and may be
    sampled in parts; the selector learns from `train_batch_size` prompts at a time.
    """

    def sample(self, global_steps: int, partition_id: str, batch_size: int):
        """Returns verl's sample and metrics; the selector learns from it if it is a training batch."""
        batch, metrics = super().sample(
            global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
        )
        if partition_id == "train":
            learned = _learn(batch, full=not isinstance(self, ReplayBufferAsync))
            metrics = {**metrics, **{f"vade/{name}": value for name, value in learned.items()}}
        return batch, metrics


def SelectingReplayBuffer(trainer_mode: str, **kwargs: Any):  # noqa: N802 (verl has a class there)
    """Returns verl's replay buffer for the trainer's mode, with reports to the selector."""
    base = ReplayBuffer if trainer_mode == "sync" else ReplayBufferAsync
    buffer = type("SelectingReplayBuffer", (Selecting, base), {})
    return buffer(trainer_mode=trainer_mode, **kwargs)


def _learn(batch: tq.KVBatchMeta, full: bool) -> dict[str, float]:
    """Tells the selector of this process which answers were right; returns its metrics."""
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
    values = [_plain(value) for value in data[field]]
    if correct == "score":
        score_N = [float(value.sum()) for value in values]
    else:
        score_N = [value["reward_extra_info"][correct] for value in values]
    dataset.learn(ids_N, score_N, full=full)
    return dataset.stream.metrics()


def _last_outputs(keys: list[str]) -> list[str]:
    """Returns one key per answer: that of its last output, from keys "{prompt}_{answer}_{output}"."""
    last = {}
    for key in sorted(keys, key=lambda key: int(key.rsplit("_", 1)[1])):
        last[key.rsplit("_", 1)[0]] = key
    return list(last.values())


def _plain(value: Any) -> Any:
    """Returns the value, without the wrapper that tensordict may have put around it."""
    return getattr(value, "data", value)
