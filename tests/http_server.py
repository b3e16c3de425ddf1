"""Servers in threads that answer as a script says and fail on demand: of vLLM, and of any chat API."""

import contextlib
import http.server
import itertools
import json
import pathlib
import socket
import threading
import time
from typing import Any, NamedTuple

import numpy as np

from vade_jax.types import Prompt

KEY = "secret-key"  # of a ScriptedChat that needs one
STOP = 7  # the token that ends a ScriptedVllm's answers
BASE = 99  # the weights of a ScriptedVllm that has just started
STALE = 98  # in the weights' place: made of caches of other weights
CHAT = "/v1/chat/completions"
DROP = None  # in a reply's place: the connection is closed without one
_CACHES = {"/reset_prefix_cache?reset_running_requests=true", "/reset_encoder_cache"}
_serial = itertools.count(1000)


class Request(NamedTuple):
    method: str
    path: str
    body: Any  # JSON, or None
    handler: http.server.BaseHTTPRequestHandler
    killed: threading.Event  # set when the server that got this request is killed


class ScriptedServer:
    """Keeps connections open, as real servers do. Subclasses say what it answers.

    Attributes:
        faults: what the next chats do, oldest first; None is no fault. A status (500), "hang"
            (until killed), "drop" (hang up), "cut" (in the middle of a body), "html" (200 and no
            JSON), or what a subclass knows.
        always: the fault of all chats.
        seconds: an answer takes.
        retry_after: what a reply of status 429 says.
        log: (method, path, body) of every request.
        running: whether it listens.
    """

    def __init__(self, *, seconds=0.0):
        self.seconds, self.retry_after = seconds, None
        self.faults, self.always, self.log = [], None, []
        self.in_flight = self.most_in_flight = 0
        self.running, self.port = False, 0
        self._lock, self._ending = threading.Lock(), threading.Lock()
        self._sockets = set()
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        """Listens, on the port that it had before."""
        self._killed = threading.Event()
        self._http = _Listener(("127.0.0.1", self.port), _Handler)
        self._http.script, self._http.killed = self, self._killed
        self.port = self._http.server_address[1]
        poll = {"poll_interval": 0.01}
        serve = self._http.serve_forever
        threading.Thread(target=serve, kwargs=poll, daemon=True).start()
        self.running = True

    def kill(self):
        """Ends at once: open connections are reset, new ones refused."""
        with self._ending:
            if not self.running:
                return
            self._killed.set()
            self._http.shutdown()
            self._http.server_close()
            self.running = False
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def respond(self, request):
        """Returns (status, JSON, bytes or None) or DROP."""
        raise NotImplementedError

    def chat(self, request, say):
        """Returns `say(fault)`, or what a fault that all servers know makes of it."""
        with self._lock:
            fault = self.always or (self.faults.pop(0) if self.faults else None)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if isinstance(fault, int):
                return error(fault, "out of luck")
            if fault == "html":
                return 200, b"<html>gateway</html>"
            if fault == "cut":
                request.handler.reply(200, b'{"choices"', length=500)
            if fault == "hang":
                request.killed.wait(60)
            if fault in ("cut", "hang", "drop"):
                return DROP
            time.sleep(self.seconds)
            return say(fault)
        finally:
            with self._lock:  # before the reply: whoever has it may ask again
                self.in_flight -= 1

    def serve(self, handler, method, body, killed):
        """Called in a thread of each connection."""
        with self._lock:
            self._sockets.add(handler.connection)
            self.log.append((method, handler.path, body))
        reply = self.respond(Request(method, handler.path, body, handler, killed))
        if reply is DROP or killed.is_set():
            handler.close_connection = True
            return
        status, content = reply
        if not isinstance(content, bytes):
            content = b"" if content is None else json.dumps(content).encode()
        asks = status == 429 and self.retry_after
        wish = [("Retry-After", self.retry_after)] if asks else []
        handler.reply(status, content, headers=wish)


def error(status, message):
    return status, {"error": {"message": message, "code": status}}


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # the other side has hung up


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: 40 ms a reply

    def do_GET(self):
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = json.loads(data) if data else None
        self.server.script.serve(self, self.command, body, self.server.killed)

    do_POST = do_GET

    def reply(self, status, data=b"", *, headers=(), length=None):
        self.send_response(status)
        length = len(data) if length is None else length
        for name, value in (*headers, ("Content-Length", length)):
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


# ------------------------------------------------------------------------------ any chat API
class ScriptedChat(ScriptedServer):
    """An OpenAI-compatible server.

    Args:
        answer: body of a request -> text of the reply.
        model: the name it is served under.
        needs_key: requests without `KEY` get 401.

    Attributes:
        faults: also "other" (200 and other JSON) and "null" (no text).
        bodies: of the chats so far, without the questions of `Endpoint.check`.
        times: of `bodies`, in seconds.
    """

    def __init__(self, answer=lambda body: "yes", *, model="m", seconds=0.0, needs_key=False):
        self.answer, self.model, self.needs_key = answer, model, needs_key
        self.bodies, self.times = [], []
        super().__init__(seconds=seconds)

    def respond(self, request):
        if request[:2] == ("GET", "/v1/models"):
            return 200, {"data": [{"id": self.model}]}
        key = request.handler.headers["Authorization"]
        if self.needs_key and key != f"Bearer {KEY}":
            return error(401, "Incorrect API key provided")
        if request.path != CHAT:
            return error(404, "Not Found")
        if request.body["model"] != self.model:
            return error(404, f"The model `{request.body['model']}` is unknown")
        if said(request.body).startswith("Reply with the word"):
            return 200, b"<html>" if self.always == "html" else self.completion("yes")
        with self._lock:
            self.bodies.append(request.body)
            self.times.append(time.monotonic())
        return self.chat(request, lambda fault: self._say(request.body, fault))

    def _say(self, body, fault):
        if fault == "other":
            return 200, {"object": "list", "data": []}
        return 200, self.completion(None if fault == "null" else self.answer(body))

    def completion(self, text):
        """Returns the JSON of a reply; a subclass may add to it."""
        message = {"role": "assistant", "content": text}
        return {"choices": [{"index": 0, "message": message}]}


def said(body):
    """Returns the text of the last message of a request."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


# ------------------------------------------------------------------------------ vLLM
def question(uid, num_tokens=3, images=()):
    """A prompt that a scripted vLLM knows by its text, `ask UID`."""
    token_P = np.arange(100, 100 + num_tokens, dtype=np.int32) + len(uid)
    position_PX = np.repeat(np.arange(num_tokens)[:, None], 3, 1).astype(np.int32)
    return Prompt(
        uid=str(uid),
        text=f"ask {uid}",
        token_P=token_P,
        position_PX=position_PX,
        images=tuple(images),
    )


class ScriptedVllm(ScriptedServer):
    """Answers are three tokens and an end: the answer's number, the weights, the place asked.

    A request between new weights and the reset of the caches gets answers that say `STALE`.

    Attributes:
        faults: also "die", "forget" (another process with the first weights takes over).
        load_faults: statuses of the next loads of weights.
        problems: what a real server would have died of.
    """

    def __init__(self, prompts=(), *, model="policy", max_model_len=512, **options):
        self.model, self.max_model_len = model, max_model_len
        self.dev_mode = options.pop("dev_mode", True)
        self.trusting = options.pop("trusting", True)
        self.processed = options.pop("processed", True)
        self.token_ids = {prompt.text: prompt.token_P.tolist() for prompt in prompts}
        self.load_faults, self.problems = [], []
        super().__init__(**options)

    def start(self):
        """Starts with the first weights and no memory of others."""
        self.tag, self.weights, self.dirty, self.asleep = "default", BASE, set(), False
        super().start()

    def paths(self):
        """The control requests so far, without looks at the state."""
        looks = {"/health", "/weight_info", "/is_sleeping", CHAT}
        return [path for _, path, _ in self.log if path not in looks]

    def chats(self):
        """The bodies of the chats so far, without probes."""
        bodies = [body for _, path, body in self.log if path == CHAT]
        return [body for body in bodies if _text(body) != "a1"]

    def respond(self, request):
        path, body = request.path, request.body
        if path == "/health":
            return 200, None
        if path == CHAT:
            return self._chat(request)
        if not self.dev_mode:
            return error(404, "Not Found")
        if path == "/weight_info":
            return 200, {"weight_version": self.tag}
        if path == "/collective_rpc":
            return self._reload(body)
        if path in _CACHES:
            self.dirty.discard(path)
        elif path == "/update_weight_version":
            self.tag = body["new_version"]
        elif path == "/is_sleeping":
            return 200, {"is_sleeping": self.asleep}
        elif path in ("/sleep?level=1", "/wake_up"):
            self.asleep = path != "/wake_up"
        elif path != "/abort_requests":
            return error(404, f"no {path}")
        return 200, None

    def _reload(self, body):
        assert body["method"] == "reload_weights"
        if self.asleep:
            self.problems.append("new weights while asleep")
        if self.load_faults:
            return error(self.load_faults.pop(0), "no tensor of that name")
        name = pathlib.Path(body["kwargs"]["weights_path"]).name
        self.weights, self.dirty = int(name.removeprefix("version_")), set(_CACHES)
        return 200, {"results": [None]}

    def _chat(self, request):
        body = request.body
        if "chat_template" in body and not self.trusting:
            return error(400, "--trust-request-chat-template is not set. Refused")
        if body["model"] != self.model:
            return error(404, f"The model `{body['model']}` does not exist.")
        if body["max_tokens"] + 2 > self.max_model_len:  # the prompt has two tokens or more
            return error(400, f"This model's maximum context length is {self.max_model_len}")
        if self.asleep:
            self.problems.append("a chat while asleep")
        if _text(body) == "a1":
            ((token, bias),) = body["logit_bias"].items()
            assert bias == 100
            logp = 0.0 if self.processed else -6.2
            choice = _choice(0, [int(token)], "stop", logp)
            return 200, {"choices": [choice], "prompt_token_ids": [1, 2]}
        weights = STALE if self.dirty else self.weights
        return self.chat(request, lambda fault: self._say(body, fault, weights))

    def _say(self, body, fault, weights):
        if fault == "die":
            self.kill()
            return DROP
        if fault == "forget":
            self.tag, self.weights = "default", BASE
        choices = [_choice(i, [next(_serial), weights, i, STOP], "stop") for i in range(body["n"])]
        token_ids = self.token_ids[_text(body)]
        return 200, {"choices": choices[::-1], "prompt_token_ids": token_ids}


def _text(body):
    return body["messages"][0]["content"][0]["text"]


def _choice(index, token_ids, ended, logp=-0.5):
    content = [{"token": "x", "logprob": logp - 0.25 * t} for t in range(len(token_ids))]
    return {
        "index": index,
        "token_ids": token_ids,
        "finish_reason": ended,
        "logprobs": {"content": content},
    }
