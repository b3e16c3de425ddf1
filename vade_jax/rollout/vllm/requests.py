"""Requests to vLLM's chat API and their replies, as plain data.

A request carries the trainer's own text and pixels. A chat template that repeats the text keeps it
unchanged. The server returns the token ids that it made of the text, and they must equal the trainer's.
Every request overrides all sampling defaults of the server.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image

from vade_jax.rollout.engine import Answer, EngineFailure, Sampling
from vade_jax.types import Prompt

# vLLM passes a message's content to the template as a list of parts or, with other options, as a string.
_REPEAT = (
    "{% for message in messages %}{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
_CERTAIN = -0.01  # a token with a logit bias of 100 has a log-prob above this


def seeds(num_rollouts_M: np.ndarray, key: jax.Array) -> list[int]:
    """Returns the seed of each prompt's request, which depends on `key` and the number of its first answer.

    The server adds the index of each answer within the request.
    """
    first_M = (np.cumsum(num_rollouts_M) - num_rollouts_M).astype(np.uint32)

    def bits(first):
        return jax.random.bits(jax.random.fold_in(key, first), (2,), "uint32")

    high_M, low_M = np.asarray(jax.vmap(bits)(first_M), np.int64).T
    # Below 2^62, so they still fit an int64 after the server has added the index.
    return ((high_M >> 2 << 32) + low_M).tolist()


def chat_body(
    prompt: Prompt,
    count: int,
    seed: int,
    sampling: Sampling,
    *,
    model: str,
    stop_ids: Sequence[int],
    banned_ids: Sequence[int],
) -> dict[str, Any]:
    """Returns the body of a request to /v1/chat/completions for `count` answers.

    At temperature 0 all answers to a prompt are the same, so the body asks for one.
    """
    text = {"type": "text", "text": prompt.text}
    pictures = [
        {"type": "image_url", "image_url": {"url": data_url(image)}} for image in prompt.images
    ]
    return {
        "model": model,
        "messages": [{"role": "user", "content": [text, *pictures]}],
        "chat_template": _REPEAT,
        "n": count if sampling.temperature else 1,
        "seed": seed,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": {str(i): -100 for i in banned_ids},
        "stop_token_ids": list(stop_ids),
        "ignore_eos": True,  # only `stop_token_ids` end an answer
        "skip_special_tokens": False,
        "logprobs": True,
        "return_token_ids": True,
    }


def data_url(image: np.ndarray) -> str:
    """Returns a uint8 image [height, width, 3] as a PNG data URL, which keeps its pixels exactly."""
    buffer = io.BytesIO()
    # Level 1: the server is near, so compressing more would take longer than sending.
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def read_answers(
    reply: Mapping[str, Any], prompt: Prompt, count: int, sampling: Sampling
) -> list[Answer]:
    """Returns the `count` answers in a reply to `chat_body`.

    Raises:
        ValueError, LookupError, TypeError: answers are missing, incomplete or too long, or the reply has
            another form. The request can be repeated.
        EngineFailure: the server tokenized the prompt differently from the trainer.
    """
    token_ids = reply["prompt_token_ids"]
    if not np.array_equal(token_ids, prompt.token_P):
        raise EngineFailure(
            f"prompt {prompt.uid!r}: vLLM made {len(token_ids)} tokens of it, the "
            f"trainer {prompt.length}. Its images were resized again or its tokenizer is "
            "another: start it on the policy's checkpoint, with the run's limits: "
            '--mm-processor-kwargs \'{"min_pixels": ..., "max_pixels": ...}\''
        )
    choices = sorted(reply["choices"], key=lambda choice: choice["index"])
    asked = count if sampling.temperature else 1
    if [choice["index"] for choice in choices] != list(range(asked)):
        raise ValueError(f"a reply without {asked} answers")
    answers = [_answer(choice, sampling.max_tokens) for choice in choices]
    return answers if asked == count else answers * count


def _answer(choice: Mapping[str, Any], max_tokens: int) -> Answer:
    token_T = np.array(choice["token_ids"], np.int32)
    logp_T = [token["logprob"] for token in choice["logprobs"]["content"]]
    if choice["finish_reason"] not in ("stop", "length"):  # such as "abort"
        raise ValueError(f"an answer was ended: {choice['finish_reason']}")
    if not 0 < len(token_T) == len(logp_T) <= max_tokens:
        raise ValueError(f"an answer of {len(token_T)} tokens, {len(logp_T)} log-probs")
    finished = choice["finish_reason"] == "stop"
    return Answer(token_T, np.array(logp_T, np.float32), finished)


def probe_body(model: str, stop_id: int, longest: int) -> dict[str, Any]:
    """Returns the body of a request whose only answer is the end token, forced by a logit bias of 100.

    A server without room for the `longest` prompt and answer together refuses it.
    """
    # Two tokens to any tokenizer: linear layers of vLLM 0.32's CPU build fail on a prompt of one.
    prompt = Prompt("", "a1", np.zeros(0, np.int32), np.zeros((0, 3), np.int32), ())
    drawn = Sampling(max_tokens=longest - 2)
    body = chat_body(prompt, 1, 0, drawn, model=model, stop_ids=[stop_id], banned_ids=[])
    return {**body, "logit_bias": {str(stop_id): 100}}


def has_processed_logprobs(reply: Mapping[str, Any]) -> bool:
    """Returns whether the log-prob in a reply to `probe_body` includes the logit bias.

    With the bias it is almost 0. Without it, one token of a whole vocabulary has a much lower one.
    """
    return bool(_answer(reply["choices"][0], 1).logp_T[0] > _CERTAIN)
