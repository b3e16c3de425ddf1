"""Checkpoints come back bit for bit, where they were, or not at all."""

import functools
import itertools
import os
import shutil
import time

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
    saver = checkpoints.Checkpointer(directory, **options)
    for step in steps:
        saver.save(step, trees(state), {"progress": PROGRESS, "config": {"name": "tiny"}})
    saver.close()
    return checkpoints.Checkpointer(directory)


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
    example = jax.eval_shape(make_state)
    restored = one_step.restore(1, trees(example))
    assert_same(restored, trees())
    assert one_step.content() == {"progress": PROGRESS, "config": {"name": "tiny"}}
    assert not restored["policy"]["norm.weight"].committed
    as_stored = one_step.restore(1, {"selector": None, "waiting": None})
    assert as_stored["selector"]["alpha_I"].tolist() == make_selector().alpha_I.tolist()
    assert as_stored["waiting"] == {}


def test_leaves_keep_their_kind_and_sharding(tmp_path):
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    replicated, split = (
        jax.sharding.NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("fsdp",))
    )
    place = lambda x: jax.device_put(x, split if x.shape[:1] == (8,) else replicated)
    state = jax.tree.map(place, make_state())
    saver = save(tmp_path / "ck", 1, state=state)
    selector = {"alpha_I": np.zeros(5, np.float32), "visited_I": jnp.zeros(5, int)}
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    restored = saver.restore(1, trees(abstract, selector))
    policy, optimizer = (restored[name] for name in ("policy", "optimizer"))
    assert_same((policy, optimizer), (trees(state)["policy"], trees(state)["optimizer"]))
    spec = lambda tree: jax.tree.map(lambda x: x.sharding.spec, tree)
    chex.assert_trees_all_equal(spec(policy), spec(state.params))
    assert isinstance(restored["selector"]["alpha_I"], np.ndarray)
    assert_same(saver.restore(1, trees()), trees(state))  # onto one device


def test_arrays_may_be_donated_right_after_save(tmp_path):
    state = trees(jax.device_put(make_state(), jax.devices()[0]))
    expected = jax.tree.map(np.array, state)
    saver = checkpoints.Checkpointer(tmp_path / "ck")
    saver.save(1, state, {})
    clobber = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0, tree), donate_argnums=0)
    jax.block_until_ready(clobber(state))
    saver.wait()
    assert_same(saver.restore(1, expected), expected)


def test_a_clock_that_jumps_ahead_does_not_end_a_save(tmp_path, monkeypatch):
    real, readings = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * next(readings))
    assert save(tmp_path, 1).latest_step() == 1
    assert next(readings) > 1


def test_the_last_steps_are_kept(tmp_path):
    saver = checkpoints.Checkpointer(tmp_path / "ck", keep=2, every=3)
    assert saver.latest_step() is None
    assert not (tmp_path / "ck").exists()  # reading leaves no trace
    assert [step for step in range(1, 7) if saver.is_due(step)] == [3, 6]
    for step in (3, 6, 7, 7):  # SIGTERM right after a save
        saver.save(step, trees(), {"step": np.int32(3)})
    saver.close()
    assert saver.latest_step() == 7
    assert sorted(os.listdir(tmp_path / "ck")) == ["6", "7"]


def test_a_selector_without_arrays_is_fine(tmp_path):
    saver = checkpoints.Checkpointer(tmp_path / "ck")
    saver.save(1, {"selector": ()}, {})
    saver.wait()
    assert saver.restore(1, {"selector": ()}) == {"selector": ()}
    with pytest.raises(ValueError, match=r"selector/alpha_I is absent in the check"):
        saver.restore(1, {"selector": make_selector()})


def test_half_written_steps_are_never_listed(tmp_path):
    save(tmp_path / "ck", 1)
    shutil.copytree(tmp_path / "ck" / "1", tmp_path / "ck" / "2.orbax-checkpoint-tmp")
    shutil.rmtree(tmp_path / "ck" / "2.orbax-checkpoint-tmp" / "policy")
    saver = checkpoints.Checkpointer(tmp_path / "ck")
    assert saver.latest_step() == 1
    with pytest.raises(FileNotFoundError, match=r"ck/2; complete steps: \[1\]"):
        saver.restore(2, trees())
    # The step that was cut short can be written after all.
    saver.save(2, trees(), {})
    saver.wait()
    assert checkpoints.Checkpointer(tmp_path / "ck").latest_step() == 2


def test_only_the_sole_owner_removes_what_was_cut_short(tmp_path):
    save(tmp_path / "ck", 1)
    left = tmp_path / "ck" / "2.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "ck" / "1", left)
    checkpoints.Checkpointer(tmp_path / "ck").latest_step()
    assert left.exists()  # another process may be writing it
    save(tmp_path / "ck", 3, is_sole=True)
    assert sorted(os.listdir(tmp_path / "ck")) == ["1", "3"]


def test_what_is_left_of_an_old_step_goes_when_its_owner_returns(tmp_path):
    """A kill while the oldest is removed: orbax lists half a step as a whole one."""
    save(tmp_path / "ck", 1, 2, 3, keep=3)
    for part in ("_CHECKPOINT_METADATA", "content"):
        path = tmp_path / "ck" / "1" / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert checkpoints.Checkpointer(tmp_path / "ck").latest_step() == 3
    assert (tmp_path / "ck" / "1").exists()  # its owner may be at work
    owner = checkpoints.Checkpointer(tmp_path / "ck", is_sole=True)
    assert owner.content(3)["progress"] == PROGRESS
    owner.close()
    assert sorted(os.listdir(tmp_path / "ck")) == ["2", "3"]


@pytest.mark.parametrize("said", ["RESOURCE_EXHAUSTED: Out of memory", "PERMISSION_DENIED: x"])
def test_what_hinders_reading_is_not_taken_for_damage(tmp_path, monkeypatch, said):
    save(tmp_path / "ck", 1)
    saver = checkpoints.Checkpointer(tmp_path / "ck")

    def restore(*_, **__):
        raise RuntimeError(said)

    monkeypatch.setattr(saver._manager(), "restore", restore)
    with pytest.raises(
        ValueError, match=rf"ck/1 cannot be read here \(RuntimeError: {said}\); keep"
    ):
        saver.restore(1, trees())


def change_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # orbax
@pytest.mark.parametrize("damage", [os.remove, lambda path: os.truncate(path, 1), change_a_byte])
def test_a_damaged_step_is_an_error_or_intact(tmp_path, damage):
    """Whatever file is lost or cut: right values, or one error that names the step."""
    save(tmp_path / "ck", 1, 2)
    num_errors = 0
    files = [path for path in (tmp_path / "ck" / "2").rglob("*") if path.is_file()]
    # The other arrays lie in files as the policy's do.
    for path in (p for p in files if not {"optimizer", "selector"} & {*p.parts}):
        shutil.copytree(tmp_path / "ck", tmp_path / "copy")
        damage(tmp_path / "copy" / path.relative_to(tmp_path / "ck"))
        saver = checkpoints.Checkpointer(tmp_path / "copy")
        try:
            assert_same(saver.restore(2, trees()), trees())
            assert saver.content(2)["progress"] == PROGRESS
        except ValueError as error:
            assert "copy/2 is damaged" in str(error)
            assert "delete that directory to resume from step 1" in str(error)
            num_errors += 1
        saver.close()
        shutil.rmtree(tmp_path / "copy")
    assert num_errors >= 4  # data, manifest and _METADATA; the content


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"state": make_state(width=6)},
            r"policy/embed/kernel is float32\[8, 4\] .* float32\[8, 6\] here",
        ),
        (
            {"selector": make_selector(9)},
            r"selector/alpha_I is float32\[5\] in the checkpoint and float32\[9\]",
        ),
        (
            {"state": make_state().replace(opt_state=optax.sgd(0.1).init({}))},
            r"optimizer/opt_state/1/0/count is int32\[\] in the checkpoint and absent",
        ),
        (
            {"state": make_state().replace(params={"head": jnp.zeros(3)})},
            r"policy/head is absent in the checkpoint and float32\[3\] here",
        ),
        ({"selector": ()}, r"selector/alpha_I is float32\[5\] .* absent here"),
    ],
)
def test_another_architecture_is_named(one_step, parts, message):
    with pytest.raises(ValueError, match=message):
        one_step.restore(1, trees(**parts))


def test_user_mistakes_name_the_path(tmp_path):
    missing = checkpoints.Checkpointer(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="missing"):
        missing.content()
    with pytest.raises(FileNotFoundError, match=r"missing/3; complete steps: \[\]"):
        missing.restore(3, trees())
    assert not (tmp_path / "missing").exists()
