"""Checkpoints come back bit for bit, where they were, or not at all."""

import functools
import os
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vade_jax import types
from vade_jax.store import checkpoints

PartitionSpec = jax.sharding.PartitionSpec
PROGRESS = {"step": 1, "seed": 7, "rollouts_total": 128}


@chex.dataclass(frozen=True)
class Selector:
    alpha_I: types.Array
    visited_I: types.Array


@functools.partial(jax.jit, static_argnames="width")
def make_state(width=4):
    """A policy of three leaves after one AdamW step, so that no moment is zero."""
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "embed": {"kernel": jax.random.normal(keys[0], (8, width))},
        "layers": {"0": {"scale": jax.random.normal(keys[1], (width,), jnp.bfloat16)}},
        "norm.weight": jax.random.normal(keys[2], (8,)),
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    updates, opt_state = optimizer.update(params, optimizer.init(params), params)
    params = optax.apply_updates(params, updates)
    return types.TrainState(params=params, opt_state=opt_state, step=jnp.int32(1))


def make_selector(num_items=5):
    return Selector(alpha_I=jnp.linspace(0.1, 3.3, num_items), visited_I=jnp.arange(num_items) % 2)


def trees(state=None, selector=None):
    state = make_state() if state is None else state
    optimizer = {"opt_state": state.opt_state, "step": state.step}
    selector = make_selector() if selector is None else selector
    return {"policy": state.params, "optimizer": optimizer, "selector": selector}


def save(directory, *steps, state=None, **options):
    with checkpoints.manager_of(directory, **options) as saver:
        for step in steps:
            content = {"progress": PROGRESS, "config": {"name": "tiny"}}
            checkpoints.save(saver, step, trees(state), content)
    return checkpoints.manager_of(directory)


def restored(saver, step, examples):
    return checkpoints.restore(saver, step, examples)[1]


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.fixture(scope="module")
def one_step(tmp_path_factory):
    return save(tmp_path_factory.mktemp("one") / "ck", 1)


def test_roundtrip_is_bit_equal(one_step):
    assert one_step.latest_step() == 1
    content, again = checkpoints.restore(one_step, 1, trees(jax.eval_shape(make_state)))
    assert_same(again, trees())
    assert content == {"progress": PROGRESS, "config": {"name": "tiny"}}
    as_stored = restored(one_step, 1, {"selector": None, "waiting": None})
    assert as_stored["selector"]["alpha_I"].tolist() == make_selector().alpha_I.tolist()
    assert "waiting" not in as_stored


def test_leaves_get_the_sharding_of_their_example(tmp_path):
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    replicated, split = (
        jax.sharding.NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("fsdp",))
    )
    place = lambda x: jax.device_put(x, split if x.shape[:1] == (8,) else replicated)
    state = jax.tree.map(place, make_state())
    saver = save(tmp_path / "ck", 1, state=state)
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    again = restored(saver, 1, trees(abstract))
    assert_same(again, trees(state))
    spec = lambda tree: jax.tree.map(lambda x: x.sharding.spec, tree)
    chex.assert_trees_all_equal(spec(again["policy"]), spec(state.params))
    assert isinstance(again["selector"].alpha_I, np.ndarray)
    assert_same(restored(saver, 1, trees()), trees(state))  # onto the host


def test_arrays_may_be_donated_right_after_save(tmp_path):
    state = trees(jax.device_put(make_state(), jax.devices()[0]))
    expected = jax.tree.map(np.array, state)
    saver = checkpoints.manager_of(tmp_path / "ck")
    checkpoints.save(saver, 1, state, {})
    clobber = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0, tree), donate_argnums=0)
    jax.block_until_ready(clobber(state))
    saver.wait_until_finished()
    assert_same(restored(saver, 1, expected), expected)


def test_the_last_steps_are_kept_and_a_step_is_saved_once(tmp_path):
    saver = checkpoints.manager_of(tmp_path / "ck", keep=2)
    assert saver.latest_step() is None
    for step in (3, 6, 7, 7):  # SIGTERM right after a save
        checkpoints.save(saver, step, trees(), {"step": np.int32(3)})
    saver.close()
    assert saver.latest_step() == 7
    assert sorted(os.listdir(tmp_path / "ck")) == ["6", "7"]


def test_half_written_steps_are_never_listed(tmp_path):
    save(tmp_path / "ck", 1)
    left = tmp_path / "ck" / "2.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "ck" / "1", left)
    saver = checkpoints.manager_of(tmp_path / "ck")
    assert saver.latest_step() == 1
    assert left.exists()  # another process may be writing it
    with pytest.raises(ValueError, match=r"ck/2 cannot be read"):
        restored(saver, 2, trees())
    # The step that was cut short can be written after all, and its owner removes what is left.
    save(tmp_path / "ck", 2, is_sole=True)
    assert sorted(os.listdir(tmp_path / "ck")) == ["1", "2"]


def change_a_byte(path):
    content = bytearray(path.read_bytes() or b"?")
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [os.remove, lambda path: os.truncate(path, 1), change_a_byte])
def test_a_damaged_step_is_an_error_that_names_the_file(tmp_path, damage):
    """Whatever file is lost, cut or changed: tensorstore reads none of the step."""
    saver = save(tmp_path / "ck", 1)
    step = tmp_path / "ck" / "1"
    files = [path for path in step.glob("*/**/*") if path.is_file()]
    assert len(files) > 20
    for path in [*files, step / checkpoints.CHECKSUMS]:
        content = path.read_bytes()
        damage(path)
        with pytest.raises(ValueError, match=r"ck/1 cannot be read") as caught:
            restored(saver, 1, trees())
        assert "\n" not in str(caught.value)
        assert path.name in str(caught.value) or path.name == checkpoints.CHECKSUMS
        path.write_bytes(content)
    assert_same(restored(saver, 1, trees()), trees())


@pytest.mark.parametrize(
    "parts", [{"state": make_state(width=6)}, {"selector": make_selector(9)}, {"selector": {}}]
)
def test_arrays_of_another_run_are_an_error(one_step, parts):
    with pytest.raises(ValueError, match="ck/1 cannot be read"):
        restored(one_step, 1, trees(**parts))
