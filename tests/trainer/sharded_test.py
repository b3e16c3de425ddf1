"""The update on eight devices (data 2, fsdp 2, tensor 2) against one."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.trainer import small
from vade_jax.trainer import mesh, minibatches, objectives, update
from vade_jax.types import TrainState

SIZES = np.array([4, 2, 3, 4, 6, 1, 4, 4])  # 9 rows of 4: padded to 12
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
step = update.make(
    update.make_logp(
        small.merge, temperature=1.0, banned=small.BANNED, chunk=32, remat=False
    ),
    objectives.group_rl(small.GSPO),
    OPTIMIZER,
)


def run(devices, ways):
    def start(params):
        params = jax.tree.map(jnp.copy, params)
        return TrainState(
            params=params, opt_state=OPTIMIZER.init(params), step=jnp.int32(0)
        )

    shardings = mesh.shardings(devices, jax.eval_shape(start, small.params()))
    state = jax.jit(start, out_shardings=shardings)(small.params())
    compiled = jax.jit(
        step,
        in_shardings=(shardings, mesh.batch_sharding(devices, axis=1)),
        out_shardings=(shardings, None),
        donate_argnums=0,
        compiler_options=small.FAST,
    )
    (batch,) = minibatches.split(
        small.prompts(8),
        small.rollouts(SIZES),
        small.advantages(SIZES.sum()),
        prompts_per_minibatch=8,
        prompts_per_microbatch=8,
        answers_per_row=4,
        length_multiple=32,
        ways=ways,
    )
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
    metrics, state = eight
    one_metrics, one = run(mesh.make(devices=jax.devices()[:1]), ways=1)
    for name, value in one_metrics.items():
        np.testing.assert_allclose(
            metrics[name], value, rtol=2e-5, atol=1e-6, err_msg=name
        )
    for (path, got), want in zip(
        jax.tree.leaves_with_path(state.params),
        jax.tree.leaves(one.params),
        strict=True,
    ):
        np.testing.assert_allclose(
            got, want, atol=2e-6, rtol=0, err_msg=mesh.path_name(path)
        )


def test_a_microbatch_that_the_mesh_cannot_split_is_an_error():
    devices = mesh.make(2, 2, 2)
    mesh.check_batch(devices, "batch.prompts_per_microbatch", 8)
    with pytest.raises(
        ValueError, match=r"prompts_per_microbatch=6 is not divisible by 4"
    ):
        mesh.check_batch(devices, "batch.prompts_per_microbatch", 6)
