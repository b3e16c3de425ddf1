"""The stream of tensors, and vLLM's trainer side on top of it against a recorded server.

No GPU takes part: what crosses between GPUs is not tested.
"""

import dataclasses
import http.server
import importlib.util
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.qwen25vl import oracle
from tests.trainer import small
from vade_jax.models.qwen25vl import model, weights
from vade_jax.rollout import transfer
from vade_jax.rollout.vllm_requests import Fault
from vade_jax.trainer import mesh as meshes

torch = pytest.importorskip("torch")
UNTIED = dataclasses.replace(small.SHAPE, tie_embeddings=False)
MODEL_SHAPES = pytest.mark.parametrize("shape", [small.SHAPE, UNTIED])


def source(shape, dtype=np.float32, seed=0):
    tensors = oracle.random_tensors(shape, seed)
    made = transfer.Source(shape, dtype)
    made.params = jax.tree.map(jnp.asarray, weights.to_params(shape, tensors))
    return made, tensors


# ------------------------------------------------------------------------------ the stream
@MODEL_SHAPES
def test_the_stream_is_the_checkpoint(shape):
    made, tensors = source(shape)
    found = dict(made)
    assert sorted(found) == sorted(tensors)
    for name, tensor in found.items():
        assert tensor.is_contiguous()
        np.testing.assert_array_equal(tensor.numpy(), tensors[name], strict=True)


@MODEL_SHAPES
def test_metadata_describes_the_stream_in_its_order(shape):
    made, _ = source(shape, jnp.bfloat16)
    stream = [(name, x.dtype, tuple(x.shape)) for name, x in made]
    assert stream == made.metadata()
    assert {dtype for _, dtype, _ in stream} == {torch.bfloat16}


def test_bfloat16_is_rounded_from_the_masters():
    made, tensors = source(small.SHAPE, jnp.bfloat16)
    name = "model.layers.1.mlp.up_proj.weight"
    expected = torch.from_numpy(tensors[name]).bfloat16()
    assert torch.equal(dict(made)[name], expected)


def test_a_layer_is_complete_before_the_next_one_starts():
    made, _ = source(small.SHAPE)
    layers = [int(name.split(".")[2]) for name, _ in made if "layers" in name]
    blocks = [int(name.split(".")[2]) for name, _ in made if "blocks" in name]
    assert layers == sorted(layers) and blocks == sorted(blocks)
    assert set(layers) == set(blocks) == {0, 1}


def test_the_embedding_is_shared_with_torch_and_not_copied():
    made, _ = source(small.SHAPE)
    tensor = dict(made)["model.embed_tokens.weight"]
    assert tensor.data_ptr() == made.params["embedding"].unsafe_buffer_pointer()
    copied, _ = source(small.SHAPE, jnp.bfloat16)
    tensor = dict(copied)["model.embed_tokens.weight"]
    assert tensor.data_ptr() != copied.params["embedding"].unsafe_buffer_pointer()


def test_one_tensor_is_alive_beside_the_parameters():
    made, _ = source(small.SHAPE)
    before = live_bytes()
    largest = max(np.prod(m.shape) for m in made.metadata()) * 4
    extra = []
    for _, tensor in made:
        extra.append(live_bytes() - before)
        del tensor
    assert 0 < max(extra) <= largest
    assert live_bytes() - before < 1000


def live_bytes():
    """Of JAX's buffers, views counted once."""
    arrays = [x for x in jax.live_arrays() if len(x.devices()) == 1]
    return sum({x.unsafe_buffer_pointer(): x.nbytes for x in arrays}.values())


def test_sharded_parameters_are_gathered_tensor_by_tensor():
    made, tensors = source(small.SHAPE)
    mesh = meshes.make(data=1, fsdp=4, tensor=2)
    shardings = meshes.shardings(mesh, model.abstract(small.SHAPE))
    made.params = jax.device_put(made.params, shardings)
    for name, tensor in made:
        np.testing.assert_array_equal(tensor.numpy(), tensors[name])


def test_another_backend_is_refused():
    with pytest.raises(ValueError, match="'rdma': choose one of"):
        transfer.Transfer("url", None, small.SHAPE, np.float32, backend="rdma")


# ------------------------------------------------------------------------------ the requests
@pytest.fixture
def server():
    """A server that records what it is asked: (path, body)."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"] or 0))
            asked.append((self.path, json.loads(data) if data else None))
            self.send_response(500 if asked[-1][0] in failing else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    failing = set()
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.asked, made.failing = asked, failing
    made.url = f"http://127.0.0.1:{made.server_port}"
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def sent(monkeypatch):
    """What vLLM's own trainer side would broadcast; only NCCL itself is left out."""
    if not importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is missing")
    from vade_jax.rollout import vllm_inprocess, vllm_setup

    if vllm_setup.is_cpu_build():
        vllm_inprocess._install_hook()
    from vllm.distributed.weight_transfer import nccl_engine

    tensors = []

    def broadcast(self, source, meta):
        tensors.append(
            {name: x.clone() for name, x in self._checked_iter(source, meta)}
        )

    trainer = nccl_engine.NCCLTrainerWeightTransferEngine
    monkeypatch.setattr(trainer, "_broadcast", broadcast)
    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", lambda info: None)
    return tensors


def connected(server, **options):
    def ask(method, path, body=None):
        server.asked.append((path, body))
        return {"world_size": 4}

    return transfer.Transfer(
        server.url, ask, small.SHAPE, jnp.bfloat16, backend="nccl", **options
    )


@pytest.mark.vllm
def test_the_phases_come_in_order_and_the_caches_are_dropped_last(server, sent):
    made = connected(server)
    params, tensors = (
        source(small.SHAPE)[0].params,
        oracle.random_tensors(small.SHAPE, 0),
    )
    made.send(params, "a-1")
    made.send(jax.tree.map(lambda x: 2 * x, params), "a-2")
    each = ["start_weight_update", "update_weights", "finish_weight_update"]
    each += ["reset_prefix_cache", "reset_mm_cache", "reset_encoder_cache"]
    each += ["update_weight_version"]
    first = ["get_world_size", "init_weight_transfer_engine"]
    assert [path[1:] for path, _ in server.asked] == first + each + each
    body = dict(server.asked[:9])  # of the first version
    init = body["/init_weight_transfer_engine"]["init_info"]
    assert init["world_size"] == 5 and init["rank_offset"] == 1 and init["packed"]
    update = body["/update_weights"]["update_info"]
    assert list(update["names"]) == list(sent[0])
    assert set(update["dtype_names"]) == {"bfloat16"}
    assert [tuple(x) for x in update["shapes"]] == [x.shape for x in sent[0].values()]
    assert body["/update_weight_version"] == {"new_version": "a-1"}
    assert server.asked[-1][1] == {"new_version": "a-2"}
    for scale, found in zip((1, 2), sent, strict=True):
        assert sorted(found) == sorted(tensors)
        for name, x in tensors.items():
            assert torch.equal(found[name], torch.from_numpy(scale * x).bfloat16())


@pytest.mark.vllm
@pytest.mark.parametrize(
    "phase", ["init_weight_transfer_engine", "update_weights", "finish_weight_update"]
)
def test_a_phase_that_fails_is_reported(server, sent, phase):
    server.failing.add(f"/{phase}")
    with pytest.raises(Fault, match=r"weights a-1 did not reach .* by nccl"):
        connected(server).send(source(small.SHAPE)[0].params, "a-1")
    assert "/reset_prefix_cache" not in dict(server.asked)
