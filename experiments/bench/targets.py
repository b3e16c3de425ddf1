"""Accelerators for which programs can be compiled without having the hardware.

XLA's compilers for TPU and CUDA take a description of devices. They return what the hardware would run: the
same layouts, fusions, kernels, collectives and memory. Nothing is executed and nothing can be timed. Without
a GPU the tile sizes of kernels cannot be tuned either, so cuBLAS multiplies matrices instead of Triton.
"""

import dataclasses
import importlib.util
import os
from typing import Any

from jax.experimental import topologies

GB = 1e9
HOST_GPUS = 8
# Slices by their number of chips; one chip of v5p is a part of a slice.
GRID_3D = {1: "1x1x1", 4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"}
GRID_2D = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8"}


@dataclasses.dataclass(frozen=True)
class Target:
    """One device, by its published numbers.

    Attributes:
        memory_gb: in 10^9 bytes; for a GPU the total that CUDA reports, for a TPU the memory that its
            compiler can use: 95.74, 31.25 and 15.75 GiB.
        grids: for a TPU, the slice by number of chips.
        gpu: for a GPU, the fields of XLA's description that differ between GPUs.
    """

    memory_gb: float
    grids: dict[int, str] | None = None
    gpu: dict[str, Any] | None = None

    @property
    def platform(self) -> str:
        return "tpu" if self.grids else "cuda"


HOPPER = {"capability": (9, 0), "cores": 132, "threads": 2048, "fpus": 128}
HOPPER |= {"shared": 233472, "optin": 232448, "l2": 52428800, "ghz": 1.98}
AMPERE = {"capability": (8, 0), "cores": 108, "threads": 2048, "fpus": 64}
AMPERE |= {"shared": 167936, "optin": 166912, "l2": 41943040, "ghz": 1.41, "bandwidth_tb": 2.039}
ADA = {"capability": (8, 9), "cores": 58, "threads": 1536, "fpus": 128}
ADA |= {"shared": 102400, "optin": 101376, "l2": 50331648, "ghz": 2.04, "bandwidth_tb": 0.3}
TARGETS = {
    "h200": Target(150.754820096, gpu=HOPPER | {"name": "NVIDIA H200", "bandwidth_tb": 4.8}),
    "h100": Target(
        84.929347584,
        gpu=HOPPER | {"name": "NVIDIA H100 80GB HBM3", "bandwidth_tb": 3.35232},
    ),
    "a100-80g": Target(84.987740160, gpu=AMPERE | {"name": "NVIDIA A100-SXM4-80GB"}),
    # It reports the least memory of all cards with 24 GB.
    "l4": Target(23.805820928, gpu=ADA | {"name": "NVIDIA L4"}),
    "v5p": Target(102.800, grids=GRID_3D),
    "v6e": Target(33.554, grids=GRID_2D),
    "v5e": Target(16.911, grids=GRID_2D),
}
# Options of the compilers. Without a GPU nothing can be tuned, and the default tiles of Triton do not fit
# every matrix.
OPTIONS = {
    "cuda": {"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0},
    "tpu": {},
}


def devices(name: str, count: int) -> list:
    """Returns descriptions of `count` devices, to build a mesh from.

    Raises:
        ValueError: the target's compiler is not installed, or the target does not come in this number.
    """
    target = TARGETS[name]
    if target.platform == "tpu":
        return _tpu(name, target.grids, count)
    return _gpus(target, count)


def _tpu(name: str, grids: dict[int, str], count: int) -> list:
    if count not in grids:
        sizes = ", ".join(map(str, grids))
        raise ValueError(f"--target={name} --devices={count}: a slice has {sizes} chips")
    _need("libtpu", name, "tpu")
    import libtpu

    # Without these, libtpu asks the cloud's metadata server for its identity and waits for an answer.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "none")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "true")  # there is no chip to compete for
    os.environ.setdefault("TPU_LIBRARY_PATH", libtpu.get_library_path())
    kwargs = {"chips_per_host_bounds": [1, 1, 1]} if count == 1 else {}
    return topologies.get_topology_desc(f"{name}:{grids[count]}", "tpu", **kwargs).devices


def _gpus(target: Target, count: int) -> list:
    hosts = -(-count // HOST_GPUS)
    if count % hosts:
        raise ValueError(
            f"--devices={count}: GPUs come {HOST_GPUS} to a host, and every host has as many: "
            f"give up to {HOST_GPUS}, or a multiple of {HOST_GPUS}"
        )
    _need("jax_cuda13_plugin", target.gpu["name"], "cuda")
    return topologies.get_topology_desc(
        target.gpu["name"],
        "cuda",
        target_config=_description(target),
        topology=f"1x{hosts}x{count // hosts}",
    ).devices


def _need(module: str, name: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(
            f"the compiler for {name} is not installed: pip install -e '.[{extra}]', "
            "in a separate environment on a machine without the hardware"
        )


def _description(target: Target) -> str:
    """Returns the text form of XLA's GpuTargetConfigProto."""
    gpu = target.gpu
    major, minor = gpu["capability"]
    return f"""
        gpu_device_info {{
          threads_per_block_limit: 1024
          threads_per_warp: 32
          shared_memory_per_block: 49152
          shared_memory_per_core: {gpu["shared"]}
          threads_per_core_limit: {gpu["threads"]}
          core_count: {gpu["cores"]}
          fpus_per_core: {gpu["fpus"]}
          block_dim_limit_x: 2147483647
          block_dim_limit_y: 65535
          block_dim_limit_z: 65535
          memory_bandwidth: {int(gpu["bandwidth_tb"] * 1e12)}
          l2_cache_size: {gpu["l2"]}
          clock_rate_ghz: {gpu["ghz"]}
          device_memory_size: {int(target.memory_gb * GB)}
          shared_memory_per_block_optin: {gpu["optin"]}
          cuda_compute_capability {{ major: {major} minor: {minor} }}
          registers_per_core_limit: 65536
          registers_per_block_limit: 65536
        }}
        platform_name: "CUDA"
        runtime_version {{ major: 13 minor: 0 patch: 0 }}
        dnn_version_info {{ major: 9 minor: 7 }}
        device_description_str: "{gpu["name"]}"
    """
