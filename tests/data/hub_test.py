"""Names on the hub, with its real libraries against a hub in a thread; pinned, cached, offline."""

import io
import os
import pathlib
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.hub_server import Hub
from vade_jax.data import hub

ROOT = pathlib.Path(__file__).parents[2]
SHA = "0123456789abcdef0123456789abcdef01234567"
PAGE = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: data/train-*}
  - {split: test, path: data/test-*}
---
"""


# ------------------------------------------------------------------------------ names
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen2.5-VL-3B-Instruct", hub.Name("Qwen/Qwen2.5-VL-3B-Instruct")),
        ("a/b@v1.0:train", hub.Name("a/b", "", "v1.0", "train")),
        ("openai/gsm8k/main:test", hub.Name("openai/gsm8k", "main", "", "test")),
        (f"a/b@{SHA}", hub.Name("a/b", revision=SHA)),
        (f"a/b@{SHA}:train", hub.Name("a/b", revision=SHA, split="train")),
    ],
)
def test_a_name_and_its_parts(text, name):
    assert hub.parse(text) == name and str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        *("procedural", "", "rows.jsonl", "data/rows.parquet", "/data/rows", "./data/rows"),
        *("../a/b", "~/a", "a/b/c/d", "a b/c", "configs/default.py/x/y"),
    ],
)
def test_what_is_no_name(text):
    assert hub.parse(text) is None


def test_a_directory_that_is_here_is_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hub.parse("runs/mine")
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    assert hub.parse("runs/mine") is None
    assert hub.model("runs/mine") == "runs/mine"


# ------------------------------------------------------------------------------ the real libraries
def rows(*questions):
    file, image = io.BytesIO(), {"bytes": b"png", "path": "a.png"}
    row = {"answer": "7", "images": [image]}
    parquet.write_table(pa.Table.from_pylist([{"problem": q} | row for q in questions]), file)
    return file.getvalue()


def data(*train):
    return {
        "README.md": PAGE.encode(),
        "data/train-00000-of-00001.parquet": rows(*train),
        "data/test-00000-of-00001.parquet": rows("t"),
    }


def ask(tmp_path, code, url="http://127.0.0.1:9", **environment):
    """Returns what a program of its own prints with the hub at `url`, or its last line of errors."""
    environment = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "home")} | environment
    code = f"from vade_jax.data import hub, sources\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return done.stdout.strip()


MODEL = "import os; print(sorted(set(os.listdir(hub.model('a/m'))) - {'README.md'}))"
DATA = """
table = hub.table(hub.parse('a/d:{split}'), 'train')
rows = [table.read(i) for i in range(table.size)]
print([(row['problem'], row['images']) for row in rows])
"""


def test_a_model_is_fetched_once_and_then_needs_no_network(tmp_path):
    files = {"config.json": b"{}", "model.safetensors": b"12", "x.bin": b"1", "README.md": b""}
    with Hub(models={"a/m": files}) as server:
        assert ask(tmp_path, MODEL, server.url) == "['config.json', 'model.safetensors']"
        got = [path for method, path in server.log if method == "GET" and "resolve" in path]
        assert not any(path.endswith(".bin") for path in got)
    assert ask(tmp_path, MODEL, HF_HUB_OFFLINE="1") == "['config.json', 'model.safetensors']"


def test_data_of_a_split_and_of_a_commit(tmp_path):
    image = [{"bytes": b"png", "path": "a.png"}]
    with Hub(datasets={"a/d": data("q0", "q1")}) as server:
        both = DATA.format(split="train") + DATA.format(split="test")
        train, test = ask(tmp_path, both, server.url).splitlines()
        assert (train, test) == (str([("q0", image), ("q1", image)]), str([("t", image)]))
        assert "not a path here" in ask(tmp_path, DATA.format(split="nothing"), server.url)
        pinned = f"a/d@{server.commit('datasets', 'a/d')}:train"
        assert ask(tmp_path, f"print(len(sources.rows({pinned!r})))", server.url) == "2"
        server.repos["datasets", "a/d"] = data("other")  # a new commit
        assert ask(tmp_path, f"print(len(sources.rows({pinned!r})))", HF_HUB_OFFLINE="1") == "2"


def test_what_the_hub_does_not_have_is_one_clear_line(tmp_path):
    with Hub(models={"a/m": {"config.json": b"{}"}}) as server:
        get = lambda name, **where: ask(tmp_path, f"hub.model({name!r})", **where)
        line = get("runs/modle", url=server.url)
        assert line.startswith(
            "ValueError: runs/modle is not a path here, and as a name on the hub "
        )
        assert "RepositoryNotFoundError" in line
        assert "RevisionNotFoundError" in get("a/m@v9", url=server.url)
    for offline in ({}, {"HF_HUB_OFFLINE": "1"}):
        assert "b/new is not a path here" in get("b/new", **offline)
    missing = "import sys; sys.modules['huggingface_hub'] = None; hub.model('a/m')"
    assert "import of huggingface_hub halted" in ask(tmp_path, missing)
