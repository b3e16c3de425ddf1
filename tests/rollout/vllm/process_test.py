"""The server's life, with a stand-in that answers /health; real_server_test.py has the real vLLM."""

import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from vade_jax.client import Client, Failure
from vade_jax.rollout.vllm import process

# A server with what vLLM has: a child process, and shared memory that nobody frees.
STAND_IN = """
import http.server, multiprocessing.shared_memory, pathlib, subprocess, sys, os
folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
memory = multiprocessing.shared_memory.SharedMemory(create=True, size=16)
(folder / "pids").write_text(f"{os.getpid()} {child.pid} {memory.name}")
print("the stand-in is up", flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
RUN = """
import pathlib, sys, time
import tests.rollout.vllm.process_test as t
server = t.stand_in(pathlib.Path(sys.argv[1]))
print("up", flush=True)
time.sleep(600)
"""


def stand_in(folder):
    port = process.free_port()
    server = process.LaunchedServer(
        [sys.executable, "-c", STAND_IN, str(folder), str(port)],
        f"http://127.0.0.1:{port}",
        env=os.environ,
        log_path=folder / "logs" / "server.log",
    )
    wait(server)
    return server


def wait(server, seconds=20):
    """Waits until the server answers."""
    end, asked = time.monotonic() + seconds, Client(server.url, retries=0)
    while isinstance(asked.submit("/health").result(), Failure):
        assert server.alive() and time.monotonic() < end, server.log_path.read_text()
        time.sleep(0.05)


def started(folder):
    """The pids of the server and its child, and the name of its shared memory."""
    server, child, memory = (folder / "pids").read_text().split()
    return int(server), int(child), pathlib.Path("/dev/shm") / memory


def gone(*of, wait_s=30.0):
    """Whether these processes and files are gone, or soon will be."""
    end = time.monotonic() + wait_s
    while any(map(is_there, of)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def is_there(one):
    if isinstance(one, pathlib.Path):
        return one.exists()
    try:
        stat = pathlib.Path(f"/proc/{one}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def server(tmp_path):
    launched = stand_in(tmp_path)
    yield launched
    launched.stop()


# ------------------------------------------------------------------------------ life
def test_a_server_is_gone_when_it_is_stopped(server, tmp_path):
    assert server.alive()
    pid, child, memory = started(tmp_path)
    assert memory.exists()
    server.stop()
    assert not server.alive()
    assert gone(pid, child, memory)  # what a killed process leaves behind is cleaned up
    assert "the stand-in is up" in server.log_path.read_text()
    server.stop()  # nothing more to do


# ------------------------------------------------------------------------------ the run
@pytest.fixture
def run(tmp_path):
    root = pathlib.Path(__file__).parents[3]
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"},
        start_new_session=True,
    )
    assert run.stdout.readline() == "up\n"
    yield run
    run.kill()
    run.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_does_not_outlive_the_run(run, tmp_path, number):
    pid, child, memory = started(tmp_path)
    run.send_signal(number)
    run.wait()
    assert gone(pid, child, memory)


# ------------------------------------------------------------------------------ command
@pytest.mark.parametrize("on_cpu", [True, False])
def test_the_command_of_vllm(tmp_path, monkeypatch, on_cpu):
    """The user's options and environment win, but for what the engine needs."""
    launched = lambda command, url, env, log_path: (command, url, env)
    monkeypatch.setattr(process, "is_cpu_build", lambda: on_cpu)
    monkeypatch.setattr(process, "LaunchedServer", launched)
    own = {"PYTHONPATH": "/mine", "VLLM_SERVER_DEV_MODE": "0", "VLLM_API_KEY": "sk-secret123"}
    for name, value in (own | {"VLLM_CPU_KVCACHE_SPACE": "8"}).items():
        monkeypatch.setenv(name, value)
    options = {"tensor_parallel_size": 2, "enforce_eager": True, "dtype": "float16"}
    options |= {"enable_prefix_caching": False, "middleware": ["a", "b"], "generation_config": None}
    options["limit_mm_per_prompt"] = {"image": 2}
    device = {"CUDA_VISIBLE_DEVICES": "2,3"}
    command, url, env = process.launch("model", log_path=tmp_path, options=options, env=device)
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    pairs = dict(itertools.pairwise(command))
    assert pairs["--model"] == "model" and url == f"http://{pairs['--host']}:{pairs['--port']}"
    assert pairs["--tensor-parallel-size"] == "2" and command.count("--dtype") == 1
    assert pairs["--dtype"] == "float16" and pairs["--limit-mm-per-prompt"] == '{"image": 2}'
    assert pairs["--logprobs-mode"] == "processed_logprobs" and pairs["--middleware"] == "a"
    assert {"--enforce-eager", "--no-enable-prefix-caching"} < {*command}
    assert {"--trust-request-chat-template"} < {*command} and "--generation-config" not in command
    assert env["CUDA_VISIBLE_DEVICES"] == "2,3" and env["VLLM_SERVER_DEV_MODE"] == "1"
    hook = f"{process.TORCHVISION_HOOK}{os.pathsep}/mine"
    assert env["PYTHONPATH"] == (hook if on_cpu else "/mine")
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "8" and "VLLM_API_KEY" not in env
