"""Reward functions that ask a server: a language model as the judge, or a reward model behind a URL.

    # my_rewards.py; --config.reward.function=my_rewards.py:judge --config.reward.concurrency=8
    judge = servers.Judge("http://localhost:8000", "Qwen/Qwen2.5-72B-Instruct")

Both are functions as `rewards.functions` describes them, in TRL too. A failed request is repeated, unless
that cannot help. What the server cannot judge has no verdict; a wrong key, model or path is an error.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

from vade_jax import client
from vade_jax.rewards.functions import texts

QUESTION = """Compare a student's answer with the right one.

Question: {prompt}

Right answer: {answer}

Student: {completion}

Does the student come to the right answer? The way there and the form do not matter. Reply yes or no."""


def yes_or_no(reply: str) -> float | None:
    """Returns 1 or 0 for a reply that begins with yes or no, or whose last line ends in it, else None.

    Only what follows </think> counts. Thoughts that were cut off say nothing, and neither does "yes or no".
    """
    _, closed, text = reply.casefold().rpartition("</think>")
    words = re.findall(r"[^\W_]+", text)
    last = re.findall(r"[^\W_]+", text.strip().rpartition("\n")[2])
    verdict = {"yes": 1.0, "no": 0.0}
    if not words or (not closed and "<think>" in text):
        return None
    if words[0] in verdict:
        is_both = re.match(r"[\W_]*(?:yes|no)\s*(?:/|or\b|and\b)\s*(?:yes|no)\b", text)
        return None if is_both else verdict[words[0]]
    return verdict.get(last[-1])


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
        prices: tuple[float, float] = (0.0, 0.0),  # of a million tokens, asked and replied
        **options: Any,  # of `client.Client`
    ):
        super().__init__(client.chat_url(url), **options)
        self._question, self._read, self._prices = question, read, prices
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
            pending.append(self.submit("/chat/completions", body, _text_and_tokens))
        return [self._verdict(_reward(self, future)) for future in pending]

    def _verdict(self, reply: tuple[str, int, int] | None) -> float | None:
        if reply is None:
            return None
        text, asked, replied = reply
        cost = (asked * self._prices[0] + replied * self._prices[1]) / 1e6
        value = self._read(text)
        self.count(
            prompt_tokens=asked, completion_tokens=replied, cost=cost, unreadable=value is None
        )
        return value


class RewardServer(client.Client):
    """A reward model behind a URL with its path, which gets all answers to a prompt in one request.

    The request is {"prompts": texts, "completions": texts, and the columns}, the reply {"rewards": [...]}
    with a number or null for each answer, and optionally {"correct": [...]}.
    """

    __name__ = "reward_server"

    def __init__(self, url: str, *, columns: Sequence[str] = ("answer",), **options: Any):
        super().__init__(url, **options)
        self._columns = columns  # of the data, to send as well

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Sequence[Any]
    ) -> Any:
        """Returns the server's rewards, and which answers are correct if it says so."""
        body = {"prompts": texts(prompts), "completions": texts(completions)}
        body |= {name: list(columns[name]) for name in self._columns}
        rewards = _reward(self, self.submit(self.url, body, _rewards))
        return [None] * len(prompts) if rewards is None else rewards


def _reward(server: client.Client, future: futures.Future[Any]) -> Any:
    """Returns a request's result, None if it failed; raises RuntimeError where all others would fail."""
    result = future.result()
    is_failure = isinstance(result, client.Failure)
    if is_failure and result.is_final:
        raise RuntimeError(f"server {server.url}: {result.why}")
    if is_failure and not server.is_down:  # once, not for each of a thousand answers
        logging.getLogger(__name__).warning("no reply from %s: %s", server.url, result.why)
    server.is_down = is_failure
    return None if is_failure else result


def _text_and_tokens(reply: Any) -> tuple[str, int, int]:
    """Returns the text of a chat completion, and how many tokens the request and the text have."""
    asked, replied = (
        client.num_tokens(reply, x) or 0 for x in ("prompt_tokens", "completion_tokens")
    )
    return client.text_of(reply), asked, replied


def _rewards(reply: Any) -> Any:
    """Returns the rewards, and what is correct where the reply has it."""
    rewards, correct = reply["rewards"], reply.get("correct", [])
    if not (isinstance(rewards, list) and isinstance(correct, list)):
        raise TypeError(f"rewards {rewards!r:.80}, correct {correct!r:.80}")
    return (rewards, correct) if "correct" in reply else rewards
