"""Requests and replies as plain data; the server is in server_test.py and real_server_test.py."""

import base64
import io
import json

import jinja2.sandbox
import numpy as np
import pytest
from PIL import Image

from tests.http_server import question
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.vllm import requests

SAMPLING = Sampling(max_tokens=4)


def body(prompt, sampling=SAMPLING):
    defaults = dict(model="policy", stop_ids=(7, 6), banned_ids=(5, 3))
    return requests.chat_body(prompt, 3, 11, sampling, **defaults)


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
    found = body(question("a"), sampling)
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
    answers = requests.read_answers(sent, prompt, 3, sampling)
    assert [answer.token_T.tolist() for answer in answers] == [
        [1, 2, 7],
        [3, 7],
        [4, 4, 4, 4],
    ]
    np.testing.assert_array_equal(answers[0].logp_T, [-1 / 8, -2 / 8, -7 / 8])
    assert [answer.finished for answer in answers] == [True, True, False]


def lengthen(choice, count):
    choice["token_ids"] = [1] * count
    choice["logprobs"]["content"] = [{"logprob": -1.0}] * count


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: sent["choices"][1].update(index=0),
        lambda sent: sent["choices"][0].update(finish_reason="abort"),
        lambda sent: sent["choices"][0]["token_ids"].pop(),
        lambda sent: sent.pop("choices"),
        lambda sent: lengthen(sent["choices"][0], 5),
    ],
)
def test_replies_that_are_not_whole_are_asked_for_again(change):
    prompt = question("a")
    sent = reply(prompt, [[1, 7], [2, 7]])
    requests.read_answers(sent, prompt, 2, Sampling(max_tokens=4))
    change(sent)
    with pytest.raises((ValueError, LookupError, TypeError)):  # what `Client.submit` repeats
        requests.read_answers(sent, prompt, 2, Sampling(max_tokens=4))
