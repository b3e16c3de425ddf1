"""A checkpoint's answers are the same from the built-in engine and from vLLM: `make test-vllm`.

vLLM is started by the evaluation, or stands by itself as `vllm serve` and is asked over HTTP, by our
evaluation and by lmms-eval.

LMMS_EVAL_PYTHON names the python of an environment with lmms-eval 0.7.3; without it the last test
is skipped. Nothing needs a network.
"""

import io
import json
import os
import re
import subprocess

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from configs import eval_paper
from experiments import evaluate
from experiments.evals import results
from tests.experiments.evals.benchmarks import files as published
from tests.models.qwen import oracle
from tests.rollout.vllm import process_test
from vade_jax.models.qwen import files, tiny_checkpoint, weights
from vade_jax.rollout.vllm import process

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

LMMS_EVAL = os.environ.get("LMMS_EVAL_PYTHON", "")
MIN_PIXELS, MAX_PIXELS = 3136, 112 * 112
QUESTIONS = (
    "How many?",
    "What colour is it?",
    "Which is larger?",
    "How many are left?",
)
RULES = """\
from lmms_eval.tasks.chartqa.utils import *
from lmms_eval.tasks.scienceqa.utils import *
"""
TASK = """\
task: local_{name}
dataset_path: parquet
dataset_kwargs: {{data_files: {{test: {path}}}}}
test_split: test
output_type: generate_until
doc_to_visual: !function rules.{short}_doc_to_visual
doc_to_text: !function rules.{short}_doc_to_text
doc_to_target: {target}
process_results: !function rules.{short}_process_results
generation_kwargs: {{max_new_tokens: 16, temperature: 0, do_sample: false}}
metric_list: [{{metric: {metric}, aggregation: mean, higher_is_better: true}}]
lmms_eval_specific_kwargs:
  default: {{format: default, pre_prompt: "", post_prompt: "\\n{prompt}"}}
"""
TASKS = {
    "chartqa": dict(
        short="chartqa",
        target="answer",
        metric="relaxed_overall",
        prompt="Answer the question with a single word.",
    ),
    "scienceqa": dict(
        short="sqa",
        target="!function rules.sqa_doc_to_target",
        metric="exact_match",
        prompt="Answer with the option's letter from the given choices directly.",
    ),
}


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


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    """The URL of vLLM's own server, started as docs/evaluation.md says; the model is "policy".

    `launch` runs the module behind `vllm serve`: the CPU build's script does not start.
    """
    server = process.launch(
        model,
        options={
            "served_model_name": "policy",
            "mm_processor_kwargs": {"min_pixels": MIN_PIXELS, "max_pixels": MAX_PIXELS},
            "max_model_len": 512,
            "max_num_seqs": 16,
        },
        log_path=tmp_path_factory.mktemp("served") / "vllm.log",
    )
    try:
        process_test.wait(server, 600)
        yield server.url
    finally:
        server.stop()


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
    """Writes rows as published files are: their metadata says which column is an image."""
    text = {"dtype": "string", "_type": "Value"}
    kinds = {
        "image": {"_type": "Image"},
        "choices": {"feature": text, "_type": "List"},
    }
    root.mkdir()
    for name, of in rows.items():
        answer = text if name == "chartqa" else {"dtype": "int64", "_type": "Value"}
        found = kinds | {"answer": answer}
        features = {column: found.get(column, text) for column in of[0]}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = pa.Table.from_pylist(of).replace_schema_metadata(metadata)
        parquet.write_table(table, root / f"{name}.parquet")
    return {name: str(root / f"{name}.parquet") for name in rows}


def evaluated(data, workdir, *, model="", engine="local", url=""):
    """Returns the greedy answers of each benchmark and the accuracies of our own evaluation."""
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
    said, accuracy = {}, {}
    for name in data:
        items = (workdir / name / "items.jsonl").read_text().splitlines()
        # vLLM's server keeps the bytes back that are no character yet when an answer ends.
        said[name] = [json.loads(line)["text"].rstrip("\ufffd") for line in items]
        correct_MG = results.load(workdir / name / "result.json").correct_MG
        accuracy[name] = float(correct_MG.mean())
    return said, accuracy


@pytest.fixture(scope="module")
def expected(model, rows, tmp_path_factory):
    """The built-in engine's own answers."""
    root = tmp_path_factory.mktemp("local")
    said, _ = evaluated(save(root / "data", rows), root / "out", model=model)
    assert len(set(said["chartqa"])) == len(QUESTIONS)
    return said


def test_a_vllm_that_the_evaluation_starts(model, rows, expected, tmp_path):
    data = save(tmp_path / "data", rows)
    said, _ = evaluated(data, tmp_path / "out", model=model, engine="vllm_server")
    assert said == expected


def test_a_vllm_that_stands_by_itself(served, rows, expected, tmp_path):
    said, _ = evaluated(save(tmp_path / "data", rows), tmp_path / "out", url=served)
    assert said == expected


@pytest.mark.skipif(not LMMS_EVAL, reason="LMMS_EVAL_PYTHON names no python")
def test_lmms_eval_has_the_answers_and_scores_of_our_evaluation(served, rows, expected, tmp_path):
    # Right by their own words are those that its stripping of outer spaces leaves alone.
    own = [
        row | {"answer": text} if text == text.strip() else row
        for row, text in zip(rows["chartqa"], expected["chartqa"], strict=True)
    ]
    data = save(tmp_path / "data", rows | {"chartqa": own})
    said, accuracy = evaluated(data, tmp_path / "ours", url=served)
    stripped = {name: [text.strip() for text in said[name]] for name in said}
    assert lmms_eval(served, data, tmp_path) == (stripped, accuracy)
    assert accuracy["chartqa"] == 0.5


def lmms_eval(url, data, root):
    """Returns what `evaluated` returns, of its log of samples and the scores that it prints."""
    (root / "rules.py").write_text(RULES)
    for name, task in TASKS.items():
        yaml = TASK.format(name=name, path=data[name], **task)
        (root / f"{name}.yaml").write_text(yaml)
    done = subprocess.run(
        [
            *(LMMS_EVAL, "-u", "-m", "lmms_eval", "--model", "openai", "--model_args"),
            f"model_version=policy,base_url={url}/v1,num_concurrent=4,timeout=600",
            *("--tasks", "local_chartqa,local_scienceqa", "--include_path", str(root)),
            *("--output_path", str(root / "out"), "--log_samples"),
        ],
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(root / "hf"), "OPENAI_API_KEY": "no"},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    print(done.stdout[-3000:])
    said, scores = {}, {}
    for name, task in TASKS.items():
        (log,) = (root / "out").rglob(f"*samples_local_{name}.jsonl")
        samples = [json.loads(line) for line in log.read_text().splitlines()]
        samples.sort(key=lambda row: row["doc_id"])
        said[name] = [row["filtered_resps"] for row in samples]
        printed = rf"local_{name}\s*\|.*\|{task['metric']}\s*\|[^|]*\|\s*([\d.]+)\|"
        scores[name] = float(re.search(printed, done.stdout)[1])
    return said, scores
