"""One vLLM server over HTTP: its replies, its weights, and whether it is fit for a run."""

import contextlib
import http.client
import json
import socket
import threading
import time
import urllib.parse
from typing import Any, Protocol

from vade_jax.rollout import vllm_requests as requests
from vade_jax.rollout.vllm_requests import Fault

_CONNECT_S = 10.0
_POLL_S = 0.5
_SHOWN = 500  # characters of a server's error


class Launched(Protocol):
    """A server that this run started (`vllm_process.Launched`)."""

    url: str
    log_path: Any

    def alive(self) -> bool: ...

    def restart(self) -> None: ...

    def stop(self) -> None: ...


class Refused(Exception):  # noqa: N818 (says what happened)
    """The server will not do this, however often it is asked."""

    def __init__(self, status: int, detail: str):
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status


class Server:
    """A server at a given URL, or one that this run launched.

    Attributes:
        launched: None for a given URL.
        url: where it listens.
        control_s: the longest wait for a reply about its state.
    """

    def __init__(self, target: str | Launched, control_s: float = 30.0):
        self.launched = None if isinstance(target, str) else target
        self.url = (target if self.launched is None else target.url).rstrip("/")
        self.control_s = control_s
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        if urllib.parse.urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"server {self.url!r} is no URL: write http://host:port")

    def __str__(self) -> str:
        log = f", log {self.launched.log_path}" if self.launched else ""
        return f"vLLM server {self.url}{log}"

    # ------------------------------------------------------------------------- replies
    def ask(
        self, method: str, path: str, body: Any = None, timeout_s: float | None = None
    ) -> Any:
        """Returns the JSON of a reply, None for an empty one.

        Raises:
            Fault: no connection, no reply in time, or an error inside the server.
            Refused: the request is wrong.
        """
        url = urllib.parse.urlsplit(self.url)
        secure = url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=_CONNECT_S)
        try:
            connection.connect()
            with self._abortable(connection.sock):
                connection.sock.settimeout(timeout_s or self.control_s)
                data = None if body is None else json.dumps(body).encode()
                headers = {"Content-Type": "application/json"}
                connection.request(method, url.path + path, data, headers)
                reply = connection.getresponse()
                return _content(reply.status, reply.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise Fault(f"{method} {path}: {what}") from error
        finally:
            connection.close()

    @contextlib.contextmanager
    def _abortable(self, sock):
        with self._lock:
            self._open.add(sock)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(sock)

    def abort(self) -> None:
        """Ends every request in flight, from any thread; the server drops their answers."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):  # it has just ended
                    sock.shutdown(socket.SHUT_RDWR)

    def chat(self, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Returns the reply to a request of `vllm_requests.chat`."""
        return self.ask("POST", "/v1/chat/completions", body, timeout_s)

    # ------------------------------------------------------------------------- state
    def tag(self) -> str:
        """Returns what `load` called its weights; a server that restarted has forgotten it.

        It is kept in the process that holds the weights.
        """
        return self.ask("GET", "/weight_info")["weight_version"]

    def load(self, directory: str, tag: str, timeout_s: float) -> None:
        """Replaces the weights by those of a safetensors directory, and names them.

        Keys, values and image features of the old ones are forgotten. The name comes last: a
        load that was cut off left the old one, or none.
        """
        self.ask("POST", "/abort_requests", {})
        body = {"method": "reload_weights", "kwargs": {"weights_path": directory}}
        self.ask("POST", "/collective_rpc", body, timeout_s)
        if not self.ask("POST", "/reset_prefix_cache")["success"]:
            raise Fault("POST /reset_prefix_cache: blocks are still in use")
        self.ask("POST", "/reset_mm_cache")
        self.ask("POST", "/reset_encoder_cache")
        self.ask("POST", "/update_weight_version", {"new_version": tag})

    def sleep(self) -> None:
        """Moves the weights to the host and drops the cache: the device's memory is free."""
        self.ask("POST", "/sleep?level=1")

    def wake(self) -> None:
        """Undoes `sleep`; an awake server stays as it is."""
        if self.ask("GET", "/is_sleeping")["is_sleeping"]:
            self.ask("POST", "/wake_up")

    def responds(self) -> bool:
        """Returns whether both the server and its engine answer now."""
        if self.launched and not self.launched.alive():
            return False
        try:
            self.ask("GET", "/health")
            self.tag()
        except (Fault, Refused):
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Returns when /health is good.

        Raises:
            Fault: it is not within `seconds`.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                self.ask("GET", "/health")
                return
            except (Fault, Refused) as error:
                if time.monotonic() > end:
                    raise Fault(f"{error}, for {seconds:.0f} s") from error
            time.sleep(_POLL_S)

    # ------------------------------------------------------------------------- start-up
    def check(
        self,
        *,
        model: str,
        length: int,
        stop_id: int,
        wait_s: float,
        timeout_s: float,
    ) -> int:
        """Returns the server's max_model_len if it can serve a run.

        Args:
            model: the name it serves the policy under.
            length: the longest prompt and answer together, in tokens.
            stop_id: an end token of the policy.
            wait_s: for a server that is still starting.
            timeout_s: for its first answer.

        Raises:
            ValueError: it does not answer, serves another model, is too short, or lacks an
                option; says which.
        """
        try:
            self.wait(wait_s)
            limit = self._max_model_len(model)
            if limit < length:
                raise ValueError(
                    f"{self}: max_model_len={limit} is less than the {length} tokens of "
                    f"the longest prompt and answer: start it with --max-model-len {length}"
                )
            self._check_control()
            self.wake()  # a run that was killed may have left it asleep
            self._check_probe(self.chat(requests.probe(model, stop_id), timeout_s))
        except Fault as error:
            raise ValueError(
                f"{self} does not answer ({error}): start it, or correct its URL"
            ) from error
        except Refused as error:
            raise ValueError(f"{self} refuses a request: {_fix(error)}") from error
        return limit

    def _max_model_len(self, model):
        cards = self.ask("GET", "/v1/models")["data"]
        limits = {card["id"]: card["max_model_len"] for card in cards}
        if model not in limits:
            raise ValueError(
                f"{self} serves {', '.join(limits)}, not {model!r}: start it with "
                f"--served-model-name {model}, or name the model that it serves"
            )
        return limits[model]

    def _check_control(self):
        try:
            self.tag()
        except Refused as error:
            raise ValueError(
                f"{self} cannot take new weights (GET /weight_info: {error}): start it "
                "with VLLM_SERVER_DEV_MODE=1, vLLM 0.32 or newer"
            ) from error

    def _check_probe(self, reply):
        if not requests.is_processed(reply):
            raise ValueError(
                f"{self} returns log-probs of the raw logits, not of the distribution "
                "drawn from: start it with --logprobs-mode processed_logprobs"
            )


def _content(status, data):
    if status == 429 or status >= 500:
        raise Fault(f"HTTP {status}: {_message(data)}")
    if status >= 300:
        raise Refused(status, _message(data))
    return json.loads(data) if data else None


def _message(data):
    """The server's words about an error, or the start of what it sent."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(data)["error"]["message"])[:_SHOWN]
    return data[:_SHOWN].decode(errors="replace")


def _fix(error):
    if "trust-request-chat-template" in str(error):
        return "start it with --trust-request-chat-template"
    return str(error)
