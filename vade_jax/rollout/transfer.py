"""Weights from the trainer's GPU to a vLLM server's without files: vLLM's weight transfer.

NOT RUN ON A GPU YET: what is tested, on a CPU, is the stream of tensors and, with vLLM's trainer
side on top of it, the requests and their order. Use `sync.WeightDirectory` unless it is too slow.

A JAX array becomes a torch tensor through DLPack, without a copy, one layer's tensor at a time; the
layers come in order, so that vLLM can finish one after the other. vLLM's trainer side packs them
into buffers of 1 GB and drives the four phases of vLLM 0.32: init once, then start, update and
finish for every version. https://docs.vllm.ai/en/latest/training/
"""

import functools
import socket
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from vade_jax.models.qwen25vl import config, weights
from vade_jax.rollout.vllm_requests import Fault
from vade_jax.types import Params

BACKENDS = ("ipc", "nccl")  # the trainer's own GPU; other GPUs
Ask = Callable[
    ..., Any
]  # (method, path, body=None) -> JSON, as `vllm_client.Server.ask`


def server_options(backend: str) -> dict[str, Any]:
    """Returns what the server must be started with, as `vllm_process.launch` takes it."""
    return {"weight_transfer_config": {"backend": backend}}


def server_env(backend: str) -> dict[str, str]:
    """Returns the server's environment: handles of the GPU's memory arrive pickled."""
    return {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"} if backend == "ipc" else {}


class Described(NamedTuple):
    """A tensor that the stream will hold; dtype is torch's."""

    name: str
    dtype: Any
    shape: tuple[int, ...]


class Source:
    """The newest parameters as (Hugging Face name, torch tensor): vLLM's `WeightSource`.

    Attributes:
      params: on devices; what the next iteration reads.
    """

    def __init__(self, shape: config.Config, dtype: Any):
        self.params: Params = None
        self._entries = _entries(shape)
        self._size = dict(weights.names_and_shapes(shape))
        self._dtype = np.dtype(dtype)

    def metadata(self) -> list[Described]:
        """Returns what iterating yields, in its order."""
        import torch

        dtype = getattr(torch, self._dtype.name)
        return [Described(e.name, dtype, self._size[e.name]) for e in self._entries]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yields (name, torch tensor); all processes of the mesh iterate together."""
        import torch

        for entry in self._entries:
            yield entry.name, torch.from_dlpack(self._array(entry))

    def _array(self, entry) -> jax.Array:
        """Returns a tensor on this process's first device."""
        path = entry.path.split("/")
        value = functools.reduce(lambda tree, key: tree[key], path, self.params)
        if _is_ready(value, entry) and value.dtype == self._dtype:
            return value.addressable_data(0)
        make = _make(entry.transform, entry.stacked, self._dtype, _mesh(value))
        return make(value, entry.layer).addressable_data(0)


class Transfer:
    """Sends parameters to a server that was started with `server_options`.

    `ipc` needs a server with one GPU, the one that this process uses. Process 0 sends.

    Args:
      url: of the server.
      ask: asks it for JSON.
      shape: of the model.
      dtype: that the server computes in.
      backend: one of `BACKENDS`.
      timeout_s: the longest wait for one phase.
    """

    def __init__(
        self,
        url: str,
        ask: Ask,
        shape: config.Config,
        dtype: Any,
        *,
        backend: str,
        timeout_s: float = 600.0,
    ):
        if backend not in BACKENDS:
            raise ValueError(f"weight transfer {backend!r}: choose one of {BACKENDS}")
        self._url, self._ask, self._backend = url, ask, backend
        self._timeout_s = timeout_s
        self._source = Source(shape, dtype)
        self._sender = None

    def send(self, params: Params, tag: str) -> None:
        """Returns when the server has these weights, by this name, and nothing of the old ones'.

        Raises:
          Fault: they did not arrive; the next call connects anew.
        """
        self._source.params = params
        try:
            self._sender = self._sender or self._connect()
            self._sender.send_weights()
            for cache in ("prefix", "mm", "encoder"):
                self._ask("POST", f"/reset_{cache}_cache")
            self._ask("POST", "/update_weight_version", {"new_version": tag})
        except Exception as error:
            self._sender = None
            raise Fault(
                f"the weights {tag} did not reach {self._url} by "
                f"{self._backend} ({error}): restart the server, or sync through files"
            ) from error
        finally:
            self._source.params = None

    def _connect(self):
        """Returns vLLM's trainer side, with its init done on both sides."""
        from vllm.distributed.weight_transfer import clients, factory

        client = clients.HTTPVLLMWeightSyncClient(self._url, self._timeout_s)
        make = factory.WeightTransferTrainerFactory.trainer_init
        return make(self._init_info(), client=client, source=self._source)

    def _init_info(self):
        from vllm.distributed.weight_transfer import ipc_engine, nccl_engine

        _use_jax_device()
        rank = jax.process_index()
        if self._backend == "ipc":  # packed: JAX's own memory may not be shared
            return ipc_engine.IPCTrainerInitInfo(rank=rank, packed=True)
        return nccl_engine.NCCLTrainerInitInfo(
            rank=rank,
            master_address=socket.gethostbyname(socket.gethostname()),
            master_port=_free_port(),
            world_size=1 + self._ask("GET", "/get_world_size")["world_size"],
        )


class _Entry(NamedTuple):
    name: str
    path: str
    layer: int
    stacked: bool
    transform: weights.Transform


def _entries(shape: config.Config) -> list[_Entry]:
    """Returns every tensor: first those of no layer, then layer after layer."""
    depth = {"model.layers": shape.text.num_layers, "visual.blocks": shape.vision.depth}
    found = []
    for pattern, (path, transform) in weights.TABLE.items():
        if pattern == "lm_head.weight" and shape.tie_embeddings:
            continue
        stack = pattern.partition(".{}")[0] if "{}" in pattern else ""
        for i in range(depth.get(stack, 1)):
            entry = _Entry(pattern.format(i), path, i, bool(stack), transform)
            found.append((stack, i, entry))
    return [entry for *_, entry in sorted(found, key=lambda row: row[:2])]


def _is_ready(value: jax.Array, entry: _Entry) -> bool:
    """Returns whether a parameter is the tensor as it is, whole on a device."""
    same = entry.transform is weights.SAME and not entry.stacked
    return same and value.is_fully_replicated


def _mesh(value: jax.Array):
    sharding = value.sharding
    return sharding.mesh if isinstance(sharding, NamedSharding) else None


@functools.cache
def _make(transform, stacked, dtype, mesh):
    """Returns what makes one tensor, whole on every device of the mesh."""

    def make(value, layer):
        return transform.invert(value[layer] if stacked else value).astype(dtype)

    return jax.jit(make, out_shardings=mesh and NamedSharding(mesh, PartitionSpec()))


def _use_jax_device() -> None:
    """Makes torch use the GPU that the tensors are on."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(jax.local_devices()[0].local_hardware_id)


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("", 0))
        return trial.getsockname()[1]
