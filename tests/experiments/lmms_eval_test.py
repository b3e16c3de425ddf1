"""The real lmms-eval asks our server; its answers and scores are those of our own evaluation.

LMMS_EVAL_PYTHON names the python of an environment with lmms-eval 0.7.3; it needs no network.
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

from experiments import serve
from tests.evals.benchmarks import files
from tests.experiments import evaluate_test, serve_test
from vade_jax.evals import results

tiny, random = evaluate_test.tiny, serve_test.random
PYTHON = os.environ.get("LMMS_EVAL_PYTHON", "")
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
CHARTQA = dict(
    name="chartqa",
    short="chartqa",
    target="answer",
    metric="relaxed_overall",
    prompt="Answer the question with a single word.",
)
SCIENCEQA = dict(
    name="scienceqa",
    short="sqa",
    target="!function rules.sqa_doc_to_target",
    metric="exact_match",
    prompt="Answer with the option's letter from the given choices directly.",
)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="LMMS_EVAL_PYTHON names no python with lmms-eval"
    ),
]


def picture(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (100, 60 + 20 * seed, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": f"{seed}.png"}


def save(path, rows):
    """Writes rows as published files are: their metadata says which column is an image."""
    text = {"dtype": "string", "_type": "Value"}
    kinds = {
        "image": {"_type": "Image"},
        "choices": {"feature": text, "_type": "List"},
        "answer": {"dtype": "int64", "_type": "Value"},
    }
    if isinstance(rows[0]["answer"], str):
        del kinds["answer"]
    features = {name: kinds.get(name, text) for name in rows[0]}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.Table.from_pylist(rows).replace_schema_metadata(metadata)
    parquet.write_table(table, path)
    return str(path)


def evaluated(server, data, workdir):
    """Returns the text of each answer and the accuracy, by our own evaluation."""
    c = evaluate_test.wanted(data, *data)
    c.server.url, c.server.model = server.url, "policy"
    code, printed = evaluate_test.run(c, workdir)
    assert code == 0, printed
    said = {
        name: [
            row["text"] for row in evaluate_test.lines(workdir / name / "items.jsonl")
        ]
        for name in data
    }
    correct = {
        name: results.load(workdir / name / "result.json").correct_MG for name in data
    }
    return said, {name: float(found_MG.mean()) for name, found_MG in correct.items()}


def lmms_eval(server, data, root):
    """Returns the same of lmms-eval, of its log of samples and the scores that it prints."""
    (root / "rules.py").write_text(RULES)
    for task in (CHARTQA, SCIENCEQA):
        yaml = TASK.format(**task, path=data[task["name"]])
        (root / f"{task['name']}.yaml").write_text(yaml)
    done = subprocess.run(
        [
            *(PYTHON, "-u", "-m", "lmms_eval", "--model", "openai", "--model_args"),
            f"model_version=policy,base_url={server.url}/v1,num_concurrent=4,timeout=600",
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
    for task in (CHARTQA, SCIENCEQA):
        name = task["name"]
        (log,) = (root / "out").rglob(f"*samples_local_{name}.jsonl")
        samples = sorted(evaluate_test.lines(log), key=lambda row: row["doc_id"])
        said[name] = [row["filtered_resps"] for row in samples]
        printed = rf"local_{name}\s*\|.*\|{task['metric']}\s*\|[^|]*\|\s*([\d.]+)\|"
        scores[name] = float(re.search(printed, done.stdout)[1])
    return said, scores


def test_lmms_eval_gets_the_answers_and_scores_of_our_evaluation(random, tmp_path):
    rows = {
        "chartqa": [
            files.chartqa(question=question, image=picture(i), answer="?")
            for i, question in enumerate(QUESTIONS)
        ],
        "scienceqa": [
            files.scienceqa(question=question, image=picture(i))
            for i, question in enumerate(QUESTIONS)
        ],
    }
    write = lambda: {n: save(tmp_path / f"{n}.parquet", r) for n, r in rows.items()}
    with serve.serving(serve_test.config(random)) as server:
        said, _ = evaluated(server, write(), tmp_path / "first")
        assert len(set(said["chartqa"])) == len(QUESTIONS)
        for i in (0, 2, 3):  # three of four are right by their own words
            rows["chartqa"][i]["answer"] = said["chartqa"][i]
        data = write()
        ours = evaluated(server, data, tmp_path / "ours")
        theirs = lmms_eval(server, data, tmp_path)
    stripped = {name: [text.strip() for text in said[name]] for name in said}
    assert ours[0] == said and theirs[0] == stripped  # its log has no outer spaces
    assert ours[1] == theirs[1]
    assert ours[1]["chartqa"] == 0.75
