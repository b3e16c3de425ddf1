"""A reward function that asks a server: a language model as the judge.

    # my_rewards.py; --config.reward.function=my_rewards.py:judge --config.reward.concurrency=8
    judge = servers.Judge("http://localhost:8000", "Qwen/Qwen2.5-72B-Instruct")

It is a function as `rewards.functions` describes them, in TRL too. A failed request is repeated, unless
that cannot help. What the server cannot judge has no verdict; a wrong key, model or path is an error.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vade_jax import client
from vade_jax.rewards.functions import texts

QUESTION = """Compare a student's answer with the right one.

Question: {prompt}

Right answer: {answer}

Student: {completion}

Does the student come to the right answer? The way there and the form do not matter. Reply yes or no."""


def yes_or_no(reply: str) -> float | None:
    """Returns 1 or 0 for a reply whose first or last word is yes or no; None for others, and for "yes or no".

    Only what follows </think> counts, and thoughts that were cut off say nothing.
    """
    _, closed, text = reply.casefold().rpartition("</think>")
    words = re.findall(r"[^\W_]+", text)
    ends = {"yes", "no"}.intersection(words[:1] + words[-1:])
    if len(ends) != 1 or (not closed and "<think>" in text):
        return None
    return float("yes" in ends)


class Judge(client.Client):
    """A language model behind OpenAI's chat API that judges one answer in each request."""

    __name__ = "judge"  # TRL asks for it

    def __init__(
        self,
        url: str,  # without a path it means /v1
        model: str,  # its name on the server
        *,
        question: str = QUESTION,  # with {prompt}, {completion} and columns of the data in braces
        read: Callable[[str], float | None] = yes_or_no,  # reply -> reward; None if it has none
        fields: Mapping[str, Any] = {"temperature": 0.0},  # of the request, such as max_tokens
        **options: Any,  # of `client.Client`
    ):
        super().__init__(client.chat_url(url), **options)
        self._question, self._read = question, read
        self._request = {"model": model, **fields}

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Sequence[Any]
    ) -> list[float | None]:
        """Returns the result of `read` for each answer; None without a reply."""
        columns |= {"prompt": texts(prompts), "completion": texts(completions)}
        # TRL also gives its trainer's state.
        lists = {k: x for k, x in columns.items() if isinstance(x, list | tuple)}
        pending = []
        for n in range(len(prompts)):
            content = self._question.format(**{name: x[n] for name, x in lists.items()})
            body = self._request | {"messages": [{"role": "user", "content": content}]}
            pending.append(self.submit("/chat/completions", body, client.text_of))
        return [self._verdict(future.result()) for future in pending]

    def _verdict(self, reply: Any) -> float | None:
        """Returns the reward in a reply, None if there is none; raises RuntimeError where all would fail."""
        is_failure = isinstance(reply, client.Failure)
        if is_failure and reply.is_final:
            raise RuntimeError(f"server {self.url}: {reply.why}")
        if is_failure and not self.is_down:  # once, not for each of a thousand answers
            logging.getLogger(__name__).warning("no reply from %s: %s", self.url, reply.why)
        self.is_down = is_failure
        return None if is_failure else self._read(reply)
