"""What each benchmark asks, reads in an answer, and counts as right.

The golden file has outputs observed from the public scorers.
"""

import json
import pathlib

import pytest

from experiments.evals.benchmarks import BENCHMARKS, mathvision, mathvista
from tests.experiments.evals.benchmarks import files
from vade_jax.types import Item

GOLDEN = json.loads(pathlib.Path(__file__).with_name("golden_scorers.json").read_text())


def cases(name):
    return pytest.mark.parametrize("case", GOLDEN[name], ids=lambda c: str(c)[:60])


def item(answer, question="", **metadata):
    return Item(uid="", question=question, images=(), answer=answer, kind="text", metadata=metadata)


def right(name, text, asked):
    scorer = BENCHMARKS[name]
    return scorer.score(scorer.extract(text, asked, "paper"), asked, "paper")


# ------------------------------------------------------------------------------ golden
@cases("chartqa")
def test_chartqa(case):
    assert right("chartqa", case["pred"], item(case["target"])) is case["correct"]


@cases("scienceqa")
def test_scienceqa(case):
    asked = item("ABC"[case["answer"]], choices=case["choices"])
    assert right("scienceqa", case["pred"], asked) is bool(case["correct"])


@cases("mathvista")
def test_mathvista(case):
    names = ("choices", "question_type", "answer_type", "precision")
    asked = item(case["answer"], **{name: case[name] for name in names})
    assert mathvista.normalize(case["extraction"], asked) == case["normalized"]
    assert mathvista.score(case["extraction"], asked) is case["correct"]


@cases("mathvision_official")
def test_mathvision(case):
    asked = item(case["answer"], options=case["options"])
    assert mathvision.extract(case["response"], asked) == case["extracted"]
    assert mathvision.score(case["extracted"], asked) is case["correct"]


@cases("mathvision_lmms_eval_0.7.3")
def test_mathvision_of_the_harness(case):
    asked = item(case["answer"], options=case["options"])
    assert right("mathvision_lmms_eval", case["response"], asked) is case["correct"]


# ------------------------------------------------------------------------------ prompts
def test_prompts(tmp_path):
    for golden, hint in zip(GOLDEN["scienceqa_prompt"], ("", "Grass."), strict=True):
        asked = item("", "What colour?", hint=hint, choices=["red", "green", "blue"])
        assert BENCHMARKS["scienceqa"].prompt(asked, "paper") == golden
    for golden, options in zip(GOLDEN["mathvision_prompt"], ("", "12345"), strict=True):
        asked = item("", "How many?\n<image1>", options=list(options))
        assert BENCHMARKS["mathvision_lmms_eval"].prompt(asked, "paper") == golden
    made = {name: files.item(tmp_path, name.split("_")[0]) for name in BENCHMARKS}
    direct = {name: BENCHMARKS[name].prompt(made[name], "paper") for name in BENCHMARKS}
    reasoned = {name: BENCHMARKS[name].prompt(made[name], "cot") for name in BENCHMARKS}
    assert direct["mathvista"] == files.mathvista()["query"]
    assert direct["mathverse"] == files.mathverse()["query_cot"]
    assert direct["chartqa"] == "How many?\nAnswer the question with a single word."
    official = f"{mathvision.INSTRUCTION}\nHow many?\n<image1>\n"
    listed = "(A) 1\n(B) 2\n(C) 3\n(D) 4\n(E) 5\n"
    assert direct["mathvision"] == reasoned["mathvision"] == official + listed
    for options in ([], list("ABCDE")):  # the picture says what letters stand for
        free = files.item(tmp_path, "mathvision", options=options)
        assert BENCHMARKS["mathvision"].prompt(free, "paper") == official
    for name in ("mathvista", "mathverse"):
        assert reasoned[name].startswith(direct[name] + "\n") and r"\boxed{}" in reasoned[name]
    for name in ("scienceqa", "chartqa"):
        question, _, instruction = direct[name].rpartition("\n")
        assert reasoned[name].startswith(question + "\n") and r"\boxed{}" in reasoned[name]
        assert instruction not in reasoned[name]


# ------------------------------------------------------------------------------ under cot
INTEGER = {"choices": None, "question_type": "free_form", "answer_type": "integer", "answer": "4"}


@pytest.mark.parametrize(
    ("name", "changes", "text", "extracted", "paper", "cot"),
    [
        ("chartqa", {}, r"So \boxed{10}", "10", False, True),
        ("chartqa", {"answer": "0.5"}, r"\boxed{50\%}", "50%", False, True),
        ("scienceqa", {}, r"\boxed{B}", "B", False, True),
        ("scienceqa", {}, r"\boxed{green}", "B", False, True),
        ("mathverse", {}, r"\boxed{B}", "B", None, True),
        ("mathverse", {}, r"\boxed{A}", "A", None, None),  # the judge is asked of differences
        ("mathvista", {}, r"So \boxed{B}", "B", None, True),
        ("mathvista", {}, r"\boxed{both}", None, None, None),
        ("mathvista", {}, "140°", "140°", True, True),
        ("mathvista", INTEGER, r"\boxed{4 apples}", None, None, None),
    ],
)
def test_boxes_count_under_cot_only(tmp_path, name, changes, text, extracted, paper, cot):
    scorer, asked = BENCHMARKS[name], files.item(tmp_path, name, **changes)
    assert scorer.extract(text, asked, "cot") == extracted
    for profile, expected in (("paper", paper), ("cot", cot)):
        found = scorer.extract(text, asked, profile)
        assert (None if found is None else scorer.score(found, asked, profile)) is expected


# ------------------------------------------------------------------------------ judges


def test_mathverse_is_extracted_from_the_last_words_and_judged_by_a_digit(tmp_path):
    asked, judge = files.item(tmp_path, "mathverse"), BENCHMARKS["mathverse"].judge
    prompt = judge.extraction_prompt(" ".join(map(str, range(100))), asked)
    last = " ".join(map(str, range(70, 100)))
    assert prompt.endswith(f"'{last}'\nExtracted Answer: ")
    assert prompt.count("Extracted Answer:") == 7 and asked.question not in prompt
    replies = ["Extracted Answer: B ", "null", "  "]
    assert [judge.read_extraction(r) for r in replies] == ["B", "null", None]
    replies = ["1", " 0\n", "Judgement: 1", "1.", "yes", "", "10"]
    expected = [True, False, True, None, None, None, None]
    assert [judge.read_judgement(reply) for reply in replies] == expected
