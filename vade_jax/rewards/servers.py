"""Reward functions that ask a server: a language model as the judge, or a reward model behind a URL.

    # my_rewards.py; --config.reward.function=my_rewards.py:judge --config.reward.concurrency=8
    judge = servers.Judge("http://localhost:8000", "Qwen/Qwen2.5-72B-Instruct")

Both are functions as `rewards.functions` describes them, in TRL too. A failed request is
repeated, unless that cannot help. An answer that the server cannot judge has no verdict; a wrong key, model
or path ends the run. Their counts become the metrics `reward/<name>/*`.
"""

import collections
import logging
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

from vade_jax import http
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
    _, closed, said = reply.casefold().rpartition("</think>")
    words = re.findall(r"[^\W_]+", said)
    last = re.findall(r"[^\W_]+", said.strip().rpartition("\n")[2])
    verdict = {"yes": 1.0, "no": 0.0}
    if not words or (not closed and "<think>" in said):
        return None
    if words[0] in verdict:
        is_both = re.match(r"[\W_]*(?:yes|no)\s*(?:/|or\b|and\b)\s*(?:yes|no)\b", said)
        return None if is_both else verdict[words[0]]
    return verdict.get(last[-1])


class Client:
    """Sends requests to one server from a bounded number of threads, and counts them.

    Args:
        url: http(s)://host[:port][/path].
        api_key_env: the environment variable that holds the key; empty: none.
        concurrency: requests in flight, over all calls.
        retries: the number of retries of a request.
        timeout_s: the longest wait for a reply.
        backoff_s: the first pause before a retry (see `http.retrying`).

    Raises:
        ValueError: the URL is not valid, or the variable of the key is not set.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key_env: str = "",
        concurrency: int = 16,
        retries: int = 3,
        timeout_s: float = 60.0,
        backoff_s: float = 1.0,
    ):
        self._http = http.Client(
            url, timeout_s=timeout_s, headers=http.bearer(api_key_env), by_proxy=True
        )
        self._tries, self._backoff_s = retries + 1, backoff_s
        self._threads = futures.ThreadPoolExecutor(concurrency, "reward_server")
        self._counts, self._lock = collections.Counter(), threading.Lock()
        self._is_down = False

    def map(self, function: Callable[[Any], Any], inputs: Sequence[Any]) -> list[Any]:
        """Returns `function(x)` of all inputs, made in the client's threads."""
        return list(self._threads.map(function, inputs))

    def ask(self, path: str, body: Any, read: Callable[[Any], Any]) -> Any:
        """Returns what `read` finds in a reply; None if no reply has it after all tries.

        If `read` raises, the request is repeated, as if the reply were missing.

        Raises:
            RuntimeError: the server has no such path or model, or rejects the key.
        """
        start = time.perf_counter()
        retrying = http.retrying(
            self._tries, self._backoff_s, on_retry=lambda: self.count(retries=1)
        )
        self.count(requests=1)

        def attempt() -> Any:
            reply = self._http.ask("POST", path, body)
            try:
                return read(reply)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise http.TransientError(f"a reply of another form: {error!r}") from error

        try:
            found = retrying(attempt)
            self._is_down = False
            return found
        except http.RefusedError as error:
            if error.status in http.HOPELESS:
                raise RuntimeError(f"server {self._http.url}{path}: {error}") from error
        except http.TransientError as error:
            if not self._is_down:  # printed once, not for each of a thousand answers
                logging.getLogger(__name__).warning("no reply from %s: %s", self._http.url, error)
            self._is_down = True
        finally:
            self.count(seconds=time.perf_counter() - start)
        self.count(failures=1)
        return None

    def count(self, **more: float) -> None:
        """Adds to what is counted."""
        with self._lock:
            self._counts.update(more)

    def metrics(self) -> dict[str, float]:
        """Returns what was counted since the last call."""
        with self._lock:
            counts, self._counts = self._counts, collections.Counter()
        return {"requests": 0, "retries": 0, "failures": 0, **counts}


class Judge:
    """A language model behind OpenAI's chat API that judges one answer in each request.

    Args:
        url: the server; without a path /v1 is meant.
        model: the model's name on the server.
        question: the question, with {prompt}, {completion} and columns of the data in braces.
        read: reply -> reward; None if the reply has none.
        fields: other fields of the request, such as max_tokens.
        prices: the prices of a million tokens of requests and of replies, for `cost` in the metrics.
        **options: arguments of `Client`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        question: str = QUESTION,
        read: Callable[[str], float | None] = yes_or_no,
        fields: Mapping[str, Any] = {"temperature": 0.0},
        prices: tuple[float, float] = (0.0, 0.0),
        **options: Any,
    ):
        url = url.rstrip("/")
        self._client = Client(url if urllib.parse.urlsplit(url).path else url + "/v1", **options)
        self._request = {"model": model, **fields}
        self._question, self._read, self._prices = question, read, prices
        self.metrics = self._client.metrics
        self.__name__ = "judge"  # TRL asks for it

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Sequence[Any]
    ) -> list[float | None]:
        """Returns the result of `read` for each answer; None without a reply."""
        said = {**columns, "prompt": texts(prompts), "completion": texts(completions)}
        rows = [{k: x[n] for k, x in said.items() if _per_answer(x)} for n in range(len(prompts))]
        return self._client.map(self._judge, rows)

    def _judge(self, row: Mapping[str, Any]) -> float | None:
        message = {"role": "user", "content": self._question.format(**row)}
        request = {**self._request, "messages": [message]}
        reply = self._client.ask("/chat/completions", request, _said)
        if reply is None:
            return None
        text, tokens = reply
        cost = sum(n * price for n, price in zip(tokens, self._prices, strict=True)) / 1e6
        found = self._read(text)
        self._client.count(
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            cost=cost,
            unreadable=found is None,
        )
        return found


class RewardServer:
    """A reward model behind a URL, which gets all answers to a prompt in one request.

    The request is {"prompts": texts, "completions": texts, and the columns}, the reply {"rewards": [...]}
    with a number or null for each answer, and optionally {"correct": [...]}.

    Args:
        url: the server, with its path.
        columns: the data's columns to send as well.
        **options: arguments of `Client`.
    """

    def __init__(self, url: str, *, columns: Sequence[str] = ("answer",), **options: Any):
        path = urllib.parse.urlsplit(url).path
        self._client = Client(url.removesuffix(path), **options)
        self._path, self._columns = path or "/", columns
        self.metrics = self._client.metrics
        self.__name__ = "reward_server"

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Sequence[Any]
    ):
        """Returns the server's rewards, and which answers are correct if it says so."""
        body = {"prompts": texts(prompts), "completions": texts(completions)}
        body |= {name: list(columns[name]) for name in self._columns}
        ask = lambda body: self._client.ask(self._path, body, _rewards)
        (found,) = self._client.map(ask, [body])
        return [None] * len(prompts) if found is None else found


def _said(reply: Any) -> tuple[str, tuple[int, int]]:
    """Returns the text of a chat completion, and how many tokens the request and the text have."""
    text, usage = reply["choices"][0]["message"]["content"] or "", reply.get("usage") or {}
    tokens = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
    if not isinstance(text, str) or not all(isinstance(n, int) for n in tokens):
        raise TypeError(f"content {text!r:.80}, tokens {tokens!r:.80}")
    return text, (tokens[0], tokens[1])


def _rewards(reply: Any) -> Any:
    """Returns the rewards, and what is correct where the reply has it."""
    rewards, correct = reply["rewards"], reply.get("correct", [])
    if not (isinstance(rewards, list) and isinstance(correct, list)):
        raise TypeError(f"rewards {rewards!r:.80}, correct {correct!r:.80}")
    return (rewards, correct) if "correct" in reply else rewards


def _per_answer(values: Any) -> bool:
    """Returns whether a keyword of TRL is a column: it also gives its trainer's state."""
    return isinstance(values, Sequence) and not isinstance(values, str)
