"""Starts a vLLM server on this machine, and ends it together with the run.

The server and its children are one process group under a shell. It waits until the server or the run ends,
and then ends the group. Ctrl-C does not reach it, so a run that is being stopped can finish its step.

vLLM's CPU build needs the hook of `third_party/torchvision_cpu` in each of its processes.
"""

import contextlib
import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

HOST = "127.0.0.1"
# In a checkout the hook is in third_party; an installation has it in its data directory.
_HOOKS = (
    pathlib.Path(__file__).parents[3] / "third_party/torchvision_cpu",
    pathlib.Path(sysconfig.get_path("data"), "share/vade_jax/torchvision_cpu"),
)
TORCHVISION_HOOK = next((path for path in _HOOKS if path.is_dir()), _HOOKS[-1])
GRACE_S = 10  # from SIGTERM to SIGKILL
# The run holds the other end of the standard input, which closes however the run ends. A killed server (137)
# leaves children, which get some seconds to clean up before the group is killed.
_WITH_THE_RUN = f"""exec 3<&0
"$@" 3<&- & server=$!
(read -r _ <&3; kill $server; sleep {GRACE_S}; kill -9 $server) &
wait $server; status=$?; echo "the server ended with exit status $status"
trap '' TERM; kill 0; sleep 1; [ $status = 137 ] && sleep 4
kill -9 0"""


def launch(
    model_dir: str | os.PathLike,
    *,
    log_path: str | os.PathLike,
    options: Mapping[str, Any] = {},
    env: Mapping[str, str] = {},
) -> "LaunchedServer":
    """Starts a vLLM server for `model_dir`; it takes minutes until it answers.

    Args:
        model_dir: a Hugging Face checkpoint with a tokenizer.
        log_path: the file that the server's output is appended to.
        options: command line options of the server, with `_` for `-`: `tensor_parallel_size=2`,
            `enforce_eager=True`, `limit_mm_per_prompt={"image": 2}`. They override
            `default_options`; None removes a default.
        env: variables that are added to this process's environment, such as CUDA_VISIBLE_DEVICES.
    """
    on_cpu = is_cpu_build()
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", os.fspath(model_dir), "--host", HOST, "--port", str(port)]
    command += arguments({**default_options(on_cpu), **options})
    env = {**default_env(on_cpu, os.environ), **env}
    return LaunchedServer(command, f"http://{HOST}:{port}", env, pathlib.Path(log_path))


class LaunchedServer:
    """A server that this run has started.

    Args:
        command: starts the server.
        url: where the command makes it listen.
        env: the complete environment of the server.
        log_path: the file that its output is appended to.
    """

    def __init__(
        self, command: Sequence[str], url: str, env: Mapping[str, str], log_path: pathlib.Path
    ):
        self.url, self.log_path = url, log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _WITH_THE_RUN, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,  # the terminal's Ctrl-C does not reach it
            )

    def alive(self) -> bool:
        """Returns whether the server's processes are running; they may still not answer."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Asks the server to stop, then kills the remaining processes. Does nothing if it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2 * GRACE_S)
        with contextlib.suppress(ProcessLookupError):  # the group has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


# ----------------------------------------------------------------------- vLLM's own needs
def default_options(on_cpu: bool) -> dict[str, Any]:
    """Returns the server options that rollouts need, and those that the build of vLLM needs."""
    return {
        "dtype": "float32" if on_cpu else "bfloat16",
        "enforce_eager": True if on_cpu else None,
        # Chunked prefill changes the CPU build's seeded draws.
        "enable_chunked_prefill": False if on_cpu else None,
        # Not the checkpoint's generation_config.json, which may have other sampling defaults.
        "generation_config": "vllm",
        # Requests contain the rendered text and a chat template that repeats it.
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
        paths = [str(TORCHVISION_HOOK), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return env


@functools.cache
def is_cpu_build() -> bool:
    """Returns whether vLLM's CPU build is installed, which is distributed as vllm-cpu."""
    return bool(list(metadata.distributions(name="vllm-cpu")))


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


def free_port() -> int:
    """Returns a free port of `HOST`."""
    with socket.create_server((HOST, 0)) as trial:
        return trial.getsockname()[1]
