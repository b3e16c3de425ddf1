"""Serves a policy by OpenAI's chat API, for lmms-eval, VLMEvalKit and other clients.

    python -m experiments.serve --checkpoint=runs/qwen7b_gspo [--config.port=8000]

GET /v1/models, POST /v1/chat/completions (texts and pictures as data URLs) and GET /health, decoded
by the built-in engine. Requests in flight together are decoded together when they draw tokens the
same way; each way (temperature, top_p, top_k, and max_tokens up to a power of two) and each size of
the input compiles at its first request. With temperature 0, or with a seed, the answer is the same
whatever else is in flight, up to the rounding of batches.
Ctrl-C or SIGTERM: what was asked is answered, then it ends.
"""

import contextlib
import ipaddress
import os
import sys
import time
from collections.abc import Iterator

from absl import flags
from ml_collections import ConfigDict

from experiments import assemble, checks, cli, engines, errors, layout, stop_signal
from experiments.evaluations import checkpoint
from experiments.serving import chat_request, decoding
from experiments.serving import checks as serving_checks
from experiments.serving.batcher import Batcher
from experiments.serving.chat_api import ChatApi
from experiments.serving.conversation import Conversation
from experiments.serving.http_server import Server
from vade_jax.data import tokens
from vade_jax.models.qwen25vl import files
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.trainer import processes

CONFIG = "configs/serve.py"


def main(c: ConfigDict, workdir: str = "") -> None:
    """Serves until it is told to stop; told twice, it leaves what is in flight."""
    del workdir  # nothing is written
    try:
        with contextlib.ExitStack() as on_exit:
            with errors.user_errors():
                server = on_exit.enter_context(serving(c))
            stop = stop_signal.StopSignal()
            print(ready(c, server), flush=True)
            while not stop():
                time.sleep(0.1)
            print("stopping: what was asked is answered first", flush=True)
    except KeyboardInterrupt:
        sys.exit("error: stopped, not all that was asked has its answer")
    print(f"replies by status: {dict(sorted(server.counts.items()))}", flush=True)


@contextlib.contextmanager
def serving(c: ConfigDict) -> Iterator[Server]:
    """Answers while it is entered; on leaving, what is in flight is finished.

    Raises:
      ValueError: a field or the checkpoint does not do, or the port is taken.
      FileNotFoundError: there is no such checkpoint.
    """
    run, directory = check(c)
    warn_of_others(c.host)
    limits = c.limits
    server = Server(
        c.host, c.port, body_bytes=1e6 * limits.body_mb, timeout_s=limits.timeout_s
    )
    with contextlib.ExitStack() as on_exit:
        on_exit.callback(server.server_close)
        policy = checkpoint.load(run, directory)
        batcher = Batcher(
            make_decoder(c, run, policy),
            size=c.engine.prompts_per_call,
            window_s=c.window_ms / 1000,
        )
        on_exit.callback(batcher.close)
        server.start(make_api(c, policy.tokenizer, batcher))
        on_exit.callback(server.close)
        yield server


def check(c: ConfigDict) -> tuple[ConfigDict, str]:
    """Returns the run's config and the directory of the weights, once all has been looked at."""
    if processes.several():
        raise ValueError("a server is one process: start it on one host")
    serving_checks.config(c)
    directory = checkpoint.directory_of(c.model.checkpoint)
    run = checkpoint.run_config(c, c.limits.max_tokens)
    checks.config(run)
    layout.apply(run)
    files.load_config(directory)
    tokens.Tokenizer.load(directory)
    return run, directory


def make_decoder(
    c: ConfigDict, run: ConfigDict, policy: assemble.Policy
) -> decoding.Decoder:
    """Returns what decodes a batch; its engines share the weights."""

    def make(size: int, sampling: Sampling) -> LocalEngine:
        own = run.copy_and_resolve_references()
        own.num_rollouts = 1  # answers of a row
        own.engine.prompts_per_call = size
        own.sampling.update(vars(sampling))
        return engines.make(own, policy, workdir="")

    size = c.engine.prompts_per_call
    return decoding.Decoder(make, size=size, programs=c.programs)


def make_api(c: ConfigDict, tokenizer: tokens.Tokenizer, batcher: Batcher) -> ChatApi:
    """Returns the calls of the API."""
    return ChatApi(
        model_name(c),
        chat_request.Limits(
            default=Sampling(**c.sampling),
            max_tokens=c.limits.max_tokens,
            num_answers=c.engine.prompts_per_call,
        ),
        make_prompt=Conversation(
            tokenizer,
            min_pixels=c.data.min_pixels,
            max_pixels=c.data.max_pixels,
            max_length=c.data.max_prompt_length,
            image_pixels=1e6 * c.limits.image_megapixels,
        ),
        submit=batcher.submit,
        decode=tokenizer.decode,
        context=c.data.max_prompt_length + c.limits.max_tokens,
    )


def model_name(c: ConfigDict) -> str:
    """Returns the name that requests give."""
    return c.model_name or os.path.basename(os.path.abspath(c.model.checkpoint))


def ready(c: ConfigDict, server: Server) -> str:
    """Returns the line that says where the model is and how it is asked."""
    name = model_name(c)
    body = (
        f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    )
    return (
        f"serving {name} at {server.url}/v1; try: "
        f"curl -s {server.url}/v1/chat/completions -d '{body}'"
    )


def warn_of_others(host: str) -> None:
    """Says that everybody who reaches the address may ask."""
    if host == "localhost":
        return
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    print(
        f"warning: host={host}: there is no authentication, whoever reaches this address "
        "can use the model",
        file=sys.stderr,
    )


def _from_flags(c: ConfigDict, workdir: str) -> None:
    c.model.checkpoint = CHECKPOINT.value or c.model.checkpoint
    main(c, workdir)


if __name__ == "__main__":
    if not any(word.split("=")[0].lstrip("-") == "config" for word in sys.argv):
        sys.argv.insert(1, f"--config={CONFIG}")
    CHECKPOINT = flags.DEFINE_string(
        "checkpoint", None, "A run directory, or a Hugging Face directory."
    )
    cli.run(_from_flags)
