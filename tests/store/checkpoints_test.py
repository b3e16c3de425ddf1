"""Checkpoints come back bit for bit, where they were, or not at all."""

import functools
import os
import shutil

import chex
import jax
import jax.numpy as jnp
import ml_dtypes
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # orbax
@pytest.mark.parametrize("damage", [os.remove, lambda path: os.truncate(path, 1)])
def test_a_damaged_step_is_an_error_or_intact(tmp_path, damage):
    """Whatever file is lost or cut: right values, or one error that names the step."""
    save(tmp_path / "ck", 1, 2)
    num_errors = 0
    files = [path for path in (tmp_path / "ck" / "2").rglob("*") if path.is_file()]
    # The other arrays lie in files as the policy's do.
    for path in (p for p in files if not {"optimizer", "selector"} & {*p.parts}):
        shutil.copytree(tmp_path / "ck", tmp_path / "copy")
        damage(tmp_path / "copy" / path.relative_to(tmp_path / "ck"))
        saver = checkpoints.manager_of(tmp_path / "copy")
        try:
            content, again = checkpoints.restore(saver, 2, trees())
            assert_same(again, trees())
            assert content["progress"] == PROGRESS
        except ValueError as error:
            assert "copy/2 cannot be read" in str(error) and "\n" not in str(error)
            num_errors += 1
        saver.close()
        shutil.rmtree(tmp_path / "copy")
    assert num_errors >= 3  # data and manifest; the content


def test_other_values_than_were_saved_are_an_error(tmp_path, monkeypatch):
    """Most changed bytes cannot be decompressed; these could be read."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "checksum", lambda x: 7)
        saver = save(tmp_path / "arrays", 1)
    with pytest.raises(ValueError, match="policy is not what was saved"):
        restored(saver, 1, {"policy": make_state().params})
    saver = save(tmp_path / "json", 1)
    files = [x for x in (tmp_path / "json" / "1" / "content").iterdir() if x.is_file()]
    (path,) = (x for x in files if "checksums" in x.read_text())
    path.write_text(path.read_text().replace("128", "129"))
    with pytest.raises(ValueError, match="content is not what was saved"):
        restored(saver, 1, {})


@pytest.mark.parametrize(
    "parts", [{"state": make_state(width=6)}, {"selector": make_selector(9)}, {"selector": {}}]
)
def test_arrays_of_another_run_are_an_error(one_step, parts):
    with pytest.raises(ValueError, match="ck/1 cannot be read"):
        restored(one_step, 1, trees(**parts))


# ------------------------------------------------------------------------------ checksums
ARRAYS = {
    "float32": np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4),
    "bfloat16": np.linspace(-3, 3, 6).astype(ml_dtypes.bfloat16).reshape(3, 2),
    "bool": np.array([True, False, True]),
    "int64": np.array([[1, -(2**40)]]),
    "scalar": np.int32(-7),
    "empty": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_checksum_is_the_documented_one(name):
    x = np.asarray(ARRAYS[name])
    bits = np.atleast_1d(x).view(f"u{min(x.dtype.itemsize, 4)}").ravel().tolist()
    expected = sum(value * (2 * place + 1) for place, value in enumerate(bits)) % 2**32
    assert checkpoints.checksum(x) == expected
    if name != "int64":  # which jax has not
        assert checkpoints.checksum(jax.device_put(x, jax.devices()[0])) == expected
