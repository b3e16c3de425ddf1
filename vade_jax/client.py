"""The client of servers: of vLLM, and of the models and judges that an evaluation asks.

`openai` keeps connections and repeats a failed request, with the pauses that the server asks for, unless that
cannot help. Requests run in one thread, as tasks that can be cancelled.
"""

import asyncio
import collections
import functools
import ipaddress
import json
import logging
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, NamedTuple

import openai

from vade_jax import fields

for _name in ("httpx2", "openai"):  # at INFO they log every request
    logging.getLogger(_name).setLevel(logging.WARNING)
_SHOWN = 500  # characters of a server's words in an error
_TRANSIENT = (408, 409, 429)  # and every status from 500 on
_OTHER_FORM = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
Body = Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None


class Failure(NamedTuple):
    """A request without a reply."""

    why: str  # never with the key
    status: int = 0  # of HTTP where the server refuses this request; 0: it gave no reply

    @property
    def is_final(self) -> bool:
        """Whether the key, the model or the path is wrong, so that every other request would fail too."""
        return self.status in (401, 403, 404)


class Client:
    """Posts JSON to one server, from any thread.

    A server on the internet is reached through the proxy that the environment names (HTTPS_PROXY, NO_PROXY),
    one with a private address or a host name without a dot directly.

    Raises:
        ValueError: the URL is not valid, or the variable of the key is not set.
    """

    def __init__(
        self,
        url: str,  # http(s)://host[:port][/path]
        *,
        api_key_env: str = "",  # the environment variable that holds the key; "": none
        concurrency: int = 16,  # requests in flight, with those that wait for their next try
        retries: int = 3,  # of a request
        timeout_s: float = 60.0,  # the longest wait for a reply
        setting: str = "api_key_env",  # the name of `api_key_env` in errors
    ):
        fields.check_url("the server", url)
        self.url, key = url.rstrip("/"), key_of(api_key_env, setting)
        self._secret = key if len(key) > 3 else None  # a server may repeat it
        host = urllib.parse.urlsplit(url).hostname or ""
        self._client = openai.AsyncOpenAI(
            base_url=self.url,
            api_key=key or "none",
            max_retries=retries,
            timeout=openai.Timeout(timeout_s, connect=10.0),
            http_client=openai.DefaultAsyncHttpxClient(
                trust_env=is_on_the_internet(host),
                event_hooks={"request": [self._is_sent]},
            ),
        )
        self._tries, self._slots = retries + 1, asyncio.Semaphore(concurrency)
        self._counts, self._lock = collections.Counter(), threading.Lock()
        self.is_down = False  # whether the last request failed: reported once, by who asked
        self._loop = _loop()  # one for all requests, as connections belong to a loop
        self._pending: set[futures.Future[Any]] = set()

    def submit(
        self, path: str, body: Body = None, read: Callable[[Any], Any] = lambda reply: reply
    ) -> futures.Future[Any]:
        """Sends a request; the result is what `read` makes of its reply, or a `Failure`.

        If `read` raises, the reply has another form, and the request is repeated.

        Args:
            path: behind the URL, or a whole URL.
            body: JSON, or what makes it, which is called in a thread when the request has its turn. None:
                the request is a GET.
            read: takes the JSON of the reply, None if the reply is empty.
        """
        asking = self._ask(path, body, read)
        future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def close(self) -> None:
        """Cancels every request in flight."""
        for future in list(self._pending):
            future.cancel()

    def count(self, **more: float) -> None:
        """Adds to what is counted."""
        with self._lock:
            self._counts.update(more)

    def metrics(self) -> dict[str, float]:
        """Returns what was counted since the last call."""
        with self._lock:
            counts, self._counts = self._counts, collections.Counter()
        return {"requests": 0, "retries": 0, "failures": 0, **counts}

    async def _ask(self, path: str, body: Body, read: Callable[[Any], Any]) -> Any:
        async with self._slots:
            if body is not None:
                body = await asyncio.to_thread(_sendable, body)
            start = time.perf_counter()
            result = await self._result(path, body, read)
        is_failure = isinstance(result, Failure)
        self.count(requests=1, failures=is_failure, seconds=time.perf_counter() - start)
        return result

    async def _result(self, path: str, body: Any, read: Callable[[Any], Any]) -> Any:
        reason = text = ""
        for attempt in range(self._tries):  # more than one only for replies of another form
            self.count(retries=attempt > 0)
            try:
                if body is None:
                    text = await self._client.get(path, cast_to=str)
                else:
                    text = await self._client.post(path, body=body, cast_to=str)
                return read(json.loads(self._masked(text)) if text else None)
            except openai.APIStatusError as error:
                reason = error.body.get("message") if isinstance(error.body, dict) else error.body
                is_refused = error.status_code < 500 and error.status_code not in _TRANSIENT
                status = error.status_code if is_refused else 0
                return Failure(self._shown(f"HTTP {error.status_code}: {reason}"), status)
            except openai.APIError as error:
                return Failure(self._shown(f"{error} {error.__cause__ or ''}"))
            except _OTHER_FORM as error:
                reason = self._shown(f"a reply of another form ({error!r}): {text}")
        return Failure(reason)

    async def _is_sent(self, request: Any) -> None:
        self.count(retries=request.headers.get("x-stainless-retry-count", "0") != "0")

    def _shown(self, text: str) -> str:
        """Returns the start of a message in printable characters, without the key."""
        return "".join(x if x.isprintable() else " " for x in self._masked(text)[:_SHOWN]).strip()

    def _masked(self, text: str) -> str:
        return text.replace(self._secret, "***") if self._secret else text


def _sendable(body: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> Any:
    """Returns JSON without lone surrogates: models write them at times, UTF-8 has none, and "?" is sent."""
    body = body() if callable(body) else body
    return json.loads(json.dumps(body, ensure_ascii=False).encode(errors="replace"))


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of all clients, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="servers", daemon=True).start()
    return loop


def is_on_the_internet(host: str) -> bool:
    """Returns whether a host has a public address, or a name with a dot."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host


def key_of(variable: str, setting: str) -> str:
    """Returns the key in an environment variable, without the end of its line; "" if `variable` is "".

    Raises:
        ValueError: `variable` is not a name in capitals, so it may be the key itself, which is not shown; or
            it is not set, or no header can hold its value.
    """
    if not variable:
        return ""
    fields.check_variable(setting, variable)
    key = os.environ.get(variable, "").strip()
    if not (key and key.isascii() and key.isprintable()):
        raise ValueError(
            f"{setting}={variable!r}: there is no such variable in the environment, or its value has "
            f"characters that are not printable ASCII: export {variable}=KEY"
        )
    return key


# ------------------------------------------------------------------------------ chats
def chat_url(url: str) -> str:
    """Returns the URL of a server's chat API: without a path it is in /v1."""
    url = url.rstrip("/")
    return url if urllib.parse.urlsplit(url).path else f"{url}/v1"


def text_of(reply: Any) -> str:
    """Returns the text of a chat completion, "" if it has none; raises if it is not one."""
    text = reply["choices"][0]["message"]["content"]
    if not isinstance(text, str | None):
        raise TypeError(f"content {text!r:.80}")
    return text or ""


def num_tokens(reply: Any, name: str = "completion_tokens") -> int | None:
    """Returns a number of `usage` in a chat completion; None if it does not say."""
    usage = reply.get("usage")
    number = usage.get(name) if isinstance(usage, Mapping) else None
    return number if isinstance(number, int) else None
