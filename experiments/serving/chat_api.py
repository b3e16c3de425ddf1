"""The calls of the API, from JSON to JSON; HTTP is elsewhere."""

import bisect
import collections
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from absl import logging

from experiments.serving import chat_request
from experiments.serving.batcher import Job
from experiments.serving.decoding import Answer
from vade_jax.types import Prompt


class ChatApi:
    """Answers chats of one model.

    Args:
      model: the name it is served under.
      limits: of a request.
      make_prompt: messages -> prompt.
      submit: job -> its answers to come.
      decode: tokens -> text.
      context: tokens of the longest prompt and answer together.
    """

    def __init__(
        self,
        model: str,
        limits: chat_request.Limits,
        *,
        make_prompt: Callable[[Sequence[Any]], Prompt],
        submit: Callable[[Job], Future],
        decode: Callable[[np.ndarray], str],
        context: int,
    ):
        self.model = model
        self._limits, self._context = limits, context
        self._make_prompt, self._submit, self._decode = make_prompt, submit, decode
        self._created = int(time.time())
        self._ignored: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def models(self) -> dict[str, Any]:
        """Returns the list of the one model."""
        card = {
            "id": self.model,
            "object": "model",
            "created": self._created,
            "owned_by": "vade_jax",
            "max_model_len": self._context,
        }
        return {"object": "list", "data": [card]}

    def chat(self, body: Any) -> dict[str, Any]:
        """Returns a chat completion; where a stream is asked for, one chunk that has all of it.

        Raises:
          ApiError: the request is wrong; anything else is the engine's failure.
        """
        request = chat_request.parse(body, self.model, self._limits)
        self._count(request.ignored)
        prompt = self._make_prompt(request.messages)
        job = Job(prompt, request.num_answers, request.sampling, request.seed)
        answers = self._submit(job).result()
        ended = [ending(answer, request.stop, self._decode) for answer in answers]
        said = "delta" if request.stream else "message"
        choices = [
            {
                "index": i,
                said: {"role": "assistant", "content": text},
                "logprobs": None,
                "finish_reason": reason,
            }
            for i, (text, _, reason) in enumerate(ended)
        ]
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": f"chat.completion{'.chunk' * request.stream}",
            "created": int(time.time()),
            "model": self.model,
            "choices": choices,
            "usage": _usage(prompt.length, sum(num for _, num, _ in ended)),
        }

    def ignored(self) -> dict[str, int]:
        """Returns the fields that were ignored, and in how many requests."""
        with self._lock:
            return dict(self._ignored)

    def _count(self, names):
        with self._lock:
            new = [name for name in names if name not in self._ignored]
            self._ignored.update(names)
        for name in new:
            logging.warning("requests have the field %s, which changes nothing", name)


def ending(
    answer: Answer, stop: Sequence[str], decode: Callable[[np.ndarray], str]
) -> tuple[str, int, str]:
    """Returns the text before the first stop, its tokens as generated, and why it ends."""
    text, length = decode(answer.token_T), len(answer.token_T)
    places = [place for place in (text.find(word) for word in stop) if place >= 0]
    if not places:
        return text, length, "stop" if answer.finished else "length"
    has_stop = lambda t: any(word in decode(answer.token_T[:t]) for word in stop)
    used = bisect.bisect_left(range(length), True, key=has_stop)
    return text[: min(places)], used, "stop"


def _usage(prompt, completion):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
