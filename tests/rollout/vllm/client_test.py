"""Requests and replies as plain data; servers are in server_test.py and real_server_test.py."""

import base64
import io
import json

import jinja2.sandbox
import numpy as np
import pytest
from PIL import Image

from tests.http_server import question
from vade_jax.http import TransientError
from vade_jax.rollout.engine import EngineFailure, Sampling
from vade_jax.rollout.vllm import client
from vade_jax.rollout.vllm.client import Request


def body(prompt, **options):
    defaults = dict(
        model="policy",
        sampling=Sampling(max_tokens=4),
        stop_ids=(7, 6),
        banned_ids=(5, 3),
    )
    return client.chat_body(prompt, Request(0, 0, 3, 11), **defaults | options)


def reply(prompt, tokens_N, ended="stop"):
    choices = [
        {
            "index": n,
            "token_ids": list(tokens),
            "finish_reason": ended,
            "logprobs": {"content": [{"logprob": -t / 8} for t in tokens]},
        }
        for n, tokens in enumerate(tokens_N)
    ]
    return {"choices": choices, "prompt_token_ids": prompt.token_P.tolist()}


# ------------------------------------------------------------------------------ requests
def test_no_sampling_default_of_the_server_is_left():
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=40, max_tokens=12)
    found = body(question("a"), sampling=sampling)
    assert json.loads(json.dumps(found)) == found
    del found["messages"], found["chat_template"]
    assert found == {
        "model": "policy",
        "n": 3,
        "seed": 11,
        "max_tokens": 12,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": {"5": -100, "3": -100},
        "stop_token_ids": [7, 6],
        "ignore_eos": True,
        "skip_special_tokens": False,
        "logprobs": True,
        "return_token_ids": True,
    }


def test_pixels_are_shown_as_they_are():
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*size, 3), np.uint8) for size in ((28, 56), (84, 28))]
    content = body(question("a", images=pictures))["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url"]
    for part, picture in zip(content[1:], pictures, strict=True):
        head, data = part["image_url"]["url"].split(",")
        assert head == "data:image/png;base64"
        shown = Image.open(io.BytesIO(base64.b64decode(data)))
        np.testing.assert_array_equal(np.asarray(shown), picture)


@pytest.mark.parametrize("joined", [False, True])
def test_the_template_repeats_the_text_word_for_word(joined):
    """VLLM hands contents over as parts or, if told so, as a string."""
    text = "<|im_start|>user\n\n {{ x }} é\n<|im_end|>\n<|im_start|>assistant\n"
    found = body(question("a"))
    parts = [{"type": "text", "text": text}, {"type": "image"}]
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(found["chat_template"])
    content = text if joined else parts
    messages = [{"role": "user", "content": content}]
    assert template.render(messages=messages, add_generation_prompt=True) == text


# ------------------------------------------------------------------------------ replies
def test_answers_are_read_in_order():
    prompt = question("a")
    sampling = Sampling(max_tokens=4)
    sent = reply(prompt, [[1, 2, 7], [3, 7], [4, 4, 4, 4]])
    sent["choices"] = sent["choices"][::-1]
    sent["choices"][0]["finish_reason"] = "length"
    answers = client.read_answers(sent, prompt, Request(0, 0, 3, 0), sampling)
    assert [answer.token_T.tolist() for answer in answers] == [
        [1, 2, 7],
        [3, 7],
        [4, 4, 4, 4],
    ]
    np.testing.assert_array_equal(answers[0].logp_T, [-1 / 8, -2 / 8, -7 / 8])
    assert [answer.finished for answer in answers] == [True, True, False]


def test_a_greedy_answer_is_asked_for_once_and_is_every_answer():
    prompt, greedy = question("a"), Sampling(temperature=0, max_tokens=4)
    assert body(prompt, sampling=greedy)["n"] == 1
    answers = client.read_answers(reply(prompt, [[1, 7]]), prompt, Request(0, 0, 3, 0), greedy)
    assert [answer.token_T.tolist() for answer in answers] == [[1, 7]] * 3


def test_other_tokens_than_the_trainers_are_an_error():
    prompt = question("cat")
    sent = reply(prompt, [[1, 7]]) | {"prompt_token_ids": [1, 2, 3, 4]}
    with pytest.raises(EngineFailure, match=r"'cat'.* 4 tokens of it, the trainer 3.*min_pixels"):
        client.read_answers(sent, prompt, Request(0, 0, 1, 0), Sampling(max_tokens=4))
    sent["prompt_token_ids"] = (prompt.token_P + 1).tolist()
    with pytest.raises(EngineFailure, match="mm-processor-kwargs"):
        client.read_answers(sent, prompt, Request(0, 0, 1, 0), Sampling(max_tokens=4))


def lengthen(choice, count):
    choice["token_ids"] = [1] * count
    choice["logprobs"]["content"] = [{"logprob": -1.0}] * count


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda sent: sent["choices"].pop(), r"answers \[0\] instead of 2"),
        (lambda sent: sent["choices"][1].update(index=0), r"\[0, 0\] instead of 2"),
        (lambda sent: sent["choices"][0].update(finish_reason="abort"), "abort"),
        (lambda sent: sent["choices"][0]["token_ids"].pop(), "1 tokens, 2 log-probs"),
        (lambda sent: sent["choices"][0].update(logprobs=None), "another form"),
        (lambda sent: sent.pop("choices"), "choices"),
        (lambda sent: sent["choices"][1].update(token_ids=None), "another form"),
        (lambda sent: lengthen(sent["choices"][0], 5), "5 tokens"),
    ],
)
def test_replies_that_are_not_whole_can_be_asked_for_again(change, words):
    prompt = question("a")
    sent = reply(prompt, [[1, 7], [2, 7]])
    client.read_answers(sent, prompt, Request(0, 0, 2, 0), Sampling(max_tokens=4))
    change(sent)
    with pytest.raises(TransientError, match=words):
        client.read_answers(sent, prompt, Request(0, 0, 2, 0), Sampling(max_tokens=4))


def test_the_probe_tells_processed_log_probs_from_raw_ones():
    probe = client.probe_body("policy", 7)
    assert probe["logit_bias"] == {"7": 100} and probe["max_tokens"] == 1
    sent = reply(question("a"), [[7]])
    sent["choices"][0]["logprobs"]["content"][0]["logprob"] = -1e-7
    assert client.has_processed_logprobs(sent)
    sent["choices"][0]["logprobs"]["content"][0]["logprob"] = -2.5
    assert not client.has_processed_logprobs(sent)
