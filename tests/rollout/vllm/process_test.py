"""The server's life, with a stand-in that answers /health, and with the real vLLM."""

import importlib.util
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import httpx
import pytest

from vade_jax.rollout.engine import EngineFailure
from vade_jax.rollout.vllm import guardian, process

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


def stand_in(folder, script=STAND_IN, timeout_s=20.0):
    port = process.free_port()
    return process.LaunchedServer(
        [sys.executable, "-c", script, str(folder), str(port)],
        port=port,
        env=os.environ,
        log_path=folder / "logs" / "server.log",
        start_s=timeout_s,
    )


def started(folder):
    """The pids of the server and its child, and the name of its shared memory."""
    server, child, memory = (folder / "pids").read_text().split()
    return int(server), int(child), pathlib.Path("/dev/shm") / memory


def gone(pid, wait_s=5.0):
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def server(tmp_path):
    launched = stand_in(tmp_path)
    yield launched
    launched.stop()


# ------------------------------------------------------------------------------ life
def test_a_server_is_up_when_it_is_returned_and_gone_when_stopped(server, tmp_path):
    assert server.alive()
    assert server.url.startswith("http://127.0.0.1:")
    pid, child, memory = started(tmp_path)
    assert memory.exists()
    server.stop()
    assert not server.alive()
    assert gone(pid) and gone(child)
    assert not memory.exists()  # what a killed process leaves behind is cleaned up
    assert "the stand-in is up" in server.log_path.read_text()
    server.stop()  # nothing more to do


def test_a_restart_is_another_process_at_the_same_url(server, tmp_path):
    url, (pid, child, _) = server.url, started(tmp_path)
    os.kill(pid, signal.SIGKILL)
    assert gone(server._process.pid)
    assert not server.alive() and gone(child)
    server.restart()
    assert server.alive() and server.url == url
    assert started(tmp_path)[0] != pid
    assert server.log_path.read_text().count("the stand-in is up") == 2


def test_a_restart_that_is_ended_is_not_waited_for(tmp_path):
    mark = '(folder / "pids")'
    script = STAND_IN.replace("child =", f"first = not {mark}.exists()\nchild =", 1)
    server = stand_in(tmp_path, script.replace("200", "200 if first else 503"))
    ended = threading.Event()
    threading.Timer(0.5, ended.set).start()
    began = time.monotonic()
    server.restart(ended)
    try:
        assert server.alive() and time.monotonic() - began < 15  # of 20 s
    finally:
        server.stop()


@pytest.mark.slow
def test_a_hung_server_can_be_restarted(server, tmp_path):
    pid, _, _ = started(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    server.restart()
    assert gone(pid) and server.alive()
    assert time.monotonic() - start < guardian.GRACE + guardian.CLEANING


def test_a_server_outlives_its_guardian_by_nothing(server, tmp_path):
    pid, child, _ = started(tmp_path)
    os.kill(server._process.pid, signal.SIGKILL)
    assert gone(pid)
    assert not server.alive()
    server.stop()
    assert gone(child)


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
    assert gone(pid) and gone(child)
    time.sleep(guardian.POLL)
    assert not memory.exists()


def test_ctrl_c_does_not_reach_the_server(run, tmp_path):
    """The terminal sends it to the run's whole group."""
    os.killpg(run.pid, signal.SIGINT)
    assert run.stdout.readline() == "interrupted\n"
    time.sleep(3 * guardian.POLL)
    pid, child, _ = started(tmp_path)
    assert not gone(pid, 0.1) and not gone(child, 0.1)


# ------------------------------------------------------------------------------ failures
def test_a_start_that_fails_shows_the_log_and_the_fix(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_text("of an earlier start\n")
    script = "print('loading'); raise RuntimeError('CUDA out of memory')"
    with pytest.raises(EngineFailure) as error:
        stand_in(tmp_path, script)
    text = str(error.value)
    assert "CUDA out of memory" in text and "lower layout.serve_memory" in text
    assert "loading" in text and str(tmp_path / "logs" / "server.log") in text
    assert "of an earlier start" not in text


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            "User-specified max_model_len (9) is greater than the derived max_model_len",
            "lower data.max_prompt_length",
        ),
        ("Try increasing `x` or decreasing `max_model_len` when", "lower data.max_prompt_length"),
        ("RuntimeError: operator torchvision::nms does not exist", "first on PYTHONPATH"),
        ("something else", "read the log"),
    ],
)
def test_the_arguments_that_vllm_logs_are_not_taken_for_its_error(tmp_path, said, fix):
    script = f"""print("non-default args: {{'max_model_len': 9}}"); exit({said!r})"""
    with pytest.raises(EngineFailure, match=f"To fix: {fix}|To fix: put .* {fix}"):
        stand_in(tmp_path, script)


def test_a_start_that_takes_too_long_is_ended(tmp_path):
    script = STAND_IN.replace("200", "503")
    with pytest.raises(EngineFailure, match=r"engine\.start_s"):
        stand_in(tmp_path, script, timeout_s=1.5)
    pid, child, _ = started(tmp_path)
    assert gone(pid) and gone(child)


def test_what_cannot_be_launched_is_named(server, tmp_path):
    """An interpreter without site-packages stands in for one without vLLM."""
    port = int(server.url.rpartition(":")[2])
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    assert not process.is_cpu_build(str(bare))
    for options, words in (
        ({"port": port}, f"port {port} of 127.0.0.1 is taken"),
        ({"python": "/no/python"}, "/no/python cannot be run"),
        ({"python": str(bare)}, "pip install vllm"),
    ):
        with pytest.raises(EngineFailure, match=words):
            process.launch(tmp_path, log_path=tmp_path / "log", **options)


# ------------------------------------------------------------------------------ command
@pytest.mark.parametrize("on_cpu", [True, False])
def test_the_command_of_vllm(tmp_path, monkeypatch, on_cpu):
    seen = {}

    def launched(command, **options):
        seen.update(options)
        return command

    monkeypatch.setattr(process, "is_cpu_build", lambda python: on_cpu)
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
    assert pairs["--port"] == str(seen["port"])
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


def test_the_hook_comes_first_and_once(monkeypatch, tmp_path):
    hook = str(process.TORCHVISION_HOOK)
    once = process.with_hook(os.pathsep.join(["/a", hook, "/b"]))
    assert once == os.pathsep.join([hook, "/a", "/b"])
    assert process.with_hook("") == hook
    monkeypatch.setattr(process, "TORCHVISION_HOOK", tmp_path / "nowhere")
    with pytest.raises(EngineFailure, match="nowhere"):
        process.with_hook("")


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
    done = run(process.with_hook(str(tmp_path)))
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
        start_s=240,
    )
    try:
        assert '"tiny"' in httpx.get(f"{server.url}/v1/models").text
        server.restart()
        assert '"tiny"' in httpx.get(f"{server.url}/v1/models").text
        group = server._process.pid
        memory = shared_memory(group)
        assert len(members(group)) >= 4  # guardian, server, engine, worker
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
