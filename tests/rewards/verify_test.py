"""Verdicts: tables of keys and answers, the answer in a text and its form, options, and SymPy's seconds."""

import json
import pathlib
import time

import pytest

from experiments.vade_9k import golds
from vade_jax.rewards import answers, functions, process, verify

HERE = pathlib.Path(__file__).parent
TABLE = (HERE / "verdicts.txt").read_text("utf-8")
BLOCKS = [block.split("\n") for block in TABLE.strip().split("\n\n")[1:]]
HOSTILE = json.loads((HERE / "hostile_answers.json").read_text())
GOLDS = {name: dict(gold) for name, gold in HOSTILE["golds"].items()}


def reason(given, answer, kind, **options):
    return verify.verify(f"\\boxed{{{given}}}", answer, kind, **options).reason


# ------------------------------------------------------------------------------ tables


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block[0])
def test_right_is_right_and_wrong_is_wrong(block):
    """A key, each with what is right and what is wrong for it, as a careful mathematician would say."""
    head, *lines = block
    kind, key = head.split(": ", 1)
    for line in lines:
        verdict = verify.verify(f"\\boxed{{{line[2:]}}}", key, kind)
        assert verdict.correct == (line[0] == "+"), line


def text_of(parts):
    """Returns the text of a record: a string, or strings and [string, times]."""
    if isinstance(parts, str):
        return parts
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts)


@pytest.mark.parametrize("name", GOLDS)
def test_no_hostile_answer_is_right_unless_it_is(name, monkeypatch):
    if GOLDS[name]["kind"] != "expr":  # a round trip to another process is a thousand comparisons
        monkeypatch.setattr(process, "_live_worker", None)
    for gold, parts, right in HOSTILE["answers"]:
        if gold == name:
            assert verify.verify(text_of(parts), **GOLDS[name]).correct == right, parts
    gold = {k: v for k, v in GOLDS[name].items() if k != "tolerance"}
    assert golds.normalise(**gold) == gold["answer"]


# ------------------------------------------------------------------------------ the answer in a text
def test_without_a_box_nothing_is_correct():
    verdict = verify.verify("The answer is 7", "7", "int")
    assert verdict == verify.Verdict(False, False, None, "no_box")
    assert reason("7" * 201, "7", "int") == "too_long"


def test_a_guess_among_the_thoughts_is_no_answer():
    later = r"<think>maybe \boxed{5}? No.</think> The answer is \boxed{6}."
    assert verify.verify(later, "6", "int").correct and not verify.verify(later, "5", "int").correct
    for text in (
        r"<think>a</think> so <think>maybe \boxed{5}",
        r"<think>maybe \boxed{5}? No.</think> It is 6.",
        r"<think>maybe \boxed{5}? No, it must be",
    ):
        assert verify.verify(text, "5", "int").reason == "no_box"
    assert verify.verify(r"Opened by the template.</think> \boxed{5}", "5", "int").correct


def test_form_and_correctness_are_apart():
    verdict = verify.verify("\\boxed{1} \\boxed{7}", "7", "int")
    assert verdict.correct and not verdict.well_formed and verdict.extracted == "7"
    assert verify.verify("\\boxed{8}", "7", "int").well_formed
    assert not verify.verify("\\boxed{7}", "7", "int", form="think_boxed").well_formed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{3} then \\boxed{4}", "4"), ("\\boxed{3} then \\boxed{4", "3"), ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\boxed{3}}", "3"), ("\\boxed {5 }", "5"), ("\\boxed{\\{1\\}}", "\\{1\\}"), ("} { \\boxed{2} }", "2"),
        ("\\boxed{7} in \\boxed{}", "7"), ("\\boxed{a {b}", None), ("boxed{7}", None), ("", None),
        # Boxes that only a comma or a word joins are one list.
        ("\\boxed{3}, \\boxed{5}, and \\boxed{7}.", "3, 5, 7"), ("$x=\\boxed{2}$ or $x=\\boxed{3}$", "2 or 3"),
        ("\\boxed{1}, \\boxed{2}. No: \\boxed{3} or \\boxed{4}", "3 or 4"), ("\\boxed{3} not \\boxed{5}", "5"),
        ("\\boxed{3}, and since this is so, \\boxed{5}", "5"), ("\\boxed{**3**}", "3"), ("\\boxed{2**3}", "2**3"),
    ],
)  # fmt: skip
def test_the_last_balanced_box_is_taken(text, expected):
    assert answers.extract_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is \\boxed{7}.\n", True), ("$\\boxed{\\frac{1}{2}}$", True), ("\\[\\boxed{7}\\]", True), ("\\boxed{7} is it", False),
        ("\\boxed{7}\\boxed{8}", False), ("\\boxed{\\boxed{7}}", False), ("\\boxed{7} \\boxed{8", False), ("\\boxed{ }", False),
        ("7", False), ("**\\boxed{7}**", True), ("\\boxed{7}, \\boxed{8}", True), ("\\boxed{6}. So \\boxed{7}, \\boxed{8}", False),
    ],
)  # fmt: skip
def test_boxed_is_one_answer_at_the_end(text, expected):
    assert answers.boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>1 + 1</think> \\boxed{2}", True),
        ("\n<think>\\boxed{1}?\nno</think>\nSo \\boxed{2}.", True),
        ("<think></think>\\boxed{2}", True),
        ("<think>1 + 1 \\boxed{2}</think>", False),
        ("1 <think>1 + 1</think> \\boxed{2}", False),
        ("<think>a</think><think>b</think> \\boxed{2}", False),
        ("</think><think> \\boxed{2}", False),
        ("\\boxed{2}", False),
    ],
)
def test_think_boxed_is_reasoning_and_then_one_box(text, expected):
    assert answers.think_boxed(text) == expected


# ------------------------------------------------------------------------------ options
@pytest.mark.parametrize(
    ("choices", "key", "given", "expected"),
    [
        (("red", "blue", "blue"), "A", "Red", "ok"), (("red", "blue", "blue"), "B", "red.", "different"),
        (("red", "blue", "blue"), "B", "C", "ok"),  # equal options are equally right
        (("red", "blue", "blue"), "C", "blue", "ok"), (("red", "blue", "blue"), "A", "D", "unreadable"),
        (("red", "blue", "blue"), "E", "A", "bad_key"), (("red", "blue", "blue"), "A", "B. red", "unreadable"),
        (("red", "blue", "blue"), "B", "(C) blue", "ok"),
        (("$\\frac{\\sqrt3}{2}$", "$\\frac12$"), "A", "\\dfrac{\\sqrt{3}}{2}", "ok"),
        (("$\\frac{\\sqrt3}{2}$", "$\\frac12$"), "A", "0.5", "different"), (("5 cm", "6 cm"), "A", "5", "ok"),
        (("5 cm", "5 m"), "A", "5", "unreadable"), (("5 cm", "6 cm"), "A", "A. 6", "unreadable"),
        (("-10", "20-30"), "A", "10-20", "unreadable"), (("B", "A", "D", "C"), "A", "A", "ok"),
        (("B", "A", "D", "C"), "A", "B", "different"), (("B", "A", "D", "C"), "A", "A. B", "ok"),
        (("The dark-blue", "y = 2x - 1"), "B", "y = 2x + 1", "unreadable"),
    ],
)  # fmt: skip
def test_an_option_may_be_chosen_by_its_text_or_value(choices, key, given, expected):
    assert reason(given, key, "choice", choices=choices) == expected


@pytest.mark.parametrize(
    "choices",
    [
        ("x < 3", "x > 3"), ("y = 2x + 1", "y = 2x - 1"), ("A ∪ B", "A ∩ B"), ("50%", "50"),
        ("$\\frac{1}{2}$", "$-\\frac{1}{2}$"), ("-x", "x"), ("+", "-"), ("AA", "Aa"), ("[0, 1)", "(0, 1]"),
    ],
)  # fmt: skip
def test_options_that_differ_in_signs_are_not_equal(choices):
    for text, key, other in zip(choices, "AB", "BA", strict=True):
        reasons = [reason(x, key, "choice", choices=choices) for x in (key, text, other)]
        assert reasons == ["ok", "ok", "different"]


# ------------------------------------------------------------------------------ reasons, and options of kinds
@pytest.mark.parametrize(
    ("kind", "given", "key", "options", "expected"),
    [
        ("choice", "A or B", "A", {}, "unreadable"), ("choice", "B", "thirty", {}, "bad_key"),
        ("yesno", "yes, but not", "yes", {}, "unreadable"), ("yesno", "yes", "perhaps", {}, "bad_key"), ("yesno", "yes _ _", "yes", {}, "ok"),
        ("int", "7.5", "7", {}, "different"), ("int", "seven", "7", {}, "unreadable"), ("int", "7", "7.5", {}, "bad_key"),
        ("float", "9.5", "10", {"tolerance": 0.05}, "ok"), ("float", "9.4", "10", {"tolerance": 0.05}, "different"),
        ("float", "0.01", "0", {"tolerance": 0.05}, "different"), ("float", "3", "pi", {}, "bad_key"),
        ("text", "!", "red", {}, "unreadable"), ("text", "red", "?", {}, "bad_key"), ("text", "Cafe\u0301", "Café", {}, "ok"),
        ("list", "2, 1", "[1, 2]", {"ordered": False}, "ok"), ("list", "2, 1", "\\{1, 2\\}", {"ordered": True}, "different"),
        ("list", "[104, 190]", "[100, 200]", {"tolerance": 0.05}, "ok"), ("list", "[1,000,2]", "[1000, 2]", {}, "ok"),
        ("list", "[106, 190]", "[100, 200]", {"tolerance": 0.05}, "different"), ("list", "1", "[]", {}, "bad_key"),
        ("expr", "x = 1 or y = 2", "x = 3 or y = 4", {}, "different"), ("expr", "y<2 or x>1", "x>1 or y<2", {}, "ok"),
        ("expr", "foo(", "foo(", {}, "bad_key"), ("expr", "\\frac{1}{0}", "\\frac{1}{0}", {}, "bad_key"),
    ],
)  # fmt: skip
def test_reasons(kind, given, key, options, expected):
    assert reason(given, key, kind, **options) == expected


# ------------------------------------------------------------------------------ SymPy's seconds
class Worker:
    """Replies to questions without SymPy; an exception is raised."""

    def __init__(self, *replies):
        self.replies = iter(replies)

    def call(self, *_, **options):
        reply = next(self.replies)
        if isinstance(reply, Exception):
            raise reply
        return reply


def use(monkeypatch, worker):
    monkeypatch.setattr(process, "_live_worker", lambda: worker)
    monkeypatch.setattr(process, "_idle", [])
    process.ask.cache_clear()


def test_verdicts_are_remembered_but_failures_are_not(monkeypatch):
    use(monkeypatch, Worker(TimeoutError(), process.Ended(), True))
    reasons = [reason("q+r", "r+q", "expr") for _ in range(5)]
    assert reasons == ["timeout", "crash", "ok", "ok", "ok"]


def test_an_answer_with_many_formulas_has_seconds_for_all_of_them(monkeypatch):
    asked = []
    worker = Worker()
    worker.call = lambda *_, timeout_s: asked.append(timeout_s) or time.sleep(1.1)
    use(monkeypatch, worker)
    numbers = ", ".join(f"\\sqrt{{{n}}}" for n in range(2, 10))
    names = ", ".join(f"a_{n}" for n in range(2, 10))
    assert reason(names, f"\\{{{numbers}\\}}", "expr") == "timeout"
    assert len(asked) == 3 and asked[0] - asked[2] > 2


@pytest.mark.parametrize(
    "given",
    [
        "9^{9^{9^9}}", "9^9^9", "(9^{99999})^{99999}", "99999999!", "2^{9999999}", "5!!",
        "(" * 50 + "1" + ")" * 50, "2^(1000000)", "x^{" * 20 + "}" * 20,
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_reaches_no_worker(given, monkeypatch):
    monkeypatch.setattr(process, "_live_worker", None)
    assert reason(given, "x+1", "expr") == "unreadable"
    assert reason("x+1", given, "expr") == "bad_key"
    assert reason("0.51", "\\frac{1}{2}", "expr") == "different"  # nor do numbers


# ------------------------------------------------------------------------------ length
@pytest.mark.parametrize(
    ("max_tokens", "buffer", "lengths", "costs"),
    [  # the first are the paper's
        (20480, 4096, (1, 16384, 16385, 17408, 20480), (0, 0, -1 / 4096, -0.25, -1)),
        (8, 4, range(11), (0, 0, 0, 0, 0, -0.25, -0.5, -0.75, -1, -1, -1)),
        (8, 1, (6, 7, 8), (0, 0, -1)),  # only what was cut off
        (8, 0, (7, 8, 9), (0, 0, 0)),
    ],
)
def test_overlong_answers_cost(max_tokens, buffer, lengths, costs):
    found = [functions.overlong_penalty(length, max_tokens, buffer) for length in lengths]
    assert found == list(costs)
