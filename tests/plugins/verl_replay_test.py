"""The selector behind verl's replay buffers: real queue, loader and buffer, made-up answers."""

import importlib.util
import types

import numpy as np
import pytest

from tests.plugins import verl_dataset_test as parts
from vade_jax.selector import Selector

pytestmark = [
    pytest.mark.plugins,
    pytest.mark.skipif(not importlib.util.find_spec("verl"), reason="needs verl"),
]
B, G = parts.B, parts.G


def trainer(data, mode):
    """What verl's trainer is to the two parts: its own methods over its own loader."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import trainer_base

    name = {"sync": "SelectingReplayBuffer"}.get(mode, "SelectingReplayBufferAsync")
    sampler = dict(
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
        custom_sampler={"path": "pkg://vade_jax.plugins.verl_replay", "name": name},
    )
    made = types.SimpleNamespace(
        config=OmegaConf.create({"trainer": {"v1": {"sampler": sampler}}, "data": data}),
        trainer_mode=mode,
        train_dataloader=parts.loader(data, parts.dataset(data), data.gen_batch_size),
        train_dataloader_it=None,
        global_steps=1,
        _add_prompts_to_generate=None,
    )
    methods = trainer_base.PPOTrainer
    made._fetch_one_gen_batch = lambda: methods._fetch_one_gen_batch(made)
    made.next_batch = lambda: methods._next_train_batch(made)
    made.replay_buffer = methods._build_replay_buffer(made)
    return made


def plain(value):
    return getattr(value, "data", value)


def answer(queue, batch, score, acc, partition="train"):
    """Writes what verl's agent loops write: of each answer two outputs, then the prompt's status."""
    import torch
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    keys, fields = [], []
    uids, extras = list(map(plain, batch["uid"])), list(map(plain, batch["extra_info"]))
    for m, (uid, extra) in enumerate(zip(uids, extras, strict=True)):
        for n in range(G):
            info = {"reward_extra_info": {"acc": acc[m][n]}}
            field = {"extra_info": extra, "extra_fields": info}
            if score is not None:
                field["rm_scores"] = torch.zeros(4 + n)
                field["rm_scores"][-1] = score[m][n]
            keys += [f"{uid}_{n}_{output}" for output in range(2)]
            fields += [field] * 2
    queue.kv_batch_put(
        keys=keys,
        partition_id=partition,
        fields=list_of_dict_to_tensordict(fields),
        tags=[{"status": "success"}] * len(keys),
    )
    done = {"is_prompt": True, "status": "finished", "global_steps": 1}
    queue.kv_batch_put(keys=uids, partition_id=partition, tags=[done] * len(uids))


@pytest.mark.parametrize(
    ("mode", "gen_batch_size", "correct"),
    [("sync", B, "score"), ("sync", B, "acc"), ("colocate_async", 1, "score")],
)
def test_a_sample_teaches_the_selector(queue, tmp_path, mode, gen_batch_size, correct):
    data = parts.config(tmp_path, gen_batch_size=gen_batch_size, selector={"correct": correct})
    run, rng = trainer(data, mode), np.random.default_rng(0)
    selector = Selector(parts.IDS, num_rollouts=G)
    for step in range(1, 5):
        batch, ids = run.next_batch(), selector.select(B)
        assert [plain(x)["selector_id"] for x in batch["extra_info"]] == ids
        right = rng.integers(0, 2, (B, G)).astype(float)
        scores = {"score": right, "acc": right}
        scores["acc" if correct == "score" else "score"] = 1 - right
        answer(queue, batch, **scores)
        sampled, metrics = run.replay_buffer.sample(
            global_steps=step, partition_id="train", batch_size=B
        )
        assert len(sampled.keys) == B * G * 2
        mixed = (right.sum(1) > 0) & (right.sum(1) < G)
        assert metrics["vade/effective_ratio_correct"] == mixed.mean()
        selector.observe(ids, right.sum(1), G)
        parts.assert_same_state(run.train_dataloader.dataset.selector, selector)
        queue.kv_clear(partition_id="train", keys=sampled.keys)


def test_validation_teaches_nothing(queue, tmp_path):
    run = trainer(parts.config(tmp_path, gen_batch_size=B), "sync")
    batch = run.next_batch()
    fresh = Selector(parts.IDS, num_rollouts=G)
    assert [plain(x)["selector_id"] for x in batch["extra_info"]] == fresh.select(B)
    ones = np.ones((B, G))
    answer(queue, batch, ones, ones, partition="val")
    sampled, metrics = run.replay_buffer.sample(global_steps=1, partition_id="val", batch_size=B)
    queue.kv_clear(partition_id="val", keys=sampled.keys)
    assert len(sampled.keys) == B * G * 2 and metrics == {}
    parts.assert_same_state(run.train_dataloader.dataset.selector, fresh)


@pytest.mark.parametrize(
    ("correct", "score", "message"),
    [
        ("score", None, r"no rm_scores yet .*enable_resource_pool=True"),
    ],
)
def test_answers_without_the_verdict_are_named(queue, tmp_path, correct, score, message):
    run = trainer(parts.config(tmp_path, gen_batch_size=B, selector={"correct": correct}), "sync")
    answer(queue, run.next_batch(), score, [[1.0] * G] * B)
    with pytest.raises(ValueError, match=message):
        run.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=B)
    left = queue.kv_list(partition_id="train")["train"]
    queue.kv_clear(partition_id="train", keys=list(left))


@pytest.mark.parametrize(
    ("mode", "made", "wanted"),
    [
        ("sync", "SelectingReplayBufferAsync", "SelectingReplayBuffer"),
        ("separate_async", "SelectingReplayBuffer", "SelectingReplayBufferAsync"),
    ],
)
def test_a_buffer_of_another_mode_is_named(mode, made, wanted):
    from vade_jax.plugins import verl_replay

    with pytest.raises(ValueError, match=f"trainer_mode='{mode}'.* to {wanted}$"):
        getattr(verl_replay, made)(trainer_mode=mode)
