"""A judge that answers, talks nonsense, fails and hangs: every answer still has a verdict."""

import pytest

from tests.evals.benchmarks import files
from tests.http_server import ScriptedChat, said
from vade_jax.evals import judge, replies
from vade_jax.evals.benchmarks import BENCHMARKS
from vade_jax.evals.chat import Chat, ServerLost
from vade_jax.evals.endpoint import Endpoint

TEXT = "I would say the second one."


@pytest.fixture
def verse(tmp_path):
    path = files.save(tmp_path / "verse.parquet", files.mathverse())
    return BENCHMARKS["mathverse"].read(path)[0]


def decide(server, tmp_path, item, text=TEXT, name="mathverse", **options):
    """Returns the verdict, and the chat that asked."""
    options = {"retries": 0, "backoff_s": 0.01, "concurrency": 2} | options
    endpoint = Endpoint(server.url, "m", timeout_s=options.pop("timeout_s", 5.0))
    chat = Chat(endpoint, replies.Replies(tmp_path / "judge.jsonl"), **options)
    return judge.by_model(BENCHMARKS[name], "paper", chat)(item, text), chat


def says(*texts):
    """Returns what says them one after another, the last one for ever."""
    left = list(texts)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def test_extraction_then_judgement_and_their_words_are_kept(tmp_path, verse):
    with ScriptedChat(says("Extracted Answer: B", "Judgement: 1")) as server:
        verdict, _ = decide(server, tmp_path, verse)
    assert (verdict.extracted, verdict.correct, verdict.outcome) == ("B", True, "judge")
    assert verdict.replies == ("Extracted Answer: B", "Judgement: 1")
    first, second = server.bodies
    assert (first["temperature"], first["seed"], first["max_tokens"]) == (0.0, 0, 256)
    assert TEXT in said(first) and "Find x." not in said(first)
    assert said(second).endswith("[Standard Answer]: B\n[Model answer]: B\nJudgement: ")


def test_wrong_is_wrong_and_thoughts_are_not_the_reply(tmp_path, verse):
    with ScriptedChat(says("A", "<think>1 or\n0?</think>\n0")) as server:
        verdict, _ = decide(server, tmp_path, verse)
    assert (verdict.correct, verdict.outcome) == (False, "judge")


def test_nonsense_is_asked_again_warmer_and_then_counted(tmp_path, verse):
    with ScriptedChat(says("B", "maybe")) as server:
        verdict, _ = decide(server, tmp_path, verse)
    assert (verdict.extracted, verdict.correct) == ("B", False)
    assert verdict.outcome == "judge_failed"
    assert verdict.replies == ("B", *["maybe"] * 5)
    asked = [(body["temperature"], body["seed"]) for body in server.bodies[1:]]
    assert asked == [(0.0, 0), (0.5, 1), (0.5, 2), (1.0, 3), (1.0, 4)]


def test_a_later_attempt_may_be_readable(tmp_path, verse):
    with ScriptedChat(says("", "", "B", "right!", "1")) as server:
        verdict, _ = decide(server, tmp_path, verse)
    assert (verdict.extracted, verdict.correct) == ("B", True)
    assert verdict.replies == ("", "", "B", "right!", "1")


@pytest.mark.parametrize("fault", [500, "hang", "html", 400])
def test_a_server_that_fails_is_counted(tmp_path, verse, fault):
    with ScriptedChat() as server:
        server.faults = [fault]
        verdict, _ = decide(server, tmp_path, verse, timeout_s=0.3)
    assert (verdict.correct, verdict.outcome) == (False, "judge_unanswered")


def test_a_server_that_is_gone_ends_the_work(tmp_path, verse):
    with ScriptedChat() as server:
        server.always = 500
        texts = [f"{TEXT} {i}" for i in range(9)]
        with pytest.raises(ServerLost, match="given up"):
            _, chat = decide(server, tmp_path, verse)
            decide_all = judge.by_model(BENCHMARKS["mathverse"], "paper", chat)
            [decide_all(verse, text) for text in texts]


def test_nothing_is_asked_twice_even_by_another_process(tmp_path, verse):
    with ScriptedChat(says("B", "what?", "1")) as server:
        first, _ = decide(server, tmp_path, verse)
        second, chat = decide(server, tmp_path, verse)
    assert first == second
    assert len(server.bodies) == 3
    assert chat.counts()["remembered"] == 3


def test_rules_come_first_and_need_no_judge(tmp_path):
    path = files.save(tmp_path / "vista.parquet", files.mathvista())
    item = BENCHMARKS["mathvista"].read(path)[0]
    with ScriptedChat(says("B")) as server:
        verdict, _ = decide(server, tmp_path, item, "140°", "mathvista")
        assert (verdict.correct, verdict.outcome, server.bodies) == (True, "rules", [])
        verdict, _ = decide(server, tmp_path, item, "It is B.", "mathvista")
    assert (verdict.correct, verdict.outcome) == (True, "judge")
    assert server.bodies[0]["max_tokens"] == 1024
