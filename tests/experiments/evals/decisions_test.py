"""Decisions: texts as policies write them, read without a judge; judges that talk nonsense."""

import pytest

from experiments.evals import decisions
from experiments.evals.benchmarks import BENCHMARKS
from experiments.evals.chat import Chat
from experiments.evals.settings import Judge
from tests.experiments.evals.benchmarks import files
from tests.http_server import ScriptedChat, said

# ------------------------------------------------------------------------------ rules alone


def decided(tmp_path, name, text, **changes):
    found = files.item(tmp_path, name, **changes)
    return decisions.by_rules(BENCHMARKS[name], "paper")(found, text)


@pytest.mark.parametrize(
    ("text", "extracted", "correct"),
    [
        ("140°", "140°", True),  # literally a choice: the benchmark's own rule
        ("I add them up.\nThe answer is B. It is wide.", "B", True),
        ("The answer is A. No, wait: the answer is B", "B", True),
        (r"So it is \boxed{B}, not A.", "B", True),
        ("I look at the picture for a long time and\nsee many angles.", None, False),
        ("who knows", None, False),  # near some choice, as every text is
    ],
)
def test_a_choice_is_read_from_box_tail_or_short_text(tmp_path, text, extracted, correct):
    decision = decided(tmp_path, "mathvista", text)
    outcome = "undecided" if extracted is None else "rules"
    assert decision == decisions.Decision(extracted, correct, outcome)


@pytest.mark.parametrize(
    ("gold", "text", "correct"),
    [
        ("B", "The answer is B", True),
        ("B", "The answer is A", False),
        ("2\\sqrt{3}", r"\boxed{\sqrt{12}}", True),
    ],
)
def test_a_decision_that_a_judge_would_give(tmp_path, gold, text, correct):
    kind = "multi-choice" if gold == "B" else "free-form"
    changes = {"answer": gold, "question_type": kind}
    decision = decided(tmp_path, "mathverse", text, **changes)
    assert (decision.correct, decision.outcome) == (correct, "rules")


# ------------------------------------------------------------------------------ a judge model
TEXT = "I would say the second one."


@pytest.fixture
def verse(tmp_path):
    return files.item(tmp_path, "mathverse")


def decide(server, tmp_path, item, text=TEXT, name="mathverse", **options):
    options = {"retries": 0, "concurrency": 2, "timeout_s": 5.0} | options
    chat = Chat(Judge(url=server.url, model="m", **options), tmp_path / "judge.jsonl")
    return decisions.by_judge(BENCHMARKS[name], "paper", chat)(item, text)


def says(*texts):
    """Returns what says them one after another, the last one for ever."""
    left = list(texts)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def test_extraction_then_judgement_and_their_words_are_kept(tmp_path, verse):
    with ScriptedChat(says("Extracted Answer: B", "Judgement: 1")) as server:
        decision = decide(server, tmp_path, verse)
    assert (decision.extracted, decision.correct, decision.outcome) == ("B", True, "judge")
    assert decision.replies == ("Extracted Answer: B", "Judgement: 1")
    first, second = server.bodies
    assert (first["temperature"], first["seed"], first["max_tokens"]) == (0.0, 0, 256)
    assert TEXT in said(first) and "Find x." not in said(first)
    assert said(second).endswith("[Standard Answer]: B\n[Model answer]: B\nJudgement: ")


def test_nonsense_is_asked_again_warmer_and_then_counted(tmp_path, verse):
    with ScriptedChat(says("B", "maybe")) as server:
        decision = decide(server, tmp_path, verse)
    assert (decision.extracted, decision.correct) == ("B", False)
    assert decision.outcome == "judge_failed"
    assert decision.replies == ("B", *["maybe"] * 5)
    asked = [(body["temperature"], body["seed"]) for body in server.bodies[1:]]
    assert asked == [(0.0, 0), (0.5, 1), (0.5, 2), (1.0, 3), (1.0, 4)]


def test_rules_come_first_and_need_no_judge(tmp_path):
    item = files.item(tmp_path, "mathvista")
    with ScriptedChat(says("B")) as server:
        decision = decide(server, tmp_path, item, "140°", "mathvista")
        assert (decision.correct, decision.outcome, server.bodies) == (True, "rules", [])
        decision = decide(server, tmp_path, item, "It is B.", "mathvista")
    assert (decision.correct, decision.outcome) == (True, "judge")
    assert server.bodies[0]["max_tokens"] == 1024
