"""The client of servers: of vLLM, and of the models and judges that an evaluation asks.

`openai` reuses connections and retries failed requests, after the pauses that the server asks for, unless
a retry cannot help. Requests run in one thread, as tasks that can be cancelled.
"""

import asyncio
import functools
import json
import logging
import os
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, NamedTuple

from vade_jax import fields

for _name in ("httpx2", "openai"):  # at INFO they log every request
    logging.getLogger(_name).setLevel(logging.WARNING)
_SHOWN = 500  # characters of a server's reply in an error
_TRANSIENT = (408, 409, 429)  # and every status from 500 on
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

    Host names with a dot are reached through the environment's proxy (HTTPS_PROXY, NO_PROXY), other names
    and addresses directly.

    Raises:
        ValueError: the URL is not valid, or the variable of the key is not set.
    """

    def __init__(
        self,
        url: str,  # http(s)://host[:port][/path]
        *,
        api_key_env: str = "",  # the environment variable that holds the key; "": none
        concurrency: int = 16,  # requests in flight, including those that wait for a retry
        retries: int = 3,  # of a request
        timeout_s: float = 60.0,  # the longest wait for a reply
    ):
        import openai  # here, as it takes a second, and a run without a server does without it

        fields.check_url("the server", url)
        self.url, key = url.rstrip("/"), os.environ.get(api_key_env, "").strip()
        if api_key_env and not (key and key.isascii() and key.isprintable()):
            # Without its value, which may be the key itself.
            raise ValueError(
                f"the api_key_env of {url} must name an environment variable with a key in printable ASCII: export "
                "JUDGE_KEY=..., and give JUDGE_KEY"
            )
        self._secret = key if len(key) > 3 else None  # a server may repeat it
        host = urllib.parse.urlsplit(url).hostname or ""
        is_address = ":" in host or host.replace(".", "").isdigit()
        self._client = openai.AsyncOpenAI(
            base_url=self.url,
            api_key=key or "none",
            max_retries=retries,
            timeout=openai.Timeout(timeout_s, connect=10.0),
            http_client=openai.DefaultAsyncHttpxClient(trust_env="." in host and not is_address),
        )
        self._slots = asyncio.Semaphore(concurrency)
        self._loop = _loop()  # one for all requests, as connections belong to a loop
        self._pending: set[futures.Future[Any]] = set()

    def submit(
        self, path: str, body: Body = None, read: Callable[[Any], Any] = lambda reply: reply
    ) -> futures.Future[Any]:
        """Sends a request; the result is what `read` makes of its reply, or a `Failure`.

        Args:
            path: appended to the URL, or a complete URL.
            body: JSON, or a function that makes it, called in a thread when the request is sent. None:
                the request is a GET.
            read: takes the JSON of the reply, None if the reply is empty. If it raises a LookupError,
                TypeError or ValueError, the result is a `Failure`.
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

    async def _ask(self, path: str, body: Body, read: Callable[[Any], Any]) -> Any:
        import openai

        async with self._slots:
            if callable(body):
                body = await asyncio.to_thread(body)
            text = ""
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
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                return Failure(self._shown(f"a reply of another form ({error!r}): {text}"))

    def _shown(self, text: str) -> str:
        """Returns the start of a message in printable characters, without the key."""
        return "".join(x if x.isprintable() else " " for x in self._masked(text)[:_SHOWN]).strip()

    def _masked(self, text: str) -> str:
        return text.replace(self._secret, "***") if self._secret else text


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop of all clients, which runs in its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="servers", daemon=True).start()
    return loop


# ------------------------------------------------------------------------------ chats
def chat_url(url: str) -> str:
    """Returns the URL of a server's chat API: under /v1 if `url` has no path."""
    url = url.rstrip("/")
    return url if urllib.parse.urlsplit(url).path else f"{url}/v1"


def text_of(reply: Any) -> str:
    """Returns the text of a chat completion, "" if it has none; raises if it is not one."""
    text = reply["choices"][0]["message"]["content"]
    if not isinstance(text, str | None):
        raise TypeError(f"content {text!r:.80}")
    return text or ""
