"""A judge behind a server; tests/client_test.py has what a request may meet."""

import pytest

from tests.http_server import KEY, ScriptedChat, said
from vade_jax.rewards import servers

PROMPTS = [[{"role": "user", "content": "2 + 5?"}]] * 3
COMPLETIONS = [[{"role": "assistant", "content": text}] for text in ("seven", "eight", "{7}")]


def judge(server, **options):
    return servers.Judge(server.url, "m", **options)


def asked(judge):
    return judge(PROMPTS, COMPLETIONS, answer=["7"] * 3, trainer_state=object(), log="x")


def agrees(body):
    text = said(body)
    assert "Question: 2 + 5?" in text and "Right answer: 7" in text
    return "So: yes." if "Student: seven" in text or "Student: {7}" in text else "No."


def test_a_judge_says_yes_or_no():
    with ScriptedChat(agrees) as server:
        assert asked(judge(server, fields={"seed": 3})) == [1, 0, 1]
        assert {(body["model"], body["seed"]) for body in server.bodies} == {("m", 3)}


def test_what_fails_is_asked_again_and_then_has_no_verdict():
    with ScriptedChat(agrees) as server:
        server.faults = [500, "other", None, None, None]
        made = judge(server, concurrency=1)
        assert asked(made) == [1, 0, 1] and made.metrics()["retries"] == 2
        server.faults = [None, 400]  # this one question is too long, or the like
        assert asked(made) == [1, None, 1] and made.metrics()["failures"] == 1


@pytest.mark.parametrize(
    ("options", "model", "message"),
    [({}, "m", "HTTP 401: Incorrect API key"), ({"api_key_env": "K"}, "n", "`n` is unknown")],
)
def test_a_wrong_key_or_model_is_an_error(monkeypatch, options, model, message):
    monkeypatch.setenv("K", KEY)
    with ScriptedChat(agrees, needs_key=True) as server:
        made = servers.Judge(server.url, model, **options)
        with pytest.raises(RuntimeError, match=message):
            asked(made)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        *[(x, 1) for x in ("yes", "**Yes**", "Yes. There is no difference.", "Verdict: yes.")],
        *[("No.", 0), ("<think>yes</think> no", 0), ("Wrong\n\nNo!", 0), ("no, wait: Yes", None)],
        *[("No. It would be yes for x > 0", 0), ("I see no difference. Yes", 1), ("_No_", 0)],
        *[(x, None) for x in ("nope", "", "I say yes\nor not", "Yes or no?", "<think>is it? yes")],
    ],
)
def test_the_first_or_the_last_word_of_a_verdict(reply, expected):
    assert servers.yes_or_no(reply) == expected
