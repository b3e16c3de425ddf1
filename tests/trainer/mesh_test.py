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


@pytest.mark.parametrize("axes", [(3, -1, 1), (2, 2, 4), (1, 1, 1), (-1, -1, 1)])
def test_a_mesh_that_does_not_fill_the_devices_is_an_error(axes):
    with pytest.raises(ValueError, match="does not fill 8 devices"):
        mesh.make(*axes)


@pytest.mark.parametrize("preset", ["3b", "7b"])
def test_every_parameter_has_a_rule_and_large_ones_are_split(preset):
    params = model.abstract(presets.PRESETS[preset])
    shardings = mesh.shardings(mesh.make(data=1, fsdp=4, tensor=2), params)
    leaves = jax.tree.leaves_with_path(params)
    for (path, leaf), sharding in zip(leaves, jax.tree.leaves(shardings), strict=True):
        local = np.prod(sharding.shard_shape(leaf.shape))
        assert leaf.size < 1e6 or local <= leaf.size / 4, mesh.path_name(path)


def test_first_match_wins_and_no_match_is_an_error():
    devices = mesh.make(fsdp=8)
    tree = {"a": {"kernel": jax.ShapeDtypeStruct((8, 4), np.float32)}}
    rules = ((r"a/kernel", P("fsdp")), (r"kernel", P()))
    assert mesh.shardings(devices, tree, rules)["a"]["kernel"].spec == P("fsdp")
    with pytest.raises(ValueError, match=r"no sharding rule matches a/kernel \(8, 4\)"):
        mesh.shardings(devices, tree, ((r"^b", P()),))
    with pytest.raises(ValueError, match=r"'fsdp'.* axis 1 .* 8 times"):
        mesh.shardings(devices, tree, ((r"a/kernel", P(None, "fsdp")),))
