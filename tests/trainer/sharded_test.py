"""The update on eight devices (data 2, fsdp 2, tensor 2) against one, and what they exchange."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from tests.trainer import small
from vade_jax.models.qwen import model
from vade_jax.trainer import mesh, objectives, update
from vade_jax.types import TrainState

pytestmark = pytest.mark.eight_devices

SIZES = np.array([4, 2, 3, 4, 6, 1, 4, 4])  # 9 rows of 4: padded to 12
EVEN = np.full(8, 4)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))


def start(params):
    params = jax.tree.map(jnp.copy, params)
    return TrainState(params=params, opt_state=OPTIMIZER.init(params), step=jnp.int32(0))


def program(devices, remat=False, shape=small.SHAPE):
    """Returns the jitted update as `run.build` makes it, and the state's shardings."""
    graphdef = model.graph(shape, place=mesh.Place(devices))
    logp = update.make_logp(
        lambda params: model.merge(graphdef, params),
        temperature=1.0,
        banned=small.BANNED,
        chunk=32,
        remat=remat,
    )
    shardings = mesh.shardings(devices, jax.eval_shape(start, small.params(shape=shape)))
    return jax.jit(
        update.make(logp, objectives.group_rl(small.GSPO), OPTIMIZER),
        in_shardings=(shardings, mesh.batch_sharding(devices, axis=1)),
        out_shardings=(shardings, None),
        donate_argnums=0,
        compiler_options=small.FAST,
    ), shardings


def one_batch(ways, sizes=SIZES, T=5, shape=small.SHAPE):
    (batch,) = small.split(
        small.prompts(8, shape=shape),
        small.rollouts(sizes, T),
        small.advantages(sizes.sum()),
        prompts_per_minibatch=8,
        prompts_per_microbatch=8,
        answers_per_row=4,
        length_multiple=32,
        ways=ways,
    )
    return batch


def run(devices, ways, shape=small.SHAPE):
    compiled, shardings = program(devices, shape=shape)
    state = jax.jit(start, out_shardings=shardings)(small.params(shape=shape))
    batch = one_batch(ways, shape=shape)
    before = jax.tree.map(lambda x: x.sharding, state)
    for _ in range(2):
        state, metrics = compiled(state, batch)
    assert compiled._cache_size() == 1
    assert jax.tree.map(lambda x: x.sharding, state) == before
    return jax.device_get(metrics), state


@pytest.fixture(scope="module")
def eight():
    return run(mesh.make(2, 2, 2), ways=4)


def test_parameters_and_moments_are_split(eight):
    _, state = eight
    split = {
        mesh.path_name(path): leaf.size // leaf.addressable_shards[0].data.size
        for path, leaf in jax.tree.leaves_with_path(state)
        if leaf.ndim > 1
    }
    for name in ("embedding", "text/layers/attention/query/kernel"):
        holders = [n for n in split if n.endswith(name)]
        assert len(holders) == 2, sorted(split)  # the parameter and its momentum
        assert {split[n] for n in holders} == {4}
    assert min(n for name, n in split.items() if "kernel" in name) >= 2


def test_eight_devices_equal_one(eight):
    check_equal(eight, run(mesh.make(devices=jax.devices()[:1]), ways=1))


@pytest.mark.parametrize("shape", [small.QWEN3VL, small.QWEN35], ids=["deepstack", "linear"])
def test_eight_devices_equal_one_in_other_families(shape):
    one = run(mesh.make(devices=jax.devices()[:1]), ways=1, shape=shape)
    check_equal(run(mesh.make(2, 2, 2), ways=4, shape=shape), one)


def check_equal(found, expected):
    (metrics, state), (one_metrics, one) = found, expected
    for name, value in one_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=2e-5, atol=1e-6, err_msg=name)
    for (path, got), want in zip(
        jax.tree.leaves_with_path(state.params),
        jax.tree.leaves(one.params),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, atol=2e-6, rtol=0, err_msg=mesh.path_name(path))


def gathered(text):
    """The shapes of all float arrays that some device gathers, largest first."""
    shapes = []
    for result in re.findall(r" = (.*?) all-gather(?:-start)?\(", text):
        shapes += [
            tuple(map(int, size.split(","))) for size in re.findall(r"f32\[([\d,]+)\]", result)
        ]
    return sorted(shapes, key=math.prod, reverse=True)


@pytest.mark.parametrize(
    ("axes", "sizes", "shape"),
    [
        pytest.param((1, 8, 1), SIZES, small.SHAPE, marks=pytest.mark.slow),
        pytest.param((1, 8, 1), EVEN, small.SHAPE, marks=pytest.mark.slow),
        pytest.param((2, 4, 1), EVEN, small.SHAPE, marks=pytest.mark.slow),
        ((2, 4, 1), SIZES, small.SHAPE),
        ((2, 2, 2), EVEN, small.SHAPE),
        ((2, 4, 1), SIZES, small.QWEN3VL),
    ],
)
def test_no_device_gathers_the_activations_of_the_batch(axes, sizes, shape, capfd):
    """Weights are gathered, a layer at a time; prompts, answers and images stay where they are.

    Activations have three dimensions or more, weights of one layer have two. What is gathered over
    `tensor`, on the way of a look-up, is no more than a device's share.
    """
    devices = mesh.make(*axes)
    ways = mesh.batch_size(devices)
    batch = one_batch(ways, sizes, T=16, shape=shape)
    compiled, _ = program(devices, remat=True, shape=shape)
    state = jax.eval_shape(start, small.params(shape=shape))
    text = compiled.lower(state, batch).compile().as_text()
    assert "Involuntary full rematerialization" not in capfd.readouterr().err
    share = small.SHAPE.text.width * max(batch.token_NT.size, 8 * 32) // ways
    mergers = jax.tree.leaves(state.params["vision"].get("deepstack", {}))  # stacked, but weights
    shapes = set(gathered(text)) - {x.shape for x in mergers}
    activations = [shape for shape in shapes if len(shape) > 2]
    assert all(math.prod(shape) <= share for shape in activations), activations
    if axes[2] == 1:
        assert not activations
    assert " all-to-all(" in text  # the embeddings' and features' way to their rows


def test_a_place_is_equal_by_value_and_absent_on_one_device():
    devices = jax.devices()
    graph = lambda: model.graph(small.SHAPE, place=mesh.Place(mesh.make(2, 2, 2)))
    assert graph() == graph() and hash(graph()) == hash(graph())
    one = mesh.Place(mesh.make(devices=devices[:1]))
    x = jnp.ones((3, 4))
    assert one.rows(x) is x and one.width(x) is x and one.looked_up(x) is x
    assert one.head(x) is x and one.weights(x, "text/layers", jnp.float32) is x
    eight = mesh.Place(mesh.make(2, 2, 2))
    assert jax.jit(eight.head)(jnp.ones((4, 6))).sharding.spec == P("fsdp", "tensor")
    jaxpr = jax.make_jaxpr(eight.rows)(x)
    assert "sharding_constraint" in str(jaxpr)


def test_a_layer_s_matrices_are_whole_and_their_gradients_split():
    """In the compute dtype over `fsdp` alone; what every device has anyway stays as it is."""
    place = mesh.Place(mesh.make(2, 2, 2))
    layer = {"query": {"kernel": jnp.ones((4, 6))}, "norm1": {"scale": jnp.ones(4)}}
    gather = lambda layer: place.weights(layer, "text/layers", jnp.bfloat16)
    whole, back = jax.jit(lambda layer: jax.vjp(gather, layer))(layer)
    assert whole["query"]["kernel"].dtype == jnp.bfloat16
    assert whole["query"]["kernel"].sharding.spec == P(None, "tensor")
    assert whole["norm1"]["scale"].dtype == jnp.float32
    (gradient,) = jax.jit(back)(whole)
    assert gradient["query"]["kernel"].dtype == jnp.float32
    assert gradient["query"]["kernel"].sharding.spec == P("fsdp", "tensor")
