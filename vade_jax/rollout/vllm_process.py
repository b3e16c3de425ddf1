"""Starts a vLLM server on this machine, and ends it with the run.

The server and its children are one process group behind `guardian`: it dies when the run exits,
crashes or is killed, and Ctrl-C does not reach it, so that a stopping run can finish its step.
"""

import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax.rollout import guardian, vllm_setup
from vade_jax.rollout.engine import EngineFailure

HOST = "127.0.0.1"
_POLL = 0.25  # seconds between two looks at /health
_TAIL = 40  # lines of the log in an error


class Launched:
    """A server that is up. Not for several threads at once.

    Attributes:
      url: http://127.0.0.1:PORT, the same after a restart.
      log_path: what the server prints; a restart appends.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        env: Mapping[str, str],
        log_path: pathlib.Path,
        startup_timeout_s: float,
    ):
        self.url = f"http://{HOST}:{port}"
        self.log_path = log_path
        self._command, self._port, self._env = list(command), port, dict(env)
        self._startup_timeout_s = startup_timeout_s
        self._guarded = [sys.executable, "-I", guardian.__file__, str(os.getpid())]
        self._process: subprocess.Popen | None = None
        self._start()

    def alive(self) -> bool:
        """Returns whether the server's process runs; it may still be deaf (`/health`)."""
        return self._process is not None and self._process.poll() is None

    def restart(self) -> None:
        """Ends the server, hung or dead, starts it again on its port and returns when it is healthy.

        It then holds the weights of its model directory again.

        Raises:
          EngineFailure: it does not come back.
        """
        self.stop()
        self._start()

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

    def _start(self) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._guarded, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise

    def _wait_until_healthy(self) -> None:
        start = time.monotonic()
        while not (self.alive() and _healthy(self._port)):
            waited = time.monotonic() - start
            if not self.alive():
                self._fail(f"ended after {waited:.0f} s without being healthy")
            if waited > self._startup_timeout_s:
                self._fail(f"is not healthy after {waited:.0f} s (startup_timeout_s)")
            time.sleep(_POLL)

    def _fail(self, what: str) -> None:
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace")
        fix = vllm_setup.fix_for(text) or "read the log, or raise startup_timeout_s"
        tail = "\n".join(text.splitlines()[-_TAIL:])
        raise EngineFailure(
            f"the vLLM server {what}. To fix: {fix}. Log: {self.log_path}, last lines:\n"
            f"{tail}"
        )


def launch(
    model_dir: str | os.PathLike,
    *,
    port: int = 0,
    log_path: str | os.PathLike,
    options: Mapping[str, Any] = {},
    env: Mapping[str, str] = {},
    startup_timeout_s: float = 600.0,
    python: str = sys.executable,
) -> Launched:
    """Returns a vLLM server that serves `model_dir` and is healthy.

    Args:
      model_dir: a Hugging Face checkpoint with tokenizer.
      port: of 127.0.0.1; 0 takes a free one.
      log_path: where its output goes, in the run's directory.
      options: of the server, by their name with `_` for `-`: `tensor_parallel_size=2`,
        `enforce_eager=True`, `limit_mm_per_prompt={"image": 2}`. They win over the defaults;
        None removes a default.
      env: environment variables, added to this process's: CUDA_VISIBLE_DEVICES.
      startup_timeout_s: longest wait for it to be healthy.
      python: the interpreter whose vLLM is used.

    Raises:
      EngineFailure: the port is taken, or the server does not become healthy.
    """
    on_cpu = vllm_setup.is_cpu_build(python)
    port = _free_port(port)
    command = [python, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", os.fspath(model_dir), "--host", HOST, "--port", str(port)]
    command += vllm_setup.arguments({**vllm_setup.default_options(on_cpu), **options})
    return start(
        command,
        port=port,
        env={**vllm_setup.default_env(on_cpu, os.environ), **env},
        log_path=log_path,
        startup_timeout_s=startup_timeout_s,
    )


def start(
    command: Sequence[str],
    *,
    port: int,
    env: Mapping[str, str],
    log_path: str | os.PathLike,
    startup_timeout_s: float,
) -> Launched:
    """Returns any server that answers /health on `port`; `launch` names vLLM's command."""
    return Launched(
        command,
        port=port,
        env=env,
        log_path=pathlib.Path(log_path),
        startup_timeout_s=startup_timeout_s,
    )


def _free_port(port: int) -> int:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError as error:
            raise EngineFailure(
                f"port {port} of {HOST} is taken ({error}): choose another, or 0 for a free one"
            ) from error
        return trial.getsockname()[1]


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False  # not listening yet
    finally:
        connection.close()
