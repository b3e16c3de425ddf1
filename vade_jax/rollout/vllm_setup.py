"""What a vLLM on this machine needs: options, environment, and the fix for a bad start.

A CPU build needs the torchvision hook of `third_party/torchvision_cpu` in every process of it.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from vade_jax.rollout.engine import EngineFailure

TORCHVISION_HOOK = pathlib.Path(__file__).parents[2] / "third_party/torchvision_cpu"
# What is seen in the log of a start that failed, and what helps. The first that fits.
_FIXES = (
    (
        "No module named 'vllm'",
        "install vLLM into this environment (pip install vllm), or name the interpreter "
        "that has it",
    ),
    (
        "No module named vllm",
        "install vLLM into this environment (pip install vllm), or name the interpreter "
        "that has it",
    ),
    ("unrecognized arguments", "remove the option from the vLLM options"),
    (
        "less than desired GPU memory utilization",
        "lower gpu_memory_utilization, or give the server a GPU of its own through "
        "CUDA_VISIBLE_DEVICES",
    ),
    (
        "No available memory for the cache blocks",
        "raise gpu_memory_utilization (VLLM_CPU_KVCACHE_SPACE on a CPU)",
    ),
    (
        "out of memory",
        "lower gpu_memory_utilization or max_num_seqs, or raise tensor_parallel_size",
    ),
    ("max_model_len", "lower max_model_len to prompt plus answer"),
    ("torchvision::nms", f"put {TORCHVISION_HOOK} first on PYTHONPATH"),
)


def default_options(on_cpu: bool) -> dict[str, Any]:
    """Returns the server options that rollouts need, and those that suit the machine."""
    return {
        "dtype": "float32" if on_cpu else "bfloat16",
        "enforce_eager": True if on_cpu else None,
        # The CPU build cannot go on with the seeded half of a prompt.
        "enable_chunked_prefill": False if on_cpu else None,
        # No sampling defaults of the checkpoint behind our back.
        "generation_config": "vllm",
        # Log-probs of the distribution drawn from: tempered, banned tokens out.
        "logprobs_mode": "processed_logprobs",
        "limit_mm_per_prompt": {"video": 0},
    }


def default_env(on_cpu: bool, inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns the server's environment; on a CPU with the torchvision hook in front."""
    env = {"VLLM_NO_USAGE_STATS": "1", **inherited, "VLLM_SERVER_DEV_MODE": "1"}
    if on_cpu:
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
        env["PYTHONPATH"] = with_hook(inherited.get("PYTHONPATH", ""))
    return env


def with_hook(pythonpath: str) -> str:
    """Returns PYTHONPATH with the torchvision hook in front.

    Raises:
      EngineFailure: the hook's folder is missing (an installation without third_party).
    """
    if not (TORCHVISION_HOOK / "sitecustomize.py").is_file():
        raise EngineFailure(
            f"vllm-cpu needs {TORCHVISION_HOOK}/sitecustomize.py, which is missing: run "
            "from a checkout of vade_jax"
        )
    parts = pythonpath.split(os.pathsep) if pythonpath else []
    hook = str(TORCHVISION_HOOK)
    return os.pathsep.join([hook, *[part for part in parts if part != hook]])


@functools.cache
def is_cpu_build(python: str = sys.executable) -> bool:
    """Returns whether the vLLM of `python` is the CPU build, distributed as vllm-cpu."""
    code = "from importlib import metadata; metadata.version('vllm-cpu')"
    run = [python, "-I", "-c", code]
    try:
        return subprocess.run(run, capture_output=True, check=False).returncode == 0
    except OSError as error:
        raise EngineFailure(
            f"the interpreter {python} cannot be run: {error}"
        ) from error


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


def fix_for(log: str) -> str | None:
    """Returns what helps against the failure that a log shows, or None."""
    return next((fix for pattern, fix in _FIXES if pattern in log), None)
