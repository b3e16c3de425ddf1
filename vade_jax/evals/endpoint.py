"""A model behind OpenAI's chat API: one question and its reply. `chat` asks many."""

import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

from vade_jax import http
from vade_jax.http import RefusedError, TransientError

_SHOWN = 300  # characters of a reply in an error


class Endpoint:
    """A server and the model that it is asked for.

    Args:
        url: of the API: http://host:8000, which means /v1 there, or with its path,
            https://host/api/v1.
        model: the name it is served under.
        api_key: goes into the headers of requests and nowhere else; "" for none.
        timeout_s: the longest wait for a reply.

    Attributes:
        url: with its path.
        model: as given.

    Raises:
        ValueError: `url` is not a URL.
    """

    def __init__(self, url: str, model: str, *, api_key: str = "", timeout_s: float = 300.0):
        if not urllib.parse.urlsplit(url).path.rstrip("/"):
            url = url.rstrip("/") + "/v1"
        self._has_key = bool(api_key)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = http.Client(url, timeout_s=timeout_s, headers=headers)
        self.url, self.model, self.close = self._http.url, model, self._http.close

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the raw reply to a chat; `text` reads it.

        Raises:
            TransientError: there is no good reply; asking again may help.
            RefusedError: the server will not answer this.
        """
        reply = self._http.ask("POST", "/chat/completions", body)
        text(reply)  # raises for what is no chat completion
        return reply

    def check(self) -> None:
        """Asks one short question.

        Raises:
            ValueError: there is no such server, key or model; says which.
        """
        hello = [{"role": "user", "content": "Reply with the word yes."}]
        try:
            self.complete({"model": self.model, "messages": hello})
        except TransientError as error:
            raise ValueError(
                f"server {self.url} does not answer ({error}): start it, or correct its URL"
            ) from error
        except RefusedError as error:
            raise ValueError(f"server {self.url} {self._explain(error)}") from error

    def _explain(self, error: RefusedError) -> str:
        """Returns what it means that a short question is refused, and the fix."""
        if error.status in (401, 403):
            given = "the API key" if self._has_key else "no API key"
            return f"does not accept {given} that it was sent ({error}): give another"
        if error.status != 404:
            return f"refuses a plain question ({error})"
        try:
            known = [card["id"] for card in self._http.ask("GET", "/models")["data"]]
        except (TransientError, RefusedError, KeyError, TypeError):
            return f"has no chat there ({error}): give the URL that ends in /v1"
        names = ", ".join(map(str, known[:20]))
        return f"serves {names}, not {self.model!r} ({error}): name one of them"


def text(reply: Any) -> str:
    """Returns the text of a reply, "" if it has none.

    Raises:
        TransientError: it is no chat completion.
    """
    try:
        said = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        shown = json.dumps(reply)[:_SHOWN]
        message = f"a reply that is no chat completion: {shown}"
        raise TransientError(message) from error
    if not isinstance(said, str | None):
        shown = json.dumps(said)[:_SHOWN]
        raise TransientError(f"a reply whose content is no text: {shown}")
    return said or ""


def finished(reply: Any) -> bool | None:
    """Returns whether a reply came to its end, False if it was cut; None if it does not say."""
    reason = reply["choices"][0].get("finish_reason")
    return reason == "stop" if reason in ("stop", "length") else None


def num_tokens(reply: Any) -> int | None:
    """Returns how many tokens a reply has; None if it does not say."""
    usage = reply.get("usage")
    number = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return number if isinstance(number, int) else None
