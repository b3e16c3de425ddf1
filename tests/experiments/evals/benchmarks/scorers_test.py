"""What each benchmark asks, reads in an answer, and counts as right.

The golden file has outputs observed from the public scorers; the tables below are its edges.
"""

import dataclasses
import json
import pathlib

import pytest

from experiments.evals.benchmarks import BENCHMARKS, mathverse, mathvision, mathvista
from tests.experiments.evals.benchmarks import files
from vade_jax.types import Item

GOLDEN = json.loads(pathlib.Path(__file__).with_name("golden_scorers.json").read_text())


def cases(name):
    return pytest.mark.parametrize("case", GOLDEN[name], ids=lambda c: str(c)[:60])


def item(answer, question="", **metadata):
    return Item(uid="", question=question, images=(), answer=answer, kind="text", metadata=metadata)


def right(name, text, asked, profile="paper"):
    scorer = BENCHMARKS[name]
    return scorer.score(scorer.extract(text, asked, profile), asked, profile)


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
        ("chartqa", {}, "10", "", True, False),
        ("scienceqa", {}, r"\boxed{B}", "B", False, True),
        ("scienceqa", {}, r"\boxed{A} or rather \boxed{\text{(B)}}", "B", False, True),
        ("scienceqa", {}, r"\boxed{b. green}", "b", False, True),
        ("scienceqa", {}, r"\boxed{green}", "B", False, True),
        ("scienceqa", {}, r"\boxed{greenish}", "greenish", False, False),
        ("scienceqa", {}, "B", "", True, False),
        ("mathverse", {}, r"\boxed{B}", "B", None, True),
        ("mathverse", {}, r"\boxed{A}", "A", None, None),  # the judge is asked of differences
        ("mathverse", {}, r"B \boxed{}", None, None, None),
        ("mathvista", {}, r"So \boxed{B}", "B", None, True),
        ("mathvista", {}, r"\boxed{140^\circ}", "140°", None, True),
        ("mathvista", {}, r"\boxed{both}", None, None, None),
        ("mathvista", {}, "140°", "140°", True, True),
        ("mathvista", INTEGER, r"\boxed{4}", "4", None, True),
        ("mathvista", INTEGER, r"\boxed{4 apples}", None, None, None),
    ],
)
def test_boxes_count_under_cot_only(tmp_path, name, changes, text, extracted, paper, cot):
    scorer, asked = BENCHMARKS[name], files.item(tmp_path, name, **changes)
    assert scorer.extract(text, asked, "cot") == extracted
    for profile, expected in (("paper", paper), ("cot", cot)):
        found = scorer.extract(text, asked, profile)
        assert (None if found is None else scorer.score(found, asked, profile)) is expected


# ------------------------------------------------------------------------------ rules
@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("10.51", "10", False), ("0.0", "0", False), ("0.5", "50%", True),
        ("0.5%%", "0.005", True), ("1,000", "1,000", True), ("2019", "2010", True),
        ("$10", "10", False), ("1e1", "10", True), ("1_0", "10", True), ("inf", "10", False),
        ("nan", "nan", False), ("YES", "Yes", True), ("Yes ", "Yes", False), ("-10", "10", False),
    ],
)  # fmt: skip
def test_chartqa_is_right_within_five_per_cent_and_nothing_is_cut_off(text, answer, expected):
    assert right("chartqa", text, item(answer)) is expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("b", " B ", "B.green"), True),
        (("b.", "B) green", "B green", "green", r"\boxed{B}", "A. B"), False),
    ],
)
def test_scienceqa_takes_the_letter_alone_or_with_a_full_stop(texts, expected):
    for text in texts:
        assert right("scienceqa", text, item("B", choices=["red", "green"])) is expected, text


@pytest.mark.parametrize(
    ("text", "choices", "chosen"),
    [
        ("b", ["x", "b c"], "x"),  # no letter; distances 1 and 2
        ("(b)", ["x", "y"], "y"), ("a (b) (a)", ["x", "y"], "y"),
        ("B. xy", ["xyz", "y"], "xyz"),  # edits count, the letter does not
        ("kitten", ["sitting", "bitten"], "bitten"), ("", ["long", "no"], "no"),
    ],
)  # fmt: skip
def test_mathvista_makes_some_choice_of_any_text(text, choices, chosen):
    asked = item("", choices=choices, question_type="multi_choice", answer_type="text")
    assert mathvista.normalize(text, asked) == chosen


@pytest.mark.parametrize(
    ("text", "answer_type", "precision", "written"),
    [
        ("-0.5", "integer", None, "0"), ("1,000", "integer", None, None),
        ("inf", "integer", None, None), ("nan", "integer", None, None),
        ("1.15", "float", 1, "1.1"), ("1.25", "float", 1, "1.2"),
        ("1.15", "float", 1.0, "1.1"),  # parquet holds the precision as a float
        ("2", "float", 2, "2.0"), ("[1, 2]", "list", None, "[1, 2]"),
    ],
)  # fmt: skip
def test_mathvista_writes_numbers_as_python_does(text, answer_type, precision, written):
    kind = {"question_type": "free_form", "answer_type": answer_type, "precision": precision}
    asked = item(written or "", choices=[], **kind)
    assert mathvista.normalize(text, asked) == written
    if written:
        spaced = dataclasses.replace(asked, answer=written + " ")  # the gold is compared as it is
        assert mathvista.score(text, asked) and not mathvista.score(text, spaced)


# Run through the official code, which is not copied here.
@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        (r"\boxed{60.01}", "60", False), (r"\boxed{1,000}", "1000", True),
        (r"\boxed{7 \text{ cm}}", "7", False), (r"\boxed{7", "7", False),
        (r"\boxed{12 km}", "12", True), (r"\boxed{.5}", "0.5", True),
        (r"\boxed{1/2}", "0.5", True), (r"\boxed{\tfrac34}", "0.75", False),
        (r"\boxed{\sqrt{\frac12}}", "0.71", True),
        (r"\boxed{\left(\frac{1}{2},3\right)}", "(0.5,3)", True), ("So x is 7.", "7", True),
        ("The final answer is 7. Because it is.", "7", True),
        ("the answer is 7\nmore", "7", True), (r"\boxed{x=7}", "7", True),
        (r"$\boxed{7}$", "7", True),
        ("7}{", "7", True),  # a closing brace too many ends the number
        ("two", "2", False), ("", "7", False),
        (r"\boxed{9^{9^{9}}}", "7", False),  # hostile ones end
        (r"\boxed{" + "(" * 150 + "}", "7", False), (r"\boxed{" + "9" * 10_000 + "}", "7", False),
    ],
)  # fmt: skip
def test_mathvision_by_the_official_rules(text, answer, expected):
    assert right("mathvision", text, item(answer, options=[])) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C\nbecause", True), ("(C) C\nbecause", True), ("I take (C).", True),
        (r"\boxed{\text{(C)}}", True),
        (r"\boxed{0.5}", True),  # the text of option C
        (r"\boxed{C. 0.5}", False), (r"\boxed{A}", False), ("c)", False),
    ],
)  # fmt: skip
def test_mathvision_takes_letters_or_the_text_of_the_option(text, expected):
    asked = item("C", options=["1", "2", r"$\frac{1}{2}$", "4", "5"])
    assert right("mathvision", text, asked) is expected


def test_mathvision_compares_lists_as_text():
    assert mathvision.equal("(1,2)", "(1, 2)")
    assert mathvision.equal("(1,2)", "(1,2.0)")  # a whole decimal is an integer
    assert not mathvision.equal("(1,2)", "(1,4/2)")  # "2" is not "2.0"
    assert not mathvision.equal("(1,2)", "[1,2]")
    assert not mathvision.equal("(1,2)", "(" + "9^{300}" * 16 + ",1)")  # too large to write out


# ------------------------------------------------------------------------------ judges
def test_mathvista_shows_the_judge_examples_and_the_query(tmp_path):
    asked, judge = files.item(tmp_path, "mathvista"), BENCHMARKS["mathvista"].judge
    prompt = judge.extraction_prompt("so {b}", asked)
    assert prompt.endswith(f"{files.mathvista()['query']}\n\nso {{b}}\n\nExtracted answer: ")
    assert prompt.count("Extracted answer:") == 6
    assert judge.read_extraction("Extracted answer: B\n") == "B"
    assert judge.read_extraction(" \n") is None


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


def test_mathverse_judges_vision_only_by_another_question(tmp_path):
    changes = {"problem_version": "Vision Only", "question": ""}
    prompt = BENCHMARKS["mathverse"].judge.judge_prompt(
        "{40}", files.item(tmp_path, "mathverse", **changes)
    )
    tail = "[Question]: Find x.\nChoices:\nA:40°\nB:50°\n[Standard Answer]: B\n"
    assert prompt.endswith(tail + "[Model answer]: {40}\nJudgement: ")
    with pytest.raises(ValueError, match="question_for_eval"):
        files.item(tmp_path, "mathverse", **changes, question_for_eval=None)


# ------------------------------------------------------------------------------ breakdowns
@pytest.mark.parametrize(
    ("changes", "modality", "grade"),
    [
        ({"hint": "Grass.", "image": None, "grade": "grade6"}, ("text",), "1-6"),
        ({"image": None}, ("none",), "7-12"),
        ({"hint": "Grass."}, ("text", "image"), "7-12"),
    ],
)
def test_groups_of_scienceqa(tmp_path, changes, modality, grade):
    asked = files.item(tmp_path, "scienceqa", subject="social science", **changes)
    assert BENCHMARKS["scienceqa"].groups(asked) == {
        "subject": ("social science",),
        "modality": modality,
        "grade": (grade,),
    }


def test_groups_and_clusters_of_the_others(tmp_path):
    metadata = files.mathvista()["metadata"] | {"skills": ["a", "b", "a"]}
    groups = mathvista.groups(files.item(tmp_path, "mathvista", metadata=metadata))
    assert len(groups) == 9 and groups["skills"] == ("a", "b")
    assert mathvision.groups(files.item(tmp_path, "mathvision", level="4")) == {
        "level": ("4",),
        "subject": ("counting",),
        "subject, level": ("counting, 4",),
    }
    rows = [
        files.mathverse(str(i), problem_version=version)
        for i, version in enumerate(mathverse.VERSIONS)
    ]
    rows.append(files.mathverse("9", problem_index="2", answer="C\nD"))
    items = BENCHMARKS["mathverse"].read(files.save(tmp_path / "b.parquet", *rows))
    assert mathverse.groups(items[0])["subfield"] == ("Plane Geometry, Angle",)
    assert [BENCHMARKS["mathverse"].cluster(i) for i in items] == [*"11111", "2"]
    assert (items[5].answer, items[5].kind) == ("C\nD", "text")
