"""Hundreds of hostile texts through what reads answers and questions.

Nothing hangs, crashes, evaluates or takes a gigabyte, and every text is counted as something.
"""

import collections
import re
import resource

import pytest

from tests.cpu_limit import cpu_limit
from tests.hostile import texts
from vade_jax.data import tokens
from vade_jax.rewards import answers, verify

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
