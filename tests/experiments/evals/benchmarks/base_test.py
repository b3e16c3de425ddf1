"""Each published schema is read; broken pictures are named by file, row and column."""

import numpy as np
import pytest

from experiments.evals.benchmarks import BENCHMARKS, PAPER
from tests.experiments.evals.benchmarks import files

MAKE = {
    "mathvista": lambda n: files.mathvista(str(n)),
    "mathverse": lambda n: files.mathverse(str(n)),
    "mathvision": lambda n: files.mathvision(str(n)),
    "scienceqa": lambda n: files.scienceqa(question=f"What colour {n}?"),
    "chartqa": lambda n: files.chartqa(question=f"How many {n}?"),
}
IMAGE = {"mathvista": "decoded_image", "mathvision": "decoded_image"}


def read(name, path):
    return BENCHMARKS[name].read(path)


def test_the_five_of_the_paper():
    assert tuple(MAKE)[:5] == PAPER
    assert [BENCHMARKS[n].num_items for n in PAPER] == [1000, 3940, 3040, 2017, 2500]
    assert [bool(BENCHMARKS[n].judge) for n in PAPER] == [True, True, *[False] * 3]
    protocols = [BENCHMARKS[n].paper for n in PAPER]
    assert [p.num_samples for p in protocols] == [4, 4, 4, 1, 1]
    assert [p.max_tokens for p in protocols] == [2048, 2048, 2048, 16, 16]


@pytest.mark.parametrize("name", MAKE)
def test_shards_of_parquet(tmp_path, name):
    for shard in range(2):
        path = tmp_path / f"test-{shard:05d}-of-00002-abc{shard}.parquet"
        files.save(path, *[MAKE[name](10 * shard + i) for i in range(2)])
    items = read(name, tmp_path)
    assert len({item.uid for item in items}) == 4
    assert all(uid.startswith(f"{name}:") for uid in {item.uid for item in items})
    assert all(item.images[0].size == (40, 30) for item in items)
    files.save(tmp_path / "train-00000-of-00001.parquet", MAKE[name](99))
    with pytest.raises(ValueError, match=r"holds test-.*train-.*: name one of them"):
        read(name, tmp_path)


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize("name", MAKE)
def test_json_with_pictures_beside_the_file(tmp_path, name, suffix):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(files.picture())
    row = MAKE[name](1) | {"image": "images/a.png"}
    row.pop("decoded_image", None)  # the JSON files have paths only
    (item,) = read(name, files.save(tmp_path / f"a.{suffix}", row))
    assert np.asarray(item.images[0]).shape == (30, 40, 3)


@pytest.mark.parametrize("name", MAKE)
def test_truncated_images_are_counted_and_named(tmp_path, name):
    broken = files.struct(files.picture("JPEG", size=(200, 200))[:-300])
    column = IMAGE.get(name, "image")
    rows = [MAKE[name](i) | ({column: broken} if i % 2 else {}) for i in range(5)]
    path = files.save(tmp_path / "a.parquet", *rows)
    with pytest.raises(ValueError, match=f"2 of 5 rows are bad: a.*row 1, column {column}.*row 3"):
        read(name, path)
