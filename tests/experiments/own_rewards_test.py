"""docs/rewards.md as a user would follow it: its files, and a judge in training."""

import ast
import contextlib
import pathlib
import re
import shlex

import numpy as np
import pytest

from experiments import train
from tests.experiments import train_test
from tests.http_server import ScriptedChat, said
from vade_jax.rewards import process
from vade_jax.store import metrics, rollout_log

DOC = pathlib.Path(__file__).parents[2] / "docs" / "rewards.md"


class Server(ScriptedChat):
    """A judge that likes every answer with an even number of characters."""

    model = "Qwen/Qwen2.5-72B-Instruct"

    def __init__(self):
        super().__init__(self.judge, model=self.model)

    def judge(self, body):
        answer = re.search(r"Student: (.*)\n\nDoes", said(body), re.DOTALL)[1]
        return "no" if len(answer) % 2 else "yes"


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


@pytest.fixture
def files(tmp_path, server, monkeypatch):
    """The files of the page, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = DOC.read_text()
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        pathlib.Path(name).write_text(code.replace("http://localhost:8000", server.url))
    made = sorted(path.stem for path in tmp_path.glob("*.py"))
    assert made == ["my_judge", "my_rewards", "verifier"]
    process.close()  # the next one has this directory
    yield tmp_path
    process.close()


def commands(module):
    """Returns the overrides of each command of the page, by field."""
    text, found = DOC.read_text().replace("\\\n", " "), []
    for line in re.findall(rf"-m experiments\.{module} (.*)", text):
        words = " ".join(word.replace(" ", "") for word in shlex.split(line))
        found.append({})
        for name, value in re.findall(r"--config\.reward\.(\w+)=(\S+)", words):
            with contextlib.suppress(SyntaxError, ValueError):
                value = ast.literal_eval(value)
            found[-1][name] = value
    return found


@pytest.fixture
def c(one_device, small_checkpoint, tmp_path):
    return train_test.smoke(1, small_checkpoint)  # whose programs are compiled


def test_the_judge_of_the_page_trains(c, files, server, capsys):
    (files / "wrong.py").write_text("def f(gold, **kwargs):\n    return gold\n")
    c.reward.function = "wrong.py:f"  # fails on a row before the first step
    line = train_test.fails(c, files / "run", capsys)
    assert "reward.function 'wrong.py:f': TypeError" in line and "'train-0-0'" in line
    c.reward.update(commands("train")[2])
    train.main(c, str(files / "judged"))
    printed = capsys.readouterr().out
    assert "on 4 rows: the data's own answers get " in printed
    assert "of them count as correct" in printed
    assert len(server.bodies) >= 16
    rows = rollout_log.read(rollout_log.path(files / "judged", 1))
    expected = [float(len(answer) % 2 == 0) for answer in rows["answer"]]
    assert rows["correct"] == rows["reward"] == expected
    assert 0 < np.mean(expected) < 1
    assert "val/validation/acc/mean@4" in metrics.read(files / "judged")[1]
