"""Supervised steps: what is taught, what learns, and the model directory that they leave."""

import json
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import my_data, tiny_gspo
from experiments import supervise, warm_start
from experiments.warm_start import Lessons
from vade_jax import settings
from vade_jax.data import tokens
from vade_jax.models.qwen import files
from vade_jax.run import build, datasets

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def config(small_checkpoint, tmp_path):
    """The config of a run on 14 rows: two are held out, and of the others one has too long an answer."""
    rows = [{"question": f"Which is {i}?", "answer": str(i % 10)} for i in range(13)]
    rows.append({"question": "How long is this?", "answer": "1234567890123"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    c = my_data.get_config()
    c.model.preset, c.model.checkpoint = "", str(small_checkpoint)
    c.data.train, c.data.validation_share = str(tmp_path / "rows.jsonl"), 0.15
    c.sampling.max_tokens = 8
    return c


def taught(config, directory, **lessons):
    """Returns the parameters before and after, by path."""
    lessons = {"num_steps": 2, "batch_size": 4, "learning_rate": 0.02} | lessons
    supervise.main(config, str(directory), ConfigDict(lessons))
    return [files.load(path)[1] for path in (config.model.checkpoint, directory)]


def moved(before, after):
    return jax.tree.map(lambda a, b: np.abs(a - b).max(), before, after)


def test_rows_make_a_model_directory_which_says_what_it_was_made_from(
    config, small_checkpoint, tmp_path, capsys
):
    taught(config, tmp_path / "taught")
    said = capsys.readouterr().out
    assert "11 of 12 rows have an answer of up to 8 tokens" in said
    made = tmp_path / "taught"
    assert said.endswith(f"in {made}\n")
    assert {x.name for x in made.iterdir()} == {x.name for x in small_checkpoint.iterdir()}
    assert tokens.Tokenizer.load(made).pixels == (config.data.min_pixels, config.data.max_pixels)
    files.check(made)
    stamp = (made / "model.safetensors").stat().st_mtime_ns
    taught(config, made)
    assert capsys.readouterr().out.endswith(f"{made} is there already\n")
    for change in ({"num_steps": 3}, {"data": "procedural"}):
        with pytest.raises(SystemExit):
            taught(config, made, **change)
        assert f"{made} was made with other settings (" in capsys.readouterr().err
    with open(tmp_path / "rows.jsonl", "a") as file:
        file.write('{"question": "One more?", "answer": "1"}\n')
    with pytest.raises(SystemExit):
        taught(config, made)
    assert "rows: " in capsys.readouterr().err
    assert (made / "model.safetensors").stat().st_mtime_ns == stamp
    (made / "config.json").unlink()  # a directory that was not completed is made again
    taught(config, made)
    files.check(made)


def test_what_rl_trains_learns(config, tmp_path):
    config.lora.update(rank=4, targets="proj$")
    found = moved(*taught(config, tmp_path / "adapter"))
    assert found["text"]["layers"]["mlp"]["up"]["kernel"] > 1e-4
    assert found["vision"]["blocks"]["qkv"]["kernel"] == found["embedding"] == 0


def test_each_pass_has_every_row_once_and_none_that_is_held_out(config, tmp_path):
    config.reward.format, config.sampling.max_tokens = "think_boxed", 32
    run = settings.Run.from_dict(config.to_dict())
    data = datasets.load(run.data, run.model.checkpoint, str(tmp_path), seed=0, reward=run.reward)
    assert Lessons().are_rows(run) and not Lessons(data="procedural").are_rows(run)
    lessons = warm_start._rows(run, data.train, data.build_prompt)
    passes = [[next(lessons) for _ in range(len(data.train))] for _ in range(2)]
    first, second = ([item.uid for item, _ in one] for one in passes)
    assert first != second and sorted(first) == sorted(second) == sorted(x.uid for x in data.train)
    assert data.validation and not {x.uid for x in data.validation} & {*first}
    tokenizer = data.build_prompt.tokenizer
    for item, ids in passes[0]:
        assert ids.pop() == tokenizer.im_end
        assert tokenizer.decode(ids) == f"<think>\n\n</think>\n\n\\boxed{{{item.answer}}}"


def batches(config, lessons):
    run = settings.Run.from_dict(config.to_dict())
    policy = build.load_policy(run, run.model.checkpoint)
    rows = None
    if lessons.are_rows(run):
        rows = datasets.load(run.data, run.model.checkpoint, ".", seed=run.seed, reward=run.reward)
        rows = rows.train.teachable(8)
    return list(warm_start._batches(run, lessons, policy, rows))


@pytest.fixture
def built_in(small_checkpoint):
    c = tiny_gspo.get_config("smoke")
    c.model.preset, c.model.checkpoint = "", str(small_checkpoint)
    return c


def test_built_in_questions_are_new_every_step(built_in):
    found = batches(built_in, Lessons(num_steps=3, batch_size=4))
    assert [batch.mask_NT.shape[:2] for batch in found] == [(1, 4)] * 3
    assert len({batch.prompts.images.patch_BWSE.tobytes() for batch in found}) == 3


def test_it_learns_from_the_command_line(small_checkpoint, tmp_path):
    """The likelihood of answers of two kinds rises; the teacher errs in one of them."""
    command = [
        *(sys.executable, "-m", "experiments.supervise", "--config=configs/tiny_gspo.py:smoke"),
        *("--config.model.preset=", f"--config.model.checkpoint={small_checkpoint}"),
        *(f"--directory={tmp_path / 'taught'}", "--lessons.num_steps=6", "--lessons.batch_size=4"),
        *("--lessons.learning_rate=3e-3", "--lessons.mixture={'color_0': 1, 'hidden_0': 1.0}"),
        "--lessons.noise={'color_0': 0.5}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stderr.rsplit("loss=", 1)[1].split("]")[0]) < 6.0  # log 512 is 6.2
    before, after = (files.load(path)[1] for path in (small_checkpoint, tmp_path / "taught"))
    assert moved(before, after)["embedding"] > 0
    made_from = json.loads((tmp_path / "taught.start" / "config.json").read_text())
    assert made_from["lessons"]["mixture"] == {"color_0": 1, "hidden_0": 1}
