"""The client of one vLLM server: its requests, the checks of its replies, and its weights.

A request carries the trainer's own text and pixels. A chat template that repeats the text keeps it
unchanged. The server returns the token ids that it made of the text, and they must equal the trainer's.
Every request overrides all sampling defaults of the server.
"""

import base64
import io
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from vade_jax import http
from vade_jax.http import RefusedError, TransientError
from vade_jax.rollout.engine import Answer, EngineFailure, Sampling
from vade_jax.rollout.vllm.process import LaunchedServer
from vade_jax.types import Prompt

# vLLM passes a message's content to the template as a list of parts or, with other options, as a string.
_REPEAT = (
    "{% for message in messages %}{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
_CERTAIN = -0.01  # a token with a logit bias of 100 has a log-prob above this
_POLL_S = 0.5
_MOVE_S = 300.0  # the longest wait while all weights move to the host, or back to the devices
# Exceptions that reading a reply raises if it does not have vLLM's form.
_FOREIGN = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


class Request(NamedTuple):
    """A request for some of the answers to one prompt."""

    m: int  # index of the prompt
    first: int  # number of its first answer among all answers of a call to `generate`
    count: int
    seed: int  # the server adds the index of each answer within the request


# ----------------------------------------------------------------------------- plain data
def chat_body(
    prompt: Prompt,
    request: Request,
    *,
    model: str,
    sampling: Sampling,
    stop_ids: Sequence[int],
    banned_ids: Sequence[int],
) -> dict[str, Any]:
    """Returns the body of a request to /v1/chat/completions.

    At temperature 0 all answers to a prompt are the same, so the body asks for one.
    """
    text = {"type": "text", "text": prompt.text}
    pictures = [
        {"type": "image_url", "image_url": {"url": data_url(image)}} for image in prompt.images
    ]
    return {
        "model": model,
        "messages": [{"role": "user", "content": [text, *pictures]}],
        "chat_template": _REPEAT,
        "n": request.count if sampling.temperature else 1,
        "seed": request.seed,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": {str(i): -100 for i in banned_ids},
        "stop_token_ids": list(stop_ids),
        "ignore_eos": True,  # only `stop_token_ids` end an answer
        "skip_special_tokens": False,
        "logprobs": True,
        "return_token_ids": True,
    }


def data_url(image: np.ndarray) -> str:
    """Returns a uint8 image [height, width, 3] as a PNG data URL, which keeps its pixels exactly."""
    buffer = io.BytesIO()
    # Level 1: the servers are near, so compressing more would take longer than sending.
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def read_answers(
    reply: Mapping[str, Any], prompt: Prompt, request: Request, sampling: Sampling
) -> list[Answer]:
    """Returns the `request.count` answers in a reply to `chat_body`.

    Raises:
        TransientError: answers are missing, incomplete or too long, or the reply has another form.
        EngineFailure: the server tokenized the prompt differently from the trainer.
    """
    try:
        _check_tokens(reply["prompt_token_ids"], prompt)
        choices = sorted(reply["choices"], key=lambda choice: choice["index"])
        answers = [_answer(choice, sampling.max_tokens) for choice in choices]
        places = [choice["index"] for choice in choices]
    except _FOREIGN as error:
        raise TransientError(f"a reply of another form: {error!r}") from error
    if sampling.temperature == 0:  # only one was asked for: it is repeated
        answers, places = answers * request.count, [*range(len(places) * request.count)]
    if places != list(range(request.count)):
        raise TransientError(f"a reply with answers {places} instead of {request.count}")
    return answers


def _check_tokens(token_ids: Sequence[int], prompt: Prompt) -> None:
    if not np.array_equal(token_ids, prompt.token_P):
        raise EngineFailure(
            f"prompt {prompt.uid!r}: vLLM made {len(token_ids)} tokens of it, the "
            f"trainer {prompt.length}. Its images were resized again or its tokenizer is "
            "another: start it on the policy's checkpoint, with the run's limits: "
            '--mm-processor-kwargs \'{"min_pixels": ..., "max_pixels": ...}\''
        )


def _answer(choice: Mapping[str, Any], max_tokens: int) -> Answer:
    token_T = np.array(choice["token_ids"], np.int32)
    logp_T = [token["logprob"] for token in choice["logprobs"]["content"]]
    if choice["finish_reason"] not in ("stop", "length"):  # such as "abort"
        raise TransientError(f"an answer was ended: {choice['finish_reason']}")
    if not 0 < len(token_T) == len(logp_T) <= max_tokens:
        raise TransientError(f"an answer of {len(token_T)} tokens, {len(logp_T)} log-probs")
    finished = choice["finish_reason"] == "stop"
    return Answer(token_T, np.array(logp_T, np.float32), finished)


def probe_body(model: str, stop_id: int) -> dict[str, Any]:
    """Returns the body of a request whose only answer is the end token, forced by a logit bias of 100."""
    prompt = Prompt("", "a", np.zeros(0, np.int32), np.zeros((0, 3), np.int32), ())
    body = chat_body(
        prompt,
        Request(m=0, first=0, count=1, seed=0),
        model=model,
        sampling=Sampling(max_tokens=1),
        stop_ids=[stop_id],
        banned_ids=[],
    )
    return {**body, "logit_bias": {str(stop_id): 100}}


def has_processed_logprobs(reply: Mapping[str, Any]) -> bool:
    """Returns whether the log-prob in a reply to `probe_body` includes the logit bias.

    With the bias it is almost 0. Without it, one token of a whole vocabulary has a much lower one.
    """
    return bool(_answer(reply["choices"][0], 1).logp_T[0] > _CERTAIN)


# ----------------------------------------------------------------------------- the server
class VllmClient:
    """Talks to a vLLM server, either at a given URL or launched by this run.

    Args:
        target: a URL, or a server of `process.launch`.
        control_s: the longest wait for replies about the server's state, in seconds.

    Attributes:
        launched: the launched server; None for a URL.

    Raises:
        ValueError: the string is not a URL.
    """

    def __init__(self, target: str | LaunchedServer, control_s: float = 30.0):
        self.launched = None if isinstance(target, str) else target
        url = target if isinstance(target, str) else target.url
        self._http = http.Client(url, timeout_s=control_s)
        self.url, self.abort = self._http.url, self._http.abort

    def __str__(self) -> str:
        log = f", log {self.launched.log_path}" if self.launched else ""
        return f"vLLM server {self.url}{log}"

    def chat(self, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Returns the reply to a `chat_body`. Raises like `http.Client.ask`.

        Each request has a unique id, which the reply must repeat. A proxy might return the reply to
        another request, or one from a cache; its answers would then be counted twice.
        """
        name = uuid.uuid4().hex
        reply = self._http.ask(
            "POST", "/v1/chat/completions", {**body, "request_id": name}, timeout_s
        )
        if not isinstance(reply, dict) or not str(reply.get("id")).endswith(name):
            raise TransientError("POST /v1/chat/completions: a reply to another request")
        return reply

    def weights_tag(self) -> str:
        """Returns the tag that `load` gave to the server's weights.

        vLLM keeps the tag in the process that holds the weights. A server that restarted has the
        checkpoint's weights again, and has lost the tag.
        """
        return self._field("weight_version", "GET", "/weight_info")

    def load(self, directory: str, tag: str, timeout_s: float) -> None:
        """Loads the weights of a safetensors directory and tags them with `tag`.

        All cached keys, values and image features of the old weights are dropped. The tag is set last,
        so a load that was interrupted leaves the old tag or none, and `weights_tag` shows it.
        """
        ask = self._http.ask
        ask("POST", "/abort_requests", {})
        reload = {"method": "reload_weights", "kwargs": {"weights_path": directory}}
        ask("POST", "/collective_rpc", reload, timeout_s)
        if not self._field("success", "POST", "/reset_prefix_cache"):
            raise TransientError("POST /reset_prefix_cache: blocks are still in use")
        ask("POST", "/reset_mm_cache")
        ask("POST", "/reset_encoder_cache")
        ask("POST", "/update_weight_version", {"new_version": tag})

    def sleep(self) -> None:
        """Moves the weights to the host and drops the cache, which frees the device's memory."""
        self._http.ask("POST", "/sleep?level=1", timeout_s=_MOVE_S)

    def wake(self) -> None:
        """Undoes `sleep`; does nothing if the server is awake."""
        if self._field("is_sleeping", "GET", "/is_sleeping"):
            self._http.ask("POST", "/wake_up", timeout_s=_MOVE_S)

    def _field(self, name: str, method: str, path: str) -> Any:
        """Returns one field of a reply.

        Raises:
            TransientError: the reply has no such field, so it is not from vLLM and is asked for again.
        """
        reply = self._http.ask(method, path)
        if not isinstance(reply, dict) or name not in reply:
            raise TransientError(f"{method} {path}: a reply without {name!r}")
        return reply[name]

    def responds(self) -> bool:
        """Returns whether the server and its engine process both answer now."""
        if self.launched and not self.launched.alive():
            return False
        try:
            self._http.ask("GET", "/health")
            self.weights_tag()  # /health can succeed while the engine process hangs
        except (TransientError, RefusedError):
            return False
        return True

    def wait(self, seconds: float, ended: threading.Event | None = None) -> None:
        """Waits until /health succeeds.

        Raises:
            TransientError: it does not within `seconds`, or `ended` is set first.
        """
        end, ended = time.monotonic() + seconds, ended or threading.Event()
        while True:
            try:
                self._http.ask("GET", "/health")
                return
            except (TransientError, RefusedError) as error:
                if ended.is_set() or time.monotonic() > end:
                    message = f"{error}, for {seconds:.0f} s"
                    raise TransientError(message) from error
            ended.wait(_POLL_S)

    def check(
        self,
        *,
        model: str,
        length: int,
        stop_id: int,
        wait_s: float,
        timeout_s: float,
        ended: threading.Event | None = None,
    ) -> int:
        """Checks that the server can serve this run, and returns its max_model_len.

        Args:
            model: the name that it must serve the policy under.
            length: tokens that it must have room for, prompt and answer together.
            stop_id: the token that it samples in a test request.
            wait_s: the longest wait for a server that is still starting.
            timeout_s: the longest wait for the test request.
            ended: if it is set, the wait ends.

        Raises:
            ValueError: the server does not answer, serves another model, has too small a
                max_model_len, or lacks an option. The message says which and how to fix it.
        """
        try:
            self.wait(wait_s, ended)
            cards = self._field("data", "GET", "/v1/models")
            limit = self._limit(cards, model)
            if limit < length:
                raise ValueError(
                    f"{self}: max_model_len={limit} is less than the {length} tokens of "
                    f"the longest prompt and answer: start it with --max-model-len {length}"
                )
            self._check_takes_weights()
            self.wake()  # an earlier run that was killed may have left it asleep
            reply = self.chat(probe_body(model, stop_id), timeout_s)
        except TransientError as error:
            raise ValueError(
                f"{self} does not answer ({error}): start it, or correct its URL"
            ) from error
        except RefusedError as error:
            fix = str(error)
            if "trust-request-chat-template" in fix:
                fix = "start it with --trust-request-chat-template"
            raise ValueError(f"{self} refuses a request: {fix}") from error
        try:
            is_processed = has_processed_logprobs(reply)
        except (TransientError, *_FOREIGN) as error:
            raise self._foreign(f"POST /v1/chat/completions: {error!r}") from error
        if not is_processed:
            raise ValueError(
                f"{self} returns log-probs of the raw logits, not of the distribution "
                "drawn from: start it with --logprobs-mode processed_logprobs"
            )
        return limit

    def _limit(self, cards: Any, model: str) -> int:
        """Returns the max_model_len of `model`; other models, such as adapters, may have none."""
        try:
            limits = {card["id"]: card.get("max_model_len") for card in cards}
        except _FOREIGN as error:
            raise self._foreign(f"GET /v1/models: {error!r}") from error
        if model not in limits:
            raise ValueError(
                f"{self} serves {', '.join(map(str, limits))}, not {model!r}: start it with "
                f"--served-model-name {model}, or name the model that it serves"
            )
        if not isinstance(limits[model], int):
            raise self._foreign(f"GET /v1/models: max_model_len={limits[model]!r} of {model!r}")
        return limits[model]

    def _foreign(self, what: str) -> ValueError:
        return ValueError(
            f"{self} is no vLLM server, or too old ({what}): correct its URL, or start vLLM 0.32 "
            "or newer"
        )

    def _check_takes_weights(self) -> None:
        try:
            self.weights_tag()
        except RefusedError as error:
            raise ValueError(
                f"{self} cannot take new weights (GET /weight_info: {error}): start it "
                "with VLLM_SERVER_DEV_MODE=1, vLLM 0.32 or newer"
            ) from error
