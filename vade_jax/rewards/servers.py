"""Reward functions that ask a server: a language model as the judge, or a reward model behind a URL.

    # my_rewards.py; --config.reward.function=my_rewards.py:judge --config.reward.concurrency=8
    judge = servers.Judge("http://localhost:8000", "Qwen/Qwen2.5-72B-Instruct")

Both are functions as `rewards.functions` describes them, in TRL too. A failed request is repeated, unless
that cannot help. What the server cannot judge has no verdict; a wrong key, model or path is an error.
"""

import collections
import dataclasses
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


@dataclasses.dataclass(kw_only=True, eq=False)
class Client:
    """Asks one server from a bounded number of threads, and counts it.

    Raises:
        ValueError: the URL is not valid, or the variable of the key is not set.
    """

    url: str = dataclasses.field(kw_only=False)  # http(s)://host[:port][/path]
    api_key_env: str = ""  # environment variable that holds the key; empty: none
    concurrency: int = 16  # requests in flight, over all calls
    retries: int = 3  # of a request
    timeout_s: float = 60.0  # the longest wait for a reply
    backoff_s: float = 1.0  # the first pause before a retry (see `http.retrying`)

    def __post_init__(self):
        headers = http.bearer(self.api_key_env)
        self._http = http.Client(self.url, timeout_s=self.timeout_s, headers=headers, by_proxy=True)
        self._threads = futures.ThreadPoolExecutor(self.concurrency, "reward_server")
        self._counts, self._lock = collections.Counter(), threading.Lock()
        self._is_down = False

    def ask(self, path: str, body: Any, read: Callable[[Any], Any]) -> Any:
        """Returns what `read` finds in a reply; None if no reply has it after all tries.

        If `read` raises, the request is repeated, as if the reply were missing.

        Raises:
            RuntimeError: the server has no such path or model, or rejects the key.
        """

        def attempt() -> Any:
            reply = self._http.ask("POST", path, body)
            try:
                return read(reply)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise http.TransientError(f"a reply of another form: {error!r}") from error

        start, count_retry = time.perf_counter(), lambda: self.count(retries=1)
        try:
            value = http.retrying(self.retries + 1, self.backoff_s, on_retry=count_retry)(attempt)
            self._is_down = False
            return value
        except http.RefusedError as error:
            if error.status in http.HOPELESS:
                raise RuntimeError(f"server {self.url}{path}: {error}") from error
        except http.TransientError as error:
            if not self._is_down:  # printed once, not for each of a thousand answers
                logging.getLogger(__name__).warning("no reply from %s: %s", self.url, error)
            self._is_down = True
        finally:
            self.count(requests=1, seconds=time.perf_counter() - start)
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


@dataclasses.dataclass(kw_only=True, eq=False)
class Judge(Client):
    """A language model behind OpenAI's chat API that judges one answer in each request.

    A URL without a path means /v1.
    """

    model: str = dataclasses.field(kw_only=False)  # its name on the server
    question: str = QUESTION  # with {prompt}, {completion} and columns of the data in braces
    read: Callable[[str], float | None] = yes_or_no  # reply -> reward; None if the reply has none
    # Other fields of the request, such as max_tokens
    fields: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"temperature": 0.0})
    prices: tuple[float, float] = (0.0, 0.0)  # of a million tokens, asked and replied: for `cost`

    __name__ = "judge"  # TRL asks for it

    def __post_init__(self):
        self.url = self.url.rstrip("/")
        self.url += "" if urllib.parse.urlsplit(self.url).path else "/v1"
        super().__post_init__()

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Sequence[Any]
    ) -> list[float | None]:
        """Returns the result of `read` for each answer; None without a reply."""
        columns |= {"prompt": texts(prompts), "completion": texts(completions)}
        # TRL also gives its trainer's state.
        own = {
            k: x for k, x in columns.items() if isinstance(x, Sequence) and not isinstance(x, str)
        }
        rows = [{k: x[n] for k, x in own.items()} for n in range(len(prompts))]
        return list(self._threads.map(self._judge, rows))

    def _judge(self, row: Mapping[str, Any]) -> float | None:
        message = {"role": "user", "content": self.question.format(**row)}
        request = {"model": self.model, **self.fields, "messages": [message]}
        reply = self.ask("/chat/completions", request, _said)
        if reply is None:
            return None
        text, asked, said = reply
        cost = (asked * self.prices[0] + said * self.prices[1]) / 1e6
        value = self.read(text)
        tokens = {"prompt_tokens": asked, "completion_tokens": said}
        self.count(**tokens, cost=cost, unreadable=value is None)
        return value


@dataclasses.dataclass(kw_only=True, eq=False)
class RewardServer(Client):
    """A reward model behind a URL with its path, which gets all answers to a prompt in one request.

    The request is {"prompts": texts, "completions": texts, and the columns}, the reply {"rewards": [...]}
    with a number or null for each answer, and optionally {"correct": [...]}.
    """

    columns: Sequence[str] = ("answer",)  # the data's columns to send as well

    __name__ = "reward_server"

    def __post_init__(self):
        self._path = urllib.parse.urlsplit(self.url).path
        self.url = self.url.removesuffix(self._path)
        super().__post_init__()

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Sequence[Any]
    ):
        """Returns the server's rewards, and which answers are correct if it says so."""
        body = {"prompts": texts(prompts), "completions": texts(completions)}
        body |= {name: list(columns[name]) for name in self.columns}
        value = self._threads.submit(self.ask, self._path or "/", body, _rewards).result()
        return [None] * len(prompts) if value is None else value


def _said(reply: Any) -> tuple[str, int, int]:
    """Returns the text of a chat completion, and how many tokens the request and the text have."""
    text, usage = reply["choices"][0]["message"]["content"] or "", reply.get("usage") or {}
    asked, said = (usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
    if not (isinstance(text, str) and isinstance(asked, int) and isinstance(said, int)):
        raise TypeError(f"content {text!r:.80}, usage {usage!r:.80}")
    return text, asked, said


def _rewards(reply: Any) -> Any:
    """Returns the rewards, and what is correct where the reply has it."""
    rewards, correct = reply["rewards"], reply.get("correct", [])
    if not (isinstance(rewards, list) and isinstance(correct, list)):
        raise TypeError(f"rewards {rewards!r:.80}, correct {correct!r:.80}")
    return (rewards, correct) if "correct" in reply else rewards
