"""Hundreds of hostile texts through everything that reads what a model, or a judge, has written.

Nothing hangs, crashes, evaluates or takes a gigabyte, and every text is counted as something.
"""

import collections
import itertools
import json
import pathlib
import re
import resource
import types

import pytest

from experiments.evals import answers as saved
from experiments.evals import chat, decisions
from experiments.evals import settings as evaluation
from experiments.evals.benchmarks import BENCHMARKS
from tests.cpu_limit import cpu_limit
from tests.hostile import texts
from tests.http_server import ScriptedChat
from tests.report import report_run
from vade_jax import report
from vade_jax.data import tokens
from vade_jax.rewards import answers, servers, verify
from vade_jax.store import rollout_log
from vade_jax.types import Item

SECONDS = 3  # of work that one text may cost
GIGABYTE = 1 << 30
REASONS = {"ok", "no_box", "too_long", "unreadable", "different", "timeout", "crash"}
GOLDS = (
    {"answer": "B", "kind": "choice"},
    {"answer": "B", "kind": "choice", "choices": ["red", "blue", "green"]},
    {"answer": "yes", "kind": "yesno"},
    {"answer": "7", "kind": "int"},
    {"answer": "0.5", "kind": "float"},
    {"answer": "200", "kind": "float", "tolerance": 0.05},
    {"answer": "dark blue", "kind": "text"},
    {"answer": "[2007, 2008]", "kind": "list"},
    {"answer": "\\{3, -5\\}", "kind": "list"},
)
FORMULA = {"answer": "2\\sqrt{3}", "kind": "expr"}
# What in the corpus is right: nothing else may be.
RIGHT = {
    "B": ('"><b>', "B.", "\u2066B\u2069", "Final answer: B"),
    "yes": ("yes",),
    "7": ("7", "７", "007", "7=7", "(((((7)))))", "(" * 13 + "7" + ")" * 13),
    "0.5": (".5", "½"),
}


@pytest.fixture(autouse=True)
def little_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) * 1024 < GIGABYTE


# ------------------------------------------------------------------------------ verifiers
def test_every_text_gets_a_verdict_by_every_rule():
    reasons = collections.Counter()
    for text in texts.corpus():
        with cpu_limit(SECONDS):
            for form in answers.FORMATS.values():
                form(text)
            verdicts = [verify.verify(text, **gold) for gold in GOLDS]
        reasons.update(verdict.reason for verdict in verdicts)
        for gold, verdict in zip(GOLDS, verdicts, strict=True):
            if verdict.correct:
                right = RIGHT[gold["answer"]]
                assert verdict.extracted in right or verdict.extracted.startswith("yes\\frac")
    assert set(reasons) <= REASONS
    assert sum(reasons.values()) == len(texts.corpus()) * len(GOLDS)


def test_every_text_gets_a_verdict_as_a_formula():
    boxed = [text for text in texts.shorts() if text.startswith("\\boxed{")]
    assert len(texts.corpus()) > 600 and len(boxed) > 200
    for text in boxed[::8]:
        with cpu_limit(SECONDS):  # of this process; the worker has a deadline of its own
            verdict = verify.verify(text, **FORMULA)
        assert verdict.reason in REASONS and not verdict.correct


# ------------------------------------------------------------------------------ benchmarks
VISTA = {
    "query": "Hint", "precision": 1.0, "choices": [], "question_type": "free_form",
    "language": "e", "source": "s", "category": "c", "task": "t", "context": "x", "grade": "g",
    "skills": ["a"], "answer_type": "text",
}  # fmt: skip
CHOICES = ["red", "blue", "a rather long text of a choice, in many words"]
VERSE = {"question_for_eval": "q", "query_cot": "q"}
VISION = {"options": [], "level": "1", "subject": "s"}
ASKED = {
    "mathvista": [
        ("7", {**VISTA, "answer_type": "integer"}), ("1.2", {**VISTA, "answer_type": "float"}),
        ("red", {**VISTA, "choices": CHOICES, "question_type": "multi_choice"}),
    ],
    "mathverse": [("B", VERSE), ("7", VERSE)],
    "mathvision": [("7", VISION), ("A", {**VISION, "options": ["7", "8"]}), ("\\pi", VISION)],
    "scienceqa": [("A", {"choices": CHOICES, "hint": "", "subject": "s", "grade": 3})],
    "chartqa": [("10", {"type": "human"}), ("red", {"type": "human"})],
}  # fmt: skip


def asked(name):
    for answer, metadata in ASKED[name.split("_")[0]]:
        yield Item("x:0", "How many?", (), answer, "text", metadata)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_text_is_scored_by_every_benchmark(name):
    """As an answer, as what a judge has extracted, and as a judge's verdict."""
    benchmark = BENCHMARKS[name]
    judge = benchmark.judge or types.SimpleNamespace()
    readers = ("extraction_prompt", "judge_prompt"), ("read_extraction", "read_judgement")
    prompts, reads = ([getattr(judge, n, None) for n in names] for names in readers)
    rules = None if prompts == [None, None] else decisions.by_rules
    for text in texts.corpus():
        for item in asked(name):
            with cpu_limit(SECONDS):
                for profile in ("paper", "cot"):
                    extracted = benchmark.extract(text, item, profile)
                    found = benchmark.score(extracted or text, item, profile)
                    assert found in (True, False, None)
                assert all(prompt(text, item) for prompt in prompts if prompt)
                assert all(isinstance(read(text), str | bool | None) for read in reads if read)
                if rules and prompts[0] and len(text) < 2_000:
                    assert rules(benchmark, "paper")(item, text).outcome in ("rules", "undecided")


# ------------------------------------------------------------------------------ judges
REPLIES = (
    b"", b"null", b"[]", b"{}", b"7", b'"yes"', b"[" * 100_000, b"9" * 5_000, b"\xff\xfe", b"{",
    b'{"choices": []}', b'{"choices": {}}', b'{"choices": [null]}', b'{"choices": [{"message": 7}]}',
    b'{"choices": [{"message": {"content": 7}}]}', b'{"choices": [{"message": {"content": []}}]}',
    b'{"choices": [{"message": {"content": "yes"}}], "usage": {"prompt_tokens": "x"}}',
    b'{"choices": [{"message": {"content": "yes"}}], "usage": 7}', b'{"error": {"message": "no"}}',
    b"<html>", b'{"rewards": 7}', b'{"rewards": null}', b'{"rewards": {"a": 1}}', b"NaN", b'{"a": NaN}',
)  # fmt: skip


class Hostile(ScriptedChat):
    """Sends the given bodies, one after the other, as replies of each status in turn."""

    def __init__(self, bodies, statuses=(200,)):
        self.replies = itertools.cycle(itertools.product(statuses, bodies))
        super().__init__()

    def respond(self, request):
        return next(self.replies)


@pytest.mark.parametrize("statuses", [(200,), (500,), (400,)])
def test_no_reply_of_a_judge_ends_a_run(statuses):
    with Hostile(REPLIES, statuses) as server:
        options = {"retries": 0, "concurrency": 1}
        judge = servers.Judge(server.url, "m", **options)
        found = []
        for _ in REPLIES:
            found += judge(["q"], ["a"], answer=["7"])
        assert set(found) <= {None, 0.0, 1.0}
        counts = judge.metrics()
    assert counts["requests"] == len(REPLIES)
    assert counts["failures"] + counts.get("unreadable", 0) >= len(REPLIES) - 2


def test_every_text_is_read_as_the_words_of_a_judge(tmp_path):
    """Over HTTP, into the file of replies, and back from it."""
    said = texts.shorts()[::3]
    bodies = [json.dumps({"choices": [{"message": {"content": x}}]}).encode() for x in said]
    path = tmp_path / "replies.jsonl"
    with Hostile(bodies) as server:
        judge = servers.Judge(server.url, "m", concurrency=1)
        assert {judge(["q"], ["a"], answer=["7"])[0] for _ in said} <= {None, 0.0, 1.0}
        settings = evaluation.Server.from_dict({"url": server.url, "model": "m"})
        asking = chat.Chat(settings, path)
        messages = [[{"role": "user", "content": x}] for x in said]
        assert sorted(map(asking.ask, messages)) == sorted(said)
        again = chat.Chat(settings, path)
        assert sorted(map(again.ask, messages)) == sorted(said)
        assert again.counts()["remembered"] == len(said)


# ------------------------------------------------------------------------------ files and pages
def readable(text):
    return text.encode("utf-8", "replace").decode()


def test_every_text_survives_the_rollout_log_and_the_file_of_answers(tmp_path):
    written = texts.corpus()
    path = tmp_path / "step_00001.parquet"
    columns = {"uid": written, "answer": written, "metadata": [{"family": x} for x in written]}
    rollout_log.write(path, columns)
    found = rollout_log.read(path)
    assert found["answer"] == found["uid"] == list(map(readable, written))
    assert [json.loads(x)["family"] for x in found["metadata"]] == found["answer"]
    store = saved.open_store(tmp_path / "answers.jsonl")
    store.add([vars(saved.Answer(text, 0, text)) for text in texts.shorts()])
    again = saved.open_store(tmp_path / "answers.jsonl")
    assert [answer.text for answer in again.values()] == list(texts.shorts())


def test_every_text_is_text_on_the_page(tmp_path):
    workdir = report_run.make(tmp_path / "run")
    plain = pathlib.Path(report.write(workdir)).read_text("utf-8")
    size = 200
    for step in range(1, report_run.NUM_STEPS + 1):
        some = tuple(
            itertools.islice(itertools.cycle(texts.shorts()), step * size, (step + 1) * size)
        )
        rows = {
            k: list(itertools.islice(itertools.cycle(v), size))
            for k, v in report_run.table(1).items()
        }
        for name in ("answer", "extracted", "reason", "gold", "prompt", "uid", "kind"):
            rows[name] = list(some)
        rows["metadata"] = [{"family": text, "level": 0} for text in some]
        rows["group"] = [i // 2 for i in range(size)]
        rollout_log.write(rollout_log.path(workdir, step), rows)
    with cpu_limit(60):
        page = pathlib.Path(report.write(workdir)).read_text("utf-8")
    assert len(page) < 5_500_000
    count = lambda tag, text: len(re.findall(tag, text, re.IGNORECASE))
    for tag in ("<script", "</script", "<style", "</style", "<title", "<meta", "<base"):
        assert count(tag, page) == count(tag, plain), tag
    for tag in ("<img src=x", "<iframe", "<!--", "<svg/", "<plaintext", "onmouseover='x"):
        assert not count(tag, page), tag
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\u2066-\u2069]", page)


# ------------------------------------------------------------------------------ as questions
def test_every_text_becomes_tokens_without_control_tokens(small_checkpoint):
    tokenizer = tokens.Tokenizer.load(small_checkpoint)
    control = {tokenizer._first_id(name) for name in (*tokens.SPECIAL, *tokens.PLAIN)}
    nested = ["<|im_end" * n + "|>" * n for n in (3, 100, 60_000)]
    for text in [*texts.corpus()[:-2], *nested]:  # one of a megabyte is enough
        if re.search("[\ud800-\udfff]", text):
            continue  # a row with half of a surrogate pair is rejected
        with cpu_limit(SECONDS):
            found = tokenizer.encode(tokenizer.clean(text))
        assert not control.intersection(found), text[:80]
