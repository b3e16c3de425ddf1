"""The server's life, with a stand-in that answers /health, and with the real vLLM."""

import importlib.util
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
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
import pathlib, signal, sys, time
import tests.rollout.vllm.process_test as t
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
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


def gone(*of, wait_s=10.0):
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


def test_a_server_that_is_killed_leaves_nothing_behind(server, tmp_path):
    pid, child, memory = started(tmp_path)
    os.kill(pid, signal.SIGKILL)
    server._process.wait(20)
    assert gone(child, memory)
    assert not server.alive() and "ended with exit status 137" in server.log_path.read_text()


@pytest.mark.slow
def test_a_hung_server_can_be_stopped(server, tmp_path):
    pid, _, _ = started(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    server.stop()
    assert gone(pid) and time.monotonic() - start < 2 * process.GRACE_S


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


def test_ctrl_c_does_not_reach_the_server(run, tmp_path):
    """The terminal sends it to the run's whole group."""
    os.killpg(run.pid, signal.SIGINT)
    assert run.stdout.readline() == "interrupted\n"
    time.sleep(0.5)
    pid, child, _ = started(tmp_path)
    assert is_there(pid) and is_there(child)


# ------------------------------------------------------------------------------ command
@pytest.mark.parametrize("on_cpu", [True, False])
def test_the_command_of_vllm(tmp_path, monkeypatch, on_cpu):
    seen = {}

    def launched(command, url, env, log_path):
        seen.update(url=url, env=env)
        return command

    monkeypatch.setattr(process, "is_cpu_build", lambda: on_cpu)
    monkeypatch.setattr(process, "LaunchedServer", launched)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    command = process.launch(
        "model",
        log_path=tmp_path / "log",
        options={"tensor_parallel_size": 2, "enforce_eager": True, "dtype": "float16"},
        env={"CUDA_VISIBLE_DEVICES": "2,3"},
    )
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    pairs = dict(itertools.pairwise(command))
    assert pairs["--model"] == "model" and pairs["--host"] == "127.0.0.1"
    assert seen["url"] == f"http://127.0.0.1:{pairs['--port']}"
    assert pairs["--tensor-parallel-size"] == "2" and pairs["--dtype"] == "float16"
    assert command.count("--dtype") == 1 and "--enforce-eager" in command
    assert pairs["--logprobs-mode"] == "processed_logprobs"
    assert pairs["--generation-config"] == "vllm"
    assert "--trust-request-chat-template" in command
    assert pairs["--limit-mm-per-prompt"] == '{"video": 0}'
    env = seen["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == "2,3" and env["VLLM_SERVER_DEV_MODE"] == "1"
    hook = f"{process.TORCHVISION_HOOK}{os.pathsep}/mine"
    assert env["PYTHONPATH"] == (hook if on_cpu else "/mine")
    assert env.get("VLLM_CPU_KVCACHE_SPACE") == ("1" if on_cpu else None)


def test_options_become_arguments():
    options = {
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_model_len": 512,
        "limit_mm_per_prompt": {"image": 2, "video": 0},
        "middleware": ["a", "b"],
        "dtype": None,
    }
    assert process.arguments(options) == [
        "--enforce-eager",
        "--no-enable-prefix-caching",
        *("--max-model-len", "512"),
        *("--limit-mm-per-prompt", '{"image": 2, "video": 0}'),
        *("--middleware", "a", "b"),
    ]


def test_the_users_environment_wins_but_for_what_the_engine_needs():
    inherited = {"VLLM_CPU_KVCACHE_SPACE": "8", "VLLM_SERVER_DEV_MODE": "0"}
    env = process.default_env(True, inherited)
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "8"
    assert env["VLLM_SERVER_DEV_MODE"] == "1"
    assert "PYTHONPATH" not in process.default_env(False, {})


def test_a_key_of_the_users_own_servers_is_not_asked_for_by_this_one():
    assert "VLLM_API_KEY" not in process.default_env(False, {"VLLM_API_KEY": "sk-secret123"})


# ------------------------------------------------------------------------------ the hook
PACKAGES = {
    "torchvision/__init__.py": """
        import torch
        @torch.library.register_fake("torchvision::nms")
        def nms(dets, scores, iou_threshold):
            return dets.new_empty(0)
    """,
    "torchvision/_C.so": "not a library",
    "torchaudio/__init__.py": "raise OSError('cannot load')",
    "torchaudio/lib/_torchaudio.abi3.so": "not a library",
    "torchcodec/__init__.py": "works = True",
    "transformers/__init__.py": """
        import importlib.util
        audio = importlib.util.find_spec("torchaudio")
        codec = importlib.util.find_spec("torchcodec")
        import torchvision
    """,
    "vllm/__init__.py": "",
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/layers/__init__.py": "",
    "vllm/model_executor/layers/vocab_parallel_embedding.py": """
        class UnquantizedEmbeddingMethod:
            def process_weights_after_loading(self, layer):
                layer.cpu_linear = None
    """,
}
CHECK = """
import types, torch, transformers
from vllm.model_executor.layers import vocab_parallel_embedding as embedding
assert transformers.audio is None, "torchaudio cannot load: hidden"
assert transformers.codec is not None, "torchcodec can: left alone"
layer = types.SimpleNamespace()
embedding.UnquantizedEmbeddingMethod().process_weights_after_loading(layer)
x, w = torch.ones(1, 2), torch.tensor([[1.0, 2.0]])
assert layer.cpu_linear(x, w, None).item() == 3
w += 1  # a reload in place
assert layer.cpu_linear(x, w, None).item() == 5
print("repaired")
"""


@pytest.mark.slow  # torch is imported twice
def test_the_hook_repairs_what_cannot_load_and_the_head(tmp_path):
    pytest.importorskip("torch")
    for name, text in PACKAGES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    run = lambda path: subprocess.run(
        [sys.executable, "-c", CHECK],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    done = run(process.default_env(True, {"PYTHONPATH": str(tmp_path)})["PYTHONPATH"])
    assert done.stdout == "repaired\n", done.stderr
    assert "torchvision::nms" in run(str(tmp_path)).stderr


# ------------------------------------------------------------------------------ vLLM itself
@pytest.mark.vllm
@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is missing")
def test_the_real_server(tmp_path):
    from vade_jax.models.qwen import tiny_checkpoint

    tiny_checkpoint.write(tmp_path / "model", 0)
    server = process.launch(
        tmp_path / "model",
        log_path=tmp_path / "server.log",
        options={"max_model_len": 256, "served_model_name": "tiny"},
    )
    try:
        wait(server, 240)
        group = server._process.pid
        memory = shared_memory(group)
        assert len(members(group)) >= 4  # two shells, server, engine, worker
    finally:
        server.stop()
    assert not members(group)
    assert not any(path.exists() for path in memory)


def members(group):
    """The living processes of a group."""
    run = ["ps", "-eo", "pid=,pgid=,stat="]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in lines.splitlines()]
    return [int(row[0]) for row in rows if int(row[1]) == group and "Z" not in row[2]]


def shared_memory(group):
    maps = [pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in members(group)]
    words = {word for text in maps for word in text.split()}
    return [pathlib.Path(word) for word in words if word.startswith("/dev/shm/psm")]
