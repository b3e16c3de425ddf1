"""Every case of the golden file: outputs observed from the public scorers."""

import json
import pathlib

import pytest

from vade_jax.evals.benchmarks import chartqa, mathvision, mathvista, scienceqa
from vade_jax.types import Item

GOLDEN = json.loads(pathlib.Path(__file__).with_name("golden_scorers.json").read_text())


def cases(name):
    return pytest.mark.parametrize("case", GOLDEN[name], ids=lambda c: str(c)[:60])


def item(answer, question="", **metadata):
    return Item(
        uid="",
        question=question,
        images=(),
        answer=answer,
        kind="text",
        metadata=metadata,
    )


@cases("chartqa")
def test_chartqa(case):
    asked = item(case["target"])
    extracted = chartqa.extract(case["pred"], asked)
    assert chartqa.score(extracted, asked) is case["correct"]


@cases("scienceqa")
def test_scienceqa(case):
    asked = item("ABC"[case["answer"]], choices=case["choices"])
    extracted = scienceqa.extract(case["pred"], asked)
    assert scienceqa.score(extracted, asked) is bool(case["correct"])


@pytest.mark.parametrize("hint", ["", "Grass."])
def test_scienceqa_prompt(hint):
    asked = item("", "What colour?", hint=hint, choices=["red", "green", "blue"])
    assert scienceqa.prompt(asked, "paper") == GOLDEN["scienceqa_prompt"][bool(hint)]


@cases("mathvista")
def test_mathvista(case):
    names = ("choices", "question_type", "answer_type", "precision")
    fields = {name: case[name] for name in names}
    assert mathvista.normalize(case["extraction"], **fields) == case["normalized"]
    asked = item(case["answer"], **fields)
    assert mathvista.score(case["extraction"], asked) is case["correct"]


@cases("mathvision_official")
def test_mathvision(case):
    asked = item(case["answer"], options=case["options"])
    assert mathvision.extract(case["response"], asked) == case["extracted"]
    assert mathvision.score(case["extracted"], asked) is case["correct"]


@cases("mathvision_lmms_eval_0.7.3")
def test_mathvision_of_the_harness(case):
    scorer, asked = mathvision.LMMS_EVAL, item(case["answer"], options=case["options"])
    extracted = scorer.extract(case["response"], asked)
    assert scorer.score(extracted, asked) is case["correct"]


@pytest.mark.parametrize("options", [[], ["1", "2", "3", "4", "5"]])
def test_mathvision_prompt_of_the_harness(options):
    asked = item("", "How many?\n<image1>", options=options)
    golden = GOLDEN["mathvision_prompt"][bool(options)]
    assert mathvision.LMMS_EVAL.prompt(asked, "paper") == golden


def test_all_cases_are_there():
    assert [len(found) for found in GOLDEN.values()] == [22, 12, 2, 19, 2, 17, 23]
