"""Fields of a request: what they become, and every refusal by name."""

import pytest

from experiments.serving import chat_request
from experiments.serving.api_error import ApiError
from vade_jax.rollout.engine import Sampling

LIMITS = chat_request.Limits(Sampling(1.0, 0.9, 5, 64), max_tokens=100, num_answers=8)
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def parse(**fields):
    return chat_request.parse(BODY | fields, "m", LIMITS)


def test_what_is_not_given_is_the_servers_default():
    found = parse(temperature=None)
    assert found.sampling == LIMITS.default
    assert (found.num_answers, found.seed, found.stop) == (1, None, ())
    assert not found.stream and found.ignored == ()


def test_what_is_given_is_taken():
    found = parse(
        temperature=0, top_p=0.5, top_k=-1, max_tokens=100, n=8, seed=-3, stop="x"
    )
    assert found.sampling == Sampling(0.0, 0.5, 0, 100)
    assert (found.num_answers, found.seed, found.stop) == (8, -3, ("x",))
    assert parse(stop=["a", "b"], stream=True).stop == ("a", "b")
    assert parse(max_completion_tokens=7).sampling.max_tokens == 7
    assert parse(max_completion_tokens=7, max_tokens=7).sampling.max_tokens == 7


def test_fields_that_change_no_answer_are_let_through():
    found = parse(
        user="me",
        logprobs=False,
        tools=[],
        response_format={"type": "text"},
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        logit_bias={},
        logit_processors=None,
    )
    assert found.ignored == ("user",)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": "other"}, "model", "'other' is not served here, 'm' is"),
        ({"model": None}, "model", "give the name of the model, 'm'"),
        ({"messages": None}, "messages", "at least one message"),
        ({"messages": "Hi"}, "messages", "at least one message"),
        ({"temperature": -0.1}, "temperature", "-0.1: must be in 0 .. 2"),
        ({"temperature": float("nan")}, "temperature", "must be in 0 .. 2"),
        ({"temperature": "0"}, "temperature", "'0': give a number"),
        ({"temperature": True}, "temperature", "give a number"),
        ({"top_p": 1.1}, "top_p", "must be in 0 .. 1"),
        ({"top_k": -2}, "top_k", "must be at least -1"),
        ({"n": 9}, "n", "n=9: must be in 1 .. 8"),
        ({"n": 1.5}, "n", "give a whole number"),
        ({"max_tokens": 101}, "max_tokens", "101: must be in 1 .. 100"),
        ({"max_tokens": 0}, "max_tokens", "0: must be in 1 .. 100"),
        (
            {"max_tokens": 5, "max_completion_tokens": 6},
            "max_completion_tokens",
            "differ: give one",
        ),
        ({"seed": 2**63}, "seed", "must be in"),
        ({"seed": "1"}, "seed", "give a whole number"),
        ({"stop": [""]}, "stop", "texts that are not empty"),
        ({"stop": 1}, "stop", "give a text"),
        ({"stop": ["x"] * 17}, "stop", "17 texts, at most 16"),
        ({"stream": 1}, "stream", "true or false"),
        ({"logprobs": True}, "logprobs", "logprobs=True is not supported"),
        ({"tools": [{}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "supported"),
        ({"frequency_penalty": 0.1}, "frequency_penalty", "not supported"),
        ({"presence_penalty": -1}, "presence_penalty", "not supported"),
        ({"logit_bias": {"1": 2}}, "logit_bias", "not supported"),
        ({"temprature": 0}, "temprature", "unknown here: leave it out"),
    ],
)
def test_refusals_name_the_field(fields, param, message):
    with pytest.raises(ApiError) as caught:
        parse(**fields)
    assert message in str(caught.value)
    content = caught.value.content()["error"]
    assert (content["param"], content["type"]) == (param, "invalid_request_error")
    assert caught.value.status == (404 if fields.get("model") == "other" else 400)


@pytest.mark.parametrize("body", [[], "text", 3, None])
def test_a_body_that_is_no_object(body):
    with pytest.raises(ApiError, match="send a JSON object"):
        chat_request.parse(body, "m", LIMITS)
