"""The update on eight devices (data 2, fsdp 2, tensor 2) against one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.trainer import small
from vade_jax.models.qwen import model
from vade_jax.trainer import mesh, update
from vade_jax.types import TrainState

pytestmark = pytest.mark.eight_devices

SIZES = np.array([4, 2, 3, 4, 6, 1, 4, 4])  # 9 rows of 4: padded to 12
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))


def start(params):
    params = jax.tree.map(jnp.copy, params)
    return TrainState(params=params, opt_state=OPTIMIZER.init(params), step=jnp.int32(0))


def program(devices, shape):
    """Returns the jitted update as `run.build` makes it, and the state's shardings."""
    graphdef = model.graph(shape, place=mesh.Place(devices))
    logp = update.make_logp(
        lambda params: model.merge(graphdef, params),
        temperature=1.0,
        banned=small.BANNED,
        chunk=32,
        remat=False,
    )
    shardings = mesh.shardings(devices, jax.eval_shape(start, small.params(shape=shape)))
    return jax.jit(
        update.make(logp, update.group_rl(small.GSPO), OPTIMIZER),
        in_shardings=(shardings, mesh.batch_sharding(devices, axis=1)),
        out_shardings=(shardings, None),
        donate_argnums=0,
        compiler_options=small.FAST,
    ), shardings


def one_batch(ways, shape):
    (batch,) = small.split(
        small.prompts(8, shape=shape),
        small.rollouts(SIZES),
        small.advantages(SIZES.sum()),
        prompts_per_minibatch=8,
        prompts_per_microbatch=8,
        answers_per_row=4,
        length_multiple=32,
        ways=ways,
    )
    return batch


def run(devices, ways, shape=small.SHAPE):
    compiled, shardings = program(devices, shape)
    state = jax.jit(start, out_shardings=shardings)(small.params(shape=shape))
    batch = one_batch(ways, shape)
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


def test_eight_devices_equal_one_in_other_families():
    """Linear layers, and DeepStack, which no published model has beside them."""
    shape = dataclasses.replace(small.QWEN35, vision=small.QWEN3VL.vision)
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
