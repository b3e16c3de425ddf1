"""The command as a process: one line for a mistake, and a directory that a run reads."""

import json
import pathlib
import subprocess
import sys

import pytest

from experiments import build_data
from experiments.vade_9k import settings
from tests.experiments.vade_9k import build_test
from vade_jax import settings as run_settings
from vade_jax.data import loading
from vade_jax.models.qwen import tiny_tokenizer
from vade_jax.run import datasets

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A checkpoint, and a directory that the command has made of a subset and of rows of one's own."""
    root = tmp_path_factory.mktemp("published")
    build_test.write_all(root)
    tiny_tokenizer.build(root / "tokens", ["Find x."], 512)
    command = [sys.executable, "-m", "experiments.build_data", "--config=configs/vade_9k.py"]
    command += [
        f"--target={root / 'target'}",
        f"--source={root}",
        f"--checkpoint={root / 'tokens'}",
    ]
    command += [f"--config.subsets.{n}.path=" for n in settings.SUBSETS if n != "geo3k"]
    run = lambda *more: subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True)
    failed = run()
    assert failed.returncode == 2 and "has only 25 rows" in failed.stderr
    assert failed.stderr.count("\n") == 1
    made = run("--config.subsets.geo3k.take=9", "--config.own=('easy.parquet',)")
    assert made.returncode == 0, made.stderr
    assert "| all |" in made.stdout
    return str(root / "tokens"), root / "target"


def of_files(target, **data):
    """Returns the settings of a run on a built directory, in categories of subsets."""
    data |= {"train": str(target), "validation": str(target)}
    batch = {"prompts_per_minibatch": 4, "prompts_per_microbatch": 4}
    selector = {"arrays": {"category": "subset"}}
    return run_settings.Run.from_dict(
        {"num_prompts": 4, "batch": batch, "data": data, "selector": selector}
    )


def test_a_run_takes_both_splits_of_the_directory(built, tmp_path):
    checkpoint, target = built
    c = of_files(target, instruction="")
    with loading.Threads(2) as pool:
        data = datasets.load(c, checkpoint, str(tmp_path), pool.map)
    index = json.loads((target / "index.json").read_text())
    assert (len(index["train"]), len(index["validation"])) == (9, 1)
    for split in ("train", "validation"):
        found = getattr(data, split)
        assert [found[i].uid for i in range(len(found))] == [row["uid"] for row in index[split]]
    subsets = [row["subset"] for row in index["train"]]
    assert [data.train[i].metadata["subset"] for i in range(len(data.train))] == subsets
    assert data.arrays["category"].tolist() == [
        sorted(set(subsets)).index(name) for name in subsets
    ]


def test_a_run_that_can_use_no_row_says_why(built, tmp_path):
    checkpoint, target = built
    c = of_files(target, min_pixels=12544, max_pixels=12544)
    with pytest.raises(ValueError, match=r"none of its .*{'bad_image': .*at least 4 x"):
        datasets.load(c, checkpoint, str(tmp_path))


def test_a_stop_by_hand_is_one_line(tmp_path):
    for target, said in ((tmp_path / "out", "was not made"), (tmp_path, "is whole")):
        stopped = pytest.raises(SystemExit, match=rf"stopped, {target} {said}$")
        with stopped, build_data._stops(target):
            raise KeyboardInterrupt
