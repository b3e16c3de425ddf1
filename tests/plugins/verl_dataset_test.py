"""The selector in verl's data set: its own loader, DataProto and checkpoint file around it."""

import importlib.util
import json

import numpy as np
import pytest

from vade_jax.selector import Selector

pytestmark = [
    pytest.mark.plugins,
    pytest.mark.skipif(not importlib.util.find_spec("verl"), reason="needs verl"),
]
B, G, NUM_ROWS = 4, 3, 14
IDS = [f"row-{5 * i % NUM_ROWS}" for i in range(NUM_ROWS)]
PATH = "pkg://vade_jax.plugins.verl_dataset"


def write(path, ids):
    """Writes a file as verl's examples have it, the id as the ground truth too."""
    rows = [
        {
            "id": name,
            "data_source": "test",
            "prompt": [{"role": "user", "content": f"question {name}"}],
            "reward_model": {"style": "rule", "ground_truth": name},
            "extra_info": {"index": i % 7, "key": f"{name}!", "rate": i / NUM_ROWS},
        }
        for i, name in enumerate(ids)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def config(folder, ids=IDS, selector=None, **changes):
    from omegaconf import OmegaConf

    given = dict(
        train_files=write(folder / "train.jsonl", ids),
        val_files=write(folder / "val.jsonl", ["v0", "v1", "v2"]),
        train_batch_size=B,
        dataloader_num_workers=0,
        shuffle=True,
        seed=1,
        cache_dir=str(folder / "cache"),
        filter_overlong_prompts=False,
        custom_cls={"path": PATH, "name": "SelectingDataset"},
        selector={"num_rollouts": G} | (selector or {}),
    )
    return OmegaConf.create(given | changes)


def dataset(data, files=None):
    from verl.trainer.ppo.utils import create_rl_dataset

    return create_rl_dataset(files or data.train_files, data, None, None)


def loader(data, rows, batch_size=B):
    """The loader that verl's trainers make."""
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.trainer.ppo.utils import create_rl_sampler
    from verl.utils.dataset.rl_dataset import collate_fn

    return StatefulDataLoader(
        dataset=rows,
        batch_size=batch_size,
        num_workers=0,
        drop_last=True,
        collate_fn=collate_fn,
        sampler=create_rl_sampler(data, rows),
    )


def ids_of(batch_dict):
    return [extra["selector_id"] for extra in batch_dict["extra_info"]]


def assert_same_state(first, second):
    first, second = first.state_dict(), second.state_dict()
    assert first["selections"] == second["selections"]
    for name, value in first["state"].items():
        np.testing.assert_array_equal(second["state"][name], value)


def test_parts_of_a_batch_are_one_observation_and_wait_in_the_checkpoint(tmp_path):
    """As separate_async samples it; each part would let all other rows decay."""
    data = config(tmp_path)
    rows, again, selector = dataset(data), dataset(data), Selector(IDS, seed=0, num_rollouts=G)
    ids = [rows[i]["extra_info"]["selector_id"] for i in range(B)]
    assert ids == selector.select(B)
    rows.learn(ids[:1] * G, [1.0] + [0.0] * (G - 1), full=False)
    again.load_state_dict(rows.state_dict())
    again.learn(ids[1:] * G, [1.0] * (B - 1) * G, full=False)
    selector.observe(ids, [1] + [G] * (B - 1), G)
    assert_same_state(again.stream.selector, selector)


def test_another_threshold_nested_ids_categories_and_a_prior(tmp_path):
    options = {"threshold": 0.0, "id_column": "extra_info.key", "seed": 4, "name": "pooled"}
    options |= {"category_column": "extra_info.index", "pass_rate_column": "extra_info.rate"}
    data = config(tmp_path, selector=options | {"options": {"decay_rest": 0.9}})
    rows = dataset(data)
    rates = [i / NUM_ROWS for i in range(NUM_ROWS)]
    arrays = {"category": [i % 7 for i in range(NUM_ROWS)], "pass_rate": rates}
    arguments = {"decay_rest": 0.9, "arrays": arrays}
    selector = Selector([f"{x}!" for x in IDS], "pooled", seed=4, num_rollouts=G, **arguments)
    batch_dict = next(iter(loader(data, rows)))
    ids = selector.select(B)
    assert ids_of(batch_dict) == ids
    acc_N = [1, -1, 1, -1, -1, -1, 1, 1, 1, float("nan"), 1, -1]
    rows.learn(np.repeat(ids, G), acc_N)
    selector.observe(ids, [2, 0, 3, 1], [3, 3, 3, 2])
    assert_same_state(rows.stream.selector, selector)


@pytest.mark.parametrize("batch_size", [B, 1])
@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_resumed_run_chooses_what_the_whole_one_did(tmp_path, batch_size, stop):
    """`data.pt` is written after `stop` batches: in and at the end of an epoch of three."""
    import torch

    def batches(rows, made):
        while True:
            for batch_dict in made:
                rows.learn(ids_of(batch_dict), np.arange(batch_size) % 2)
                yield ids_of(batch_dict)

    data = config(tmp_path)
    rows = dataset(data)
    made = loader(data, rows, batch_size)
    run = batches(rows, made)
    for _ in range(stop):
        next(run)
    torch.save(made.state_dict(), tmp_path / "data.pt")
    expected = [next(run) for _ in range(6)]

    again = dataset(data)
    loaded = loader(data, again, batch_size)
    loaded.load_state_dict(torch.load(tmp_path / "data.pt", weights_only=False))
    run = batches(again, loaded)
    assert [next(run) for _ in range(6)] == expected


def test_validation_is_left_alone(tmp_path):
    from verl.utils.dataset.rl_dataset import RLHFDataset

    data = config(tmp_path)
    rows, validation = dataset(data), dataset(data, data.val_files)
    plain = RLHFDataset(data.val_files, None, data)
    assert [validation[i]["id"] for i in range(3)] == ["v0", "v1", "v2"]
    assert [validation[i] for i in range(3)] == [plain[i] for i in range(3)]
    assert len(rows) == NUM_ROWS and type(rows).training is rows
    assert rows.stream.selector.state_dict()["selections"] == 0
    assert validation.state_dict() == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataloader_num_workers": 8}, "data.dataloader_num_workers=8: set it to 0"),
        ({"selector": {"name": "diva"}}, "diva"),
        ({"ids": ["a"] * 5}, "items: 5 ids, 1 of them"),
    ],
)
def test_mistakes_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        dataset(config(tmp_path, **changes))


def test_a_loop_that_never_answers_is_named(tmp_path):
    rows = dataset(config(tmp_path))
    with pytest.raises(RuntimeError, match="no reward came back"):
        for _ in range(B * 64 + 1):
            rows[0]


def test_a_row_whose_answers_all_failed_was_chosen_without_a_verdict(tmp_path):
    """No answer of it is in the sample of verl, from which the selector would hear of it."""
    data = config(tmp_path, selector={"name": "kalman"})
    rows, selector = dataset(data), Selector(IDS, "kalman", num_rollouts=G)
    for _ in range(3):
        ids = ids_of(next(iter(loader(data, rows))))
        assert ids == selector.select(B)
        rows.learn(np.repeat(ids[1:], G), [1.0, 0, 0] * (B - 1))
        selector.observe([*ids[1:], ids[0]], [1] * (B - 1) + [0], [G] * (B - 1) + [0])
    assert_same_state(rows.stream.selector, selector)
