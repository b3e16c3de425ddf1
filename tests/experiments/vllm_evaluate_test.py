"""An evaluation through the real vLLM answers as the built-in engine does: `make test-vllm`."""

import json

import pytest

from configs import eval_paper
from experiments import evaluate, make_tiny
from tests.evals.benchmarks import files

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny") / "model"
    make_tiny.make(directory, 0)
    return str(directory)


def answers(model, engine, root):
    """Returns the greedy answers to two benchmarks, by uid."""
    c = eval_paper.get_config()
    questions = ("How many dots?", "Is it red?", "What colour is the square?")
    rows = {
        "chartqa": [files.chartqa(question=question) for question in questions],
        "scienceqa": [files.scienceqa(), files.scienceqa(answer=0)],
    }
    for name, of in rows.items():
        c.benchmarks[name] = str(files.save(root / f"{name}.parquet", *of))
    c.model.checkpoint, c.judge.rules = model, True
    c.data.min_pixels, c.data.max_pixels = 3136, 112 * 112
    c.data.max_prompt_length = 512
    c.engine.name = engine
    if engine != "local":
        c.engine.options = dict(max_num_seqs=16)
    workdir = root / engine
    evaluate.main(c, str(workdir))
    found = {}
    for path in workdir.rglob("answers.jsonl"):
        for line in path.read_text().splitlines():
            answer = json.loads(line)
            found[path.parent.name, answer["uid"], answer["sample"]] = answer["text"]
    return found


def test_greedy_answers_are_those_of_the_built_in_engine(model, tmp_path):
    local, served = (answers(model, e, tmp_path) for e in ("local", "vllm_server"))
    assert len(local) >= 5 and len(set(local.values())) > 1
    assert served == local
