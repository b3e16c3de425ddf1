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
        ("Qwen/Qwen2.5-VL-3B-Instruct", hub.Name("Qwen/Qwen2.5-VL-3B-Instruct", None, None, None)),
        ("a/b@v1.0:train", hub.Name("a/b", None, "v1.0", "train")),
        ("openai/gsm8k/main:test", hub.Name("openai/gsm8k", "main", None, "test")),
        (f"a/b@{SHA}:train", hub.Name("a/b", None, SHA, "train")),
    ],
)
def test_a_name_and_its_parts(text, name):
    assert hub.parse(text) == name


def test_a_path_or_a_plain_word_is_not_a_name(tmp_path, monkeypatch):
    for text in ("procedural", "", "data/rows.parquet", "/data/rows", "./a", "~/a", "a/b/c/d"):
        assert hub.parse(text) is None
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


def ask(tmp_path, *expressions, url="http://127.0.0.1:9", before="", **environment):
    """Returns what a program of its own makes of expressions, or of each its last line of errors."""
    environment = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "home")} | environment
    code = (
        "import os, sys\n" + before + "\n"
        "from vade_jax.data import hub, sources\n"
        "rows = lambda table: [table.read(i) for i in range(table.size)]\n"
        f"for x in {expressions!r}:\n"
        "    try:\n        print(eval(x))\n"
        "    except ValueError as error:\n        print(str(error).splitlines()[-1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


MODEL = "sorted(set(os.listdir(hub.model('a/m'))) - {'README.md'})"
DATA = (
    "[(row['problem'], row['images']) for row in rows(hub.table(hub.parse('a/d:{}'), 'train')[0])]"
)


def test_a_model_and_data_of_a_commit_are_fetched_once_and_then_need_no_network(tmp_path):
    files = {"config.json": b"{}", "model.safetensors": b"12", "x.bin": b"1", "README.md": b""}
    expected = "['config.json', 'model.safetensors']"
    image = [{"bytes": b"png", "path": "a.png"}]
    with Hub(models={"a/m": files}, datasets={"a/d": data("q0", "q1")}) as server:
        name = f"a/d@{server.commit('datasets', 'a/d')}:train"
        asked = MODEL, f"len(sources.rows({name!r}))"
        splits = map(DATA.format, ("train", "test", "nothing"))
        *fetched, train, test, nothing = ask(tmp_path, *asked, *splits, url=server.url)
        assert fetched == [expected, "2"]
        got = [path for method, path in server.log if method == "GET" and "resolve" in path]
        assert not any(path.endswith(".bin") for path in got)
        assert (train, test) == (str([("q0", image), ("q1", image)]), str([("t", image)]))
        assert "not a path here" in nothing
        server.repos["datasets", "a/d"] = data("other")  # a new commit
        assert ask(tmp_path, *asked, HF_HUB_OFFLINE="1") == [expected, "2"]
