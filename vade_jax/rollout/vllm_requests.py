"""What is asked of a vLLM server and what its replies must hold: plain data, no network.

A request shows the trainer's own text and pixels. The text is used word for word, through a chat
template that repeats it; the ids that the server made of it come back and must be the trainer's.
Every sampling default of the server is overruled.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from PIL import Image

from vade_jax.rollout.engine import EngineFailure, Sampling
from vade_jax.types import Prompt, Rollouts

# What a server must be started with, as `vllm_process.launch` takes it.
SERVER_OPTIONS = {
    "trust_request_chat_template": True,  # the text comes ready-made
    "logprobs_mode": "processed_logprobs",  # of the distribution drawn from
}
MAX_ANSWERS = 64  # of one request
_ECHO = (  # whether the server takes contents apart or joins them to a string
    "{% for message in messages %}{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
_MIN_LOGP = -0.01  # of a token that was given a bias of 100


class Fault(Exception):  # noqa: N818 (says what happened)
    """A request failed in a way that asking again can mend."""


class Job(NamedTuple):
    """One request: `count` answers to prompt m, numbers `first` and on of the whole call."""

    m: int
    first: int
    count: int
    seed: int


class Answer(NamedTuple):
    """The tokens of one answer, the end token included."""

    token_T: np.ndarray
    logp_T: np.ndarray
    finished: bool  # False when cut at the length limit


def plan(num_rollouts_M: np.ndarray, key: jax.Array) -> list[Job]:
    """Returns the requests that make `num_rollouts_M[m]` answers to each prompt m.

    A request's seed comes from `key` and the number of its first answer; the server adds an
    answer's place in the request.
    """
    first_M = np.cumsum(num_rollouts_M) - num_rollouts_M
    parts = [
        (m, int(first + done), int(min(count - done, MAX_ANSWERS)))
        for m, (first, count) in enumerate(zip(first_M, num_rollouts_M, strict=True))
        for done in range(0, count, MAX_ANSWERS)
    ]
    seeds = _seeds(key, np.array([first for _, first, _ in parts], np.uint32))
    return [Job(*part, seed) for part, seed in zip(parts, seeds, strict=True)]


def _seeds(key, first_J):
    """One number below 2^62 for each: adding a place in the request keeps it an int64."""
    bits = lambda first: jax.random.bits(jax.random.fold_in(key, first), (2,), "uint32")
    high_J, low_J = np.asarray(jax.vmap(bits)(first_J), np.int64).T
    return ((high_J >> 2 << 32) + low_J).tolist()


def chat(
    prompt: Prompt,
    job: Job,
    *,
    model: str,
    sampling: Sampling,
    stop_ids: Sequence[int],
    banned_ids: Sequence[int],
) -> dict[str, Any]:
    """Returns the body of a request to /v1/chat/completions.

    Greedy answers to one prompt are all the same, so one is asked for.
    """
    text = {"type": "text", "text": prompt.text}
    pictures = [
        {"type": "image_url", "image_url": {"url": data_url(image)}}
        for image in prompt.images
    ]
    return {
        "model": model,
        "messages": [{"role": "user", "content": [text, *pictures]}],
        "chat_template": _ECHO,
        "n": job.count if sampling.temperature else 1,
        "seed": job.seed,
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
        "ignore_eos": True,  # no other token ends an answer
        "skip_special_tokens": False,
        "logprobs": True,
        "return_token_ids": True,
    }


def data_url(image: np.ndarray) -> str:
    """Returns uint8 [height, width, 3] as a PNG data URL: the same pixels for the server."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def read(
    reply: Mapping[str, Any], prompt: Prompt, job: Job, sampling: Sampling
) -> list[Answer]:
    """Returns the `job.count` answers of a reply to `chat`.

    Raises:
        Fault: answers are missing, cut off or too long.
        EngineFailure: the server saw other tokens than the trainer.
    """
    try:
        check_prompt(reply["prompt_token_ids"], prompt)
        choices = sorted(reply["choices"], key=lambda choice: choice["index"])
        answers = [_answer(choice, sampling.max_tokens) for choice in choices]
        places = [choice["index"] for choice in choices]
    except (KeyError, TypeError) as error:
        raise Fault(f"a reply without {error}") from error
    if sampling.temperature == 0:
        answers, places = answers * job.count, list(range(len(places) * job.count))
    if places != list(range(job.count)):
        raise Fault(f"a reply with answers {places} instead of {job.count}")
    return answers


def check_prompt(token_ids: Sequence[int], prompt: Prompt) -> None:
    """Raises EngineFailure unless vLLM read the tokens that the trainer made."""
    if np.array_equal(token_ids, prompt.token_P):
        return
    raise EngineFailure(
        f"prompt {prompt.uid!r}: vLLM made {len(token_ids)} tokens of it, the "
        f"trainer {prompt.length}. Its images were resized again or its tokenizer is "
        "another: start it on the policy's checkpoint, with the run's limits: "
        '--mm-processor-kwargs \'{"min_pixels": ..., "max_pixels": ...}\''
    )


def _answer(choice, max_tokens):
    token_T = np.array(choice["token_ids"], np.int32)
    logp_T = [token["logprob"] for token in choice["logprobs"]["content"]]
    if choice["finish_reason"] not in ("stop", "length"):
        raise Fault(f"an answer was ended: {choice['finish_reason']}")
    if not 0 < len(token_T) == len(logp_T) <= max_tokens:
        raise Fault(f"an answer of {len(token_T)} tokens, {len(logp_T)} log-probs")
    finished = choice["finish_reason"] == "stop"
    return Answer(token_T, np.array(logp_T, np.float32), finished)


def lay_out(
    answers: Sequence[Answer],
    num_rollouts_M: np.ndarray,
    *,
    max_tokens: int,
    pad: int,
    params_version: int,
) -> Rollouts:
    """Returns the answers of all prompts, in order, as padded arrays."""
    N = len(answers)
    token_NT = np.full((N, max_tokens), pad, np.int32)
    logp_NT = np.zeros((N, max_tokens), np.float32)
    for token_T, logp_T, answer in zip(token_NT, logp_NT, answers, strict=True):
        token_T[: len(answer.token_T)] = answer.token_T
        logp_T[: len(answer.logp_T)] = answer.logp_T
    groups = np.arange(len(num_rollouts_M), dtype=np.int32)
    return Rollouts(
        token_NT=token_NT,
        length_N=np.array([len(answer.token_T) for answer in answers], np.int32),
        logp_NT=logp_NT,
        group_N=np.repeat(groups, num_rollouts_M),
        finished_N=np.array([answer.finished for answer in answers], bool),
        valid_N=np.ones(N, bool),
        params_version=np.int32(params_version),
    )


def probe(model: str, stop_id: int) -> dict[str, Any]:
    """Returns a request whose one answer is the end token, by a bias of 100."""
    prompt = Prompt("", "a", np.zeros(0, np.int32), np.zeros((0, 3), np.int32), ())
    body = chat(
        prompt,
        Job(0, 0, 1, 0),
        model=model,
        sampling=Sampling(max_tokens=1),
        stop_ids=[stop_id],
        banned_ids=[],
    )
    return {**body, "logit_bias": {str(stop_id): 100}}


def is_processed(reply: Mapping[str, Any]) -> bool:
    """Returns whether a reply to `probe` has the log-prob of the distribution drawn from."""
    return bool(_answer(reply["choices"][0], 1).logp_T[0] > _MIN_LOGP)
