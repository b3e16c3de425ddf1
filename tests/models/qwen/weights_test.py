"""The table is complete and invertible, and refuses what does not fit."""

import collections
import dataclasses

import jax
import ml_dtypes
import numpy as np
import pytest

from tests.models.qwen import oracle
from tests.trainer import small
from vade_jax.models.qwen import config_json, model, presets, weights
from vade_jax.trainer import mesh

TINY = presets.PRESETS["tiny"]
UNTIED = dataclasses.replace(TINY, tie_embeddings=False)
TINY3 = presets.PRESETS["tiny_qwen3vl"]
SHAPES = {
    "tied": TINY,
    "untied": UNTIED,
    "qwen3vl": TINY3,
    "qwen3vl_untied": dataclasses.replace(TINY3, tie_embeddings=False),
    "qwen3_5": small.QWEN35,
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_round_trip_covers_every_parameter(shape):
    tensors = oracle.random_tensors(shape, 0)
    params = weights.to_params(shape, tensors)
    abstract = model.abstract(shape)
    assert jax.tree.structure(params) == jax.tree.structure(abstract)
    jax.tree.map(lambda x, y: np.testing.assert_equal(x.shape, y.shape), params, abstract)
    again = dict(weights.from_params(shape, params))
    assert list(again) == [name for name, _ in weights.names_and_shapes(shape)]
    for name, x in tensors.items():
        np.testing.assert_array_equal(again[name], x)
        assert again[name].flags.c_contiguous


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_names_are_those_of_transformers(shape):
    transformers = pytest.importorskip("transformers")
    fields = config_json.write(shape)
    kind = getattr(transformers, fields["architectures"][0])
    reference = kind(transformers.AutoConfig.for_model(**fields))
    theirs = {
        weights.published(shape, weights.in_table(name)): tuple(x.shape)
        for name, x in reference.state_dict().items()
    }
    if shape.tie_embeddings:
        del theirs["lm_head.weight"]
    assert theirs == dict(weights.names_and_shapes(shape))


def test_a_head_for_several_tokens_is_not_read(caplog):
    shape = small.QWEN35
    tensors = oracle.random_tensors(shape, 0)
    more = {f"mtp.layers.{i}.x": np.zeros(1, np.float32) for i in range(3)}
    with caplog.at_level("INFO"):
        found = weights.to_params(shape, tensors | more)
    jax.tree.map(np.testing.assert_array_equal, found, weights.to_params(shape, tensors))
    assert "3 tensors of another head (mtp.layers.0.x)" in caplog.text


def test_transformers_5_names_are_read():
    tensors = oracle.random_tensors(TINY, 0)
    renamed = {oracle.in_memory(TINY, name): x for name, x in tensors.items()}
    assert not set(renamed) & set(tensors)
    jax.tree.map(
        np.testing.assert_array_equal,
        weights.to_params(TINY, renamed),
        weights.to_params(TINY, tensors),
    )


NORM, KEY = "model.norm.weight", "model.layers.2.self_attn.k_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(KEY), f"{KEY} is missing"),
        (lambda t: t.update(extra=t[KEY]), "extra is not part of this model"),
        (
            lambda t: t.update({KEY: t[KEY].T}),
            rf"{KEY} has shape \(128, 64\), expected \(64, 128\)",
        ),
        (
            lambda t: t.update({"model.language_model.norm.weight": t[NORM]}),
            f"model.language_model.norm.weight occurs twice, also as {NORM}",
        ),
        (
            lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}),
            "lm_head.weight differs from model.embed_tokens.weight",
        ),
    ],
)
def test_errors_name_the_tensor(change, message):
    tensors = oracle.random_tensors(TINY, 0)
    change(tensors)
    with pytest.raises(ValueError, match=message):
        weights.to_params(TINY, tensors)


def test_a_linear_layers_tensor_is_missing():
    tensors = oracle.random_tensors(small.QWEN35, 0)
    name = "model.language_model.layers.2.linear_attn.A_log"
    del tensors[name]
    with pytest.raises(ValueError, match=f"{name} is missing"):
        weights.to_params(small.QWEN35, tensors)


def test_a_tied_checkpoint_may_carry_a_copy_of_its_embedding():
    tensors = oracle.random_tensors(TINY, 0)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    assert "lm_head" not in weights.to_params(TINY, tensors)


TYPES = np.float32, ml_dtypes.bfloat16
MESHES = [dict(fsdp=8), dict(data=2, fsdp=2, tensor=2), dict(fsdp=2, tensor=4)]


def shardings(shape, **axes):
    return mesh.shardings(mesh.make(**axes), model.abstract(shape))


def assert_same_bits(x, y):
    assert x.dtype == y.dtype
    np.testing.assert_array_equal(np.asarray(x).view("u1"), np.asarray(y).view("u1"))


@pytest.mark.eight_devices
@pytest.mark.parametrize(
    ("axes", "stored", "wanted"),
    [
        (MESHES[0], *TYPES),
        (MESHES[1], TYPES[1], TYPES[1]),
        (MESHES[2], *TYPES[::-1]),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_onto_a_mesh_and_back_bit_for_bit(axes, stored, wanted):
    tensors = {name: x.astype(stored) for name, x in oracle.random_tensors(UNTIED, 0).items()}
    expected = weights.to_params(UNTIED, tensors, wanted)
    where = shardings(UNTIED, **axes)
    found = weights.to_params(UNTIED, tensors, wanted, where)
    jax.tree.map(assert_same_bits, found, expected)
    jax.tree.map(lambda x, s: np.testing.assert_(x.sharding == s), found, where)
    for name, x in weights.from_params(UNTIED, found, stored):
        assert_same_bits(x, tensors[name].astype(wanted).astype(stored))


class Counted:
    """A tensor on a disk that counts the bytes asked of it, in all and at once."""

    def __init__(self, x, read):
        self._x, self._read = x, read
        self.shape, self.dtype = x.shape, x.dtype

    def __getitem__(self, index):
        part = self._x[index]
        self._read["bytes"] += part.nbytes
        self._read["most"] = max(self._read["most"], part.nbytes)
        return part


@pytest.mark.eight_devices
def test_each_device_reads_its_own_slices():
    """No more than what lies on them, never a whole tensor: the tower is not split over tensor."""
    read = collections.Counter()
    tensors = oracle.random_tensors(UNTIED, 0)
    counted = {name: Counted(x, read) for name, x in tensors.items()}
    found = weights.to_params(UNTIED, counted, np.float32, shardings(UNTIED, fsdp=4, tensor=2))
    shards = [s.data for x in jax.tree.leaves(found) for s in x.addressable_shards]
    assert 0 < read["bytes"] <= sum(x.nbytes for x in shards)
    assert read["most"] == max(x.nbytes for x in tensors.values()) // 4
