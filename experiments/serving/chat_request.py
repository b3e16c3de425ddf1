"""What a chat request asks for; whatever would change the answer and is not there is refused."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.serving import fields
from experiments.serving.api_error import ApiError, bad
from vade_jax.rollout.engine import Sampling

USED = (
    *("model", "messages", "max_tokens", "max_completion_tokens", "temperature"),
    *("top_p", "top_k", "n", "seed", "stop", "stream"),
)
# Fields that change no answer here, whatever their value.
HARMLESS = (
    *("user", "metadata", "store", "stream_options", "service_tier", "request_id"),
    *("safety_identifier", "prompt_cache_key", "parallel_tool_calls", "priority"),
    "dataset",  # VLMEvalKit says which
)
# Fields that change nothing at these values alone; null is always one of them.
NEUTRAL = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "ignore_eos": (False,),
    "echo": (False,),
    "skip_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}
_MAX_STOPS = 16


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may ask for, and what it gets where it does not say.

    Attributes:
      default: how tokens are drawn.
      max_tokens: of an answer.
      num_answers: the largest n.
    """

    default: Sampling
    max_tokens: int
    num_answers: int


@dataclasses.dataclass(frozen=True)
class ChatRequest:
    """A request whose fields have been looked at; the messages have not.

    Attributes:
      messages: of the conversation.
      sampling: how tokens are drawn.
      num_answers: n.
      seed: decides every draw; None: no two answers are alike.
      stop: an answer ends before the first of these.
      stream: the answer is wanted as events.
      ignored: fields of `HARMLESS` that were there.
    """

    messages: Sequence[Any]
    sampling: Sampling
    num_answers: int
    seed: int | None
    stop: tuple[str, ...]
    stream: bool
    ignored: tuple[str, ...]


def parse(body: Any, model: str, limits: Limits) -> ChatRequest:
    """Returns what the body of a request asks for.

    Raises:
      ApiError: 404 for another model than `model`, 400 for all else that is wrong.
    """
    if not isinstance(body, Mapping):
        raise bad(None, f"the body is a {type(body).__name__}: send a JSON object")
    body = {name: value for name, value in body.items() if value is not None}
    _check_model(body, model)
    _check_names(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad("messages", "messages: give a list of at least one message")
    return ChatRequest(
        messages=messages,
        sampling=_sampling(body, limits),
        num_answers=fields.whole(body, "n", 1, 1, limits.num_answers),
        seed=fields.whole(body, "seed", None, -(2**63), 2**63 - 1),
        stop=fields.texts(body, "stop", _MAX_STOPS),
        stream=fields.flag(body, "stream"),
        ignored=tuple(name for name in HARMLESS if name in body),
    )


def _check_model(body, model):
    asked = body.get("model")
    if not isinstance(asked, str):
        raise bad("model", f"model: give the name of the model, {model!r}")
    if asked != model:
        message = f"the model {asked!r} is not served here, {model!r} is"
        raise ApiError(404, message, "model", "model_not_found")


def _check_names(body):
    for name, value in body.items():
        if name in USED or name in HARMLESS:
            continue
        if name not in NEUTRAL:
            raise bad(name, f"{name} is unknown here: leave it out", "unknown_field")
        if not any(value == plain for plain in NEUTRAL[name]):
            message = f"{name}={value!r:.100} is not supported: leave it out"
            raise bad(name, message, "unsupported_value")


def _sampling(body, limits):
    default = limits.default
    return Sampling(
        temperature=fields.number(body, "temperature", default.temperature, 0, 2),
        top_p=fields.number(body, "top_p", default.top_p, 0, 1),
        top_k=max(0, fields.whole(body, "top_k", default.top_k, -1, math.inf)),
        max_tokens=_max_tokens(body, limits),
    )


def _max_tokens(body, limits):
    """Returns the longest answer, under either of the two names that it has."""
    names = ("max_tokens", "max_completion_tokens")
    given = [name for name in names if name in body]
    if len({body[name] for name in given if isinstance(body[name], int)}) > 1:
        raise bad(names[1], f"{' and '.join(names)} differ: give one of them")
    name = given[0] if given else names[0]
    return fields.whole(body, name, limits.default.max_tokens, 1, limits.max_tokens)
