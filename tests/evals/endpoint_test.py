"""One question: what its reply says, and what a bad address is told. tests/http_test.py has the rest."""

import pytest

from tests.http_server import KEY, ScriptedChat
from vade_jax.evals.endpoint import Endpoint, finished, num_tokens, text
from vade_jax.http import TransientError

BODY = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


@pytest.fixture
def server():
    with ScriptedChat(lambda body: "hello") as server:
        yield server


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("https://host/v1/", "https://host/v1"),
        ("https://host/openai/v2", "https://host/openai/v2"),
    ],
)
def test_a_url_without_a_path_means_v1(url, full):
    assert Endpoint(url, "m").url == full


def test_no_url():
    with pytest.raises(ValueError, match=r"'host:8000' is no URL"):
        Endpoint("host:8000", "m")


def test_a_reply_comes_raw(server):
    reply = Endpoint(server.url, "m").complete(BODY)
    assert reply["choices"][0]["message"]["role"] == "assistant"
    assert text(reply) == "hello" and server.bodies == [BODY]


def test_what_is_no_chat_completion_is_transient(server):
    server.faults = ["other"]
    with pytest.raises(TransientError, match="no chat completion"):
        Endpoint(server.url, "m").complete(BODY)
    with pytest.raises(TransientError, match="content is no text"):
        text({"choices": [{"message": {"content": 5}}]})


def test_a_reply_without_text_is_empty(server):
    server.faults = ["null"]
    assert text(Endpoint(server.url, "m").complete(BODY)) == ""


@pytest.mark.parametrize(
    ("reason", "usage", "expected"),
    [
        ("stop", {"completion_tokens": 7}, (True, 7)),
        ("length", {"completion_tokens": "7"}, (False, None)),
        ("content_filter", {}, (None, None)),
        (None, None, (None, None)),
        (["stop"], 7, (None, None)),
    ],
)
def test_how_a_reply_ended(reason, usage, expected):
    choice = {"message": {"content": "a"}, "finish_reason": reason}
    reply = {"choices": [choice], "usage": usage}
    assert (finished(reply), num_tokens(reply)) == expected
    bare = {"choices": [{"message": {"content": "a"}}]}
    assert finished(bare) is num_tokens(bare) is None


# ------------------------------------------------------------------------------ check
def test_a_server_that_is_fit_passes():
    with ScriptedChat(needs_key=True) as server:
        Endpoint(server.url, "m", api_key=KEY).check()
        assert server.bodies == []


@pytest.mark.parametrize(("key", "given"), [("", "no API key"), ("x", "the API key")])
def test_a_wrong_key(key, given):
    with ScriptedChat(needs_key=True) as server:
        message = rf"{server.url}/v1 does not accept {given} .*HTTP 401: Incorrect"
        with pytest.raises(ValueError, match=message):
            Endpoint(server.url, "m", api_key=key).check()


def test_an_unknown_model_and_a_wrong_path(server):
    with pytest.raises(ValueError, match=r"serves m, not 'n' \(HTTP 404: The model"):
        Endpoint(server.url, "n").check()
    message = r"/other/v1 has no chat there \(HTTP 404: Not Found\): give the URL that"
    with pytest.raises(ValueError, match=message):
        Endpoint(f"{server.url}/other/v1", "m").check()


def test_nobody_listens_or_another_service_does(server):
    endpoint = Endpoint(server.url, "m")
    server.always = "html"
    with pytest.raises(ValueError, match=r"does not answer \(a reply that is no JSON"):
        endpoint.check()
    server.kill()
    with pytest.raises(ValueError, match=r"does not answer \(.*refused.*correct its URL"):
        endpoint.check()
