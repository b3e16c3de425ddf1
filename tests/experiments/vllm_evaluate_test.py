"""A checkpoint's answers are the same from the built-in engine and from vLLM: `make test-vllm`.

vLLM is started by the evaluation, or stands by itself as `vllm serve` and is asked over HTTP.
"""

import io
import json

import numpy as np
import pytest
from PIL import Image

from configs import eval_paper
from experiments import evaluate
from tests.experiments.evals.benchmarks import files as published
from tests.models.qwen import oracle
from vade_jax.models.qwen import files, tiny_checkpoint, weights

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

MIN_PIXELS, MAX_PIXELS = 3136, 112 * 112
QUESTIONS = ("How many?", "What colour is it?", "Which is larger?", "How many are left?")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny exported policy whose weights are so large that each question has its own answer."""
    directory = tmp_path_factory.mktemp("tiny") / "model"
    tiny_checkpoint.write(directory, 0)
    shape = files.load_config(directory)
    # With this seed no answer ends inside a character, which vLLM would leave out.
    tensors = oracle.random_tensors(shape, seed=19)
    files.save(directory, shape, weights.to_params(shape, tensors))
    return str(directory)


def picture(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (100, 60 + 20 * seed, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": f"{seed}.png"}


@pytest.fixture(scope="module")
def rows():
    return {
        name: [
            getattr(published, name)(question=question, image=picture(i), **more)
            for i, question in enumerate(QUESTIONS)
        ]
        for name, more in (("chartqa", {"answer": "?"}), ("scienceqa", {}))
    }


def save(root, rows):
    root.mkdir()
    return {name: published.save(root / f"{name}.parquet", *of) for name, of in rows.items()}


def evaluated(data, workdir, *, model="", engine="local", url=""):
    """Returns the greedy answers of each benchmark."""
    c = eval_paper.get_config()
    for name, path in data.items():
        c.benchmarks[name] = path
    c.judge.rules = True
    c.data.min_pixels, c.data.max_pixels = MIN_PIXELS, MAX_PIXELS
    c.model.checkpoint, c.engine.name = model, engine
    if engine != "local":
        c.engine.options = dict(max_num_seqs=16)
    if url:
        c.server.url, c.server.model = url, "policy"
    else:
        c.data.max_prompt_length = 256
    evaluate.main(c, str(workdir))
    said = {}
    for name in data:
        items = (workdir / name / "items.jsonl").read_text().splitlines()
        # vLLM's server keeps the bytes back that are no character yet when an answer ends.
        said[name] = [json.loads(line)["text"].rstrip("\ufffd") for line in items]
    return said


@pytest.fixture(scope="module")
def expected(model, rows, tmp_path_factory):
    """The built-in engine's own answers."""
    root = tmp_path_factory.mktemp("local")
    said = evaluated(save(root / "data", rows), root / "out", model=model)
    assert len(set(said["chartqa"])) == len(QUESTIONS)
    return said


def test_a_vllm_that_the_evaluation_starts(model, rows, expected, tmp_path):
    data = save(tmp_path / "data", rows)
    assert evaluated(data, tmp_path / "out", model=model, engine="vllm_server") == expected
