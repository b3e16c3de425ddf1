import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from vade_jax.models.qwen import model, presets
from vade_jax.trainer import mesh

pytestmark = pytest.mark.eight_devices


def test_minus_one_takes_the_remaining_devices():
    devices = mesh.make(data=2, fsdp=-1, tensor=2)
    assert dict(devices.shape) == {"data": 2, "fsdp": 2, "tensor": 2}
    assert mesh.batch_size(devices) == 4


@pytest.mark.parametrize("axes", [(3, -1, 1), (2, 2, 4), (1, 1, 1)])
def test_a_mesh_that_does_not_fill_the_devices_is_an_error(axes):
    with pytest.raises(ValueError, match="does not fill 8 devices"):
        mesh.make(*axes)


@pytest.mark.parametrize("axes", [(-1, -1, 1), (0, -1, 1), (1, -2, 1)])
def test_an_axis_is_a_number_or_what_remains(axes):
    with pytest.raises(ValueError, match="give axes of 1 or more whose product is their number"):
        mesh.make(*axes)


@pytest.mark.parametrize("preset", ["tiny", "3b", "7b"])
def test_every_parameter_has_a_rule_and_large_ones_are_split(preset):
    devices = mesh.make(data=1, fsdp=4, tensor=2)
    params = model.abstract(presets.PRESETS[preset])
    shardings = mesh.shardings(devices, params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = mesh.path_name(path)
        here = dict(
            (mesh.path_name(p), s) for p, s in jax.tree_util.tree_leaves_with_path(shardings)
        )[name]
        local = np.prod(here.shard_shape(leaf.shape))
        if leaf.size > 1e6:
            assert local <= leaf.size / 4, name


def test_first_match_wins_and_no_match_is_an_error():
    devices = mesh.make(fsdp=8)
    tree = {"a": {"kernel": jax.ShapeDtypeStruct((8, 4), np.float32)}}
    rules = ((r"a/kernel", P("fsdp")), (r"kernel", P()))
    assert mesh.shardings(devices, tree, rules)["a"]["kernel"].spec == P("fsdp")
    with pytest.raises(ValueError, match=r"no sharding rule matches a/kernel \(8, 4\)"):
        mesh.shardings(devices, tree, ((r"^b", P()),))


def test_an_axis_that_does_not_divide_is_an_error_with_the_name():
    devices = mesh.make(fsdp=8)
    tree = {"w": jax.ShapeDtypeStruct((6, 4), np.float32)}
    with pytest.raises(ValueError, match=r"w \(6, 4\): 6 is not divisible by mesh.fsdp=8"):
        mesh.shardings(devices, tree, ((r"w", P("fsdp")),))


@pytest.mark.parametrize("tensor", [3, 8])
def test_heads_that_the_mesh_splits_are_an_error_before_any_weight(tensor):
    devices = mesh.make(tensor=tensor, devices=jax.devices()[: 8 // tensor * tensor])
    message = f"tensor={tensor} does not divide the model's 28 heads and 4 .* a divisor of 4"
    with pytest.raises(ValueError, match=message):
        mesh.check_model(devices, presets.PRESETS["7b"])


def test_key_value_heads_count_too():
    devices = mesh.make(tensor=4, fsdp=2)
    mesh.check_model(devices, presets.PRESETS["7b"])
    with pytest.raises(ValueError, match=r"the model's 16 heads and 2 key/value heads: .* of 2"):
        mesh.check_model(devices, presets.PRESETS["3b"])


def test_a_width_that_the_mesh_splits_is_found_from_shapes_alone():
    devices = mesh.make(fsdp=6, devices=jax.devices()[:6])
    with pytest.raises(ValueError, match=r"is not divisible by mesh.fsdp=6"):
        mesh.shardings(devices, model.abstract(presets.PRESETS["7b"]))
