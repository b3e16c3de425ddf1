"""A stand-in for a vLLM server: it answers at once, numbers every answer, and fails on demand."""

import contextlib
import functools
import itertools
import json
import pathlib
import socket
import threading
import time

import numpy as np

from tests import http_server
from vade_jax.types import Prompt

STOP = 7
BASE = 99  # the weights of a server that has just started
CACHES = {"/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache"}
_serial = itertools.count(1000)


def question(uid, num_tokens=3, images=()):
    """A prompt that a scripted server knows by its text, `ask UID`."""
    token_P = np.arange(100, 100 + num_tokens, dtype=np.int32) + len(uid)
    position_PX = np.repeat(np.arange(num_tokens)[:, None], 3, 1).astype(np.int32)
    return Prompt(
        uid=str(uid),
        text=f"ask {uid}",
        token_P=token_P,
        position_PX=position_PX,
        images=tuple(images),
    )


class ScriptedServer:
    """Answers are three tokens and an end: the answer's number, the weights, the place asked.

    Attributes:
        faults: what the next chats do, oldest first: "500", "hang" (until killed), "drop",
            "die", "forget" (another process with the first weights takes over), "slow", "short"
            (one answer too few), "abort"; None is no fault. `always` is for all of them.
        load_faults: the same for new weights: "500", "die", "blocked".
        deaf: /health and everything else hang.
        seconds: an answer takes.
        log: (method, path, body) of every request.
        problems: what a real server would have died of.
    """

    def __init__(self, prompts=(), *, model="policy", max_model_len=512, **options):
        self.model, self.max_model_len = model, max_model_len
        self.dev_mode = options.pop("dev_mode", True)
        self.trusting = options.pop("trusting", True)
        self.processed = options.pop("processed", True)
        self.seconds = options.pop("seconds", 0.0)
        assert not options
        self.token_ids = {prompt.text: prompt.token_P.tolist() for prompt in prompts}
        self.faults, self.always, self.load_faults = [], None, []
        self.deaf, self.running = False, False
        self.log, self.problems = [], []
        self.most_in_flight = self.in_flight = 0
        self._lock, self._ending = threading.Lock(), threading.Lock()
        self._sockets = set()
        self._http = None
        self._port = 0
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        """Listens, with the first weights and no memory of others."""
        self.tag, self.weights, self.dirty = "default", BASE, set()
        self.asleep, self.deaf = False, False
        self._killed = threading.Event()
        answer = functools.partial(self._handle, killed=self._killed)
        self._http = http_server.Server(answer, self._port)
        self._port = self._http.port
        self.running = True

    def kill(self):
        """Ends at once: open connections are reset, new ones refused."""
        with self._ending:
            if not self.running:
                return
            self._killed.set()
            self._http.end()
            self.running = False
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def paths(self, *, without_chats=True):
        """The control requests so far, without looks at the state."""
        skipped = {"/health", "/weight_info", "/v1/models", "/is_sleeping"}
        skipped |= {"/v1/chat/completions"} if without_chats else set()
        return [path for _, path, _ in self.log if path not in skipped]

    def chats(self):
        """The bodies of the chats so far, without probes."""
        bodies = [body for _, path, body in self.log if path == "/v1/chat/completions"]
        return [
            body for body in bodies if body["messages"][0]["content"][0]["text"] != "a"
        ]

    # ------------------------------------------------------------------------- requests
    def _handle(self, handler, method, body, killed):
        with self._lock:
            self._sockets.add(handler.connection)
            self.log.append((method, handler.path, body))
        if self.deaf:
            killed.wait(60)
            return
        status, content = self._reply(method, handler.path, body, killed)
        if killed.is_set() or status is None:
            handler.close_connection = True
            return
        handler.reply(status, b"" if content is None else json.dumps(content).encode())

    def _reply(self, method, path, body, killed):
        if path == "/health":
            return 200, None
        if path == "/v1/models":
            card = {"id": self.model, "max_model_len": self.max_model_len}
            return 200, {"data": [card]}
        if path == "/v1/chat/completions":
            return self._chat(body, killed)
        return self._control(path, body) if self.dev_mode else _error(404, "Not Found")

    def _control(self, path, body):
        if path == "/weight_info":
            return 200, {"weight_version": self.tag}
        if path == "/collective_rpc":
            return self._reload(body)
        if path in CACHES:
            blocked = self.load_faults[:1] == ["blocked"] and self.load_faults.pop()
            self.dirty.discard(path)
            return 200, {"success": not blocked}
        if path == "/update_weight_version":
            self.tag = body["new_version"]
        elif path == "/is_sleeping":
            return 200, {"is_sleeping": self.asleep}
        elif path in ("/sleep?level=1", "/wake_up"):
            self.asleep = path != "/wake_up"
        elif path != "/abort_requests":
            return _error(404, f"no {path}")
        return 200, {}

    def _reload(self, body):
        assert body["method"] == "reload_weights"
        if self.asleep:
            self.problems.append("new weights while asleep")
        fault = (
            self.load_faults.pop(0)
            if self.load_faults[:1] != ["blocked"] and self.load_faults
            else None
        )
        if fault == "500":
            return _error(500, "no tensor of that name")
        if fault == "die":
            self.kill()
            return None, None
        name = pathlib.Path(body["kwargs"]["weights_path"]).name
        self.weights, self.dirty = int(name.removeprefix("version_")), set(CACHES)
        return 200, {"results": [None]}

    def _chat(self, body, killed):
        text = body["messages"][0]["content"][0]["text"]
        if body["model"] != self.model:
            return _error(404, f"The model `{body['model']}` does not exist.")
        if "chat_template" in body and not self.trusting:
            return _error(400, "--trust-request-chat-template is not set. Refused")
        if self.dirty or self.asleep:
            self.problems.append(f"a chat with {self.dirty}, asleep={self.asleep}")
        if text == "a":
            return 200, self._probed(body)
        with self._lock:
            fault = self.always or (self.faults.pop(0) if self.faults else None)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self._answered(body, text, fault, killed)
        finally:
            with self._lock:
                self.in_flight -= 1

    def _answered(self, body, text, fault, killed):
        if fault == "500":
            return _error(500, "out of luck")
        if fault == "hang":
            killed.wait(60)
        if fault == "die":
            self.kill()
        if fault in ("drop", "hang", "die"):
            return None, None
        weights = self.weights
        if fault == "forget":
            self.tag, self.weights = "default", BASE
        time.sleep(self.seconds + 0.4 * (fault == "slow"))
        count = body["n"] - (fault == "short")
        ended = "abort" if fault == "abort" else "stop"
        choices = [
            _choice(i, [next(_serial), weights, i, STOP], ended) for i in range(count)
        ]
        reply = {"choices": choices[::-1], "prompt_token_ids": self.token_ids[text]}
        return 200, reply

    def _probed(self, body):
        ((token, bias),) = body["logit_bias"].items()
        assert bias == 100
        choice = _choice(0, [int(token)], "stop", 0.0 if self.processed else -6.2)
        return {"choices": [choice], "prompt_token_ids": [1]}


class Relaunched:
    """What `vllm_process.launch` returns, around a scripted server."""

    log_path = "runs/x/vllm.log"

    def __init__(self, server, comes_back=True):
        self.server, self.comes_back, self.restarts = server, comes_back, 0
        self.url = server.url

    def alive(self):
        return self.server.running

    def restart(self):
        from vade_jax.rollout.engine import EngineFailure

        self.restarts += 1
        self.server.kill()
        if not self.comes_back:
            raise EngineFailure("the vLLM server ended after 1 s without being healthy")
        self.server.start()

    def stop(self):
        self.server.kill()


def _choice(index, token_ids, ended, logp=-0.5):
    content = [
        {"token": "x", "logprob": logp - 0.25 * t} for t in range(len(token_ids))
    ]
    return {
        "index": index,
        "token_ids": token_ids,
        "finish_reason": ended,
        "logprobs": {"content": content},
    }


def _error(status, message):
    return status, {"error": {"message": message, "code": status}}
