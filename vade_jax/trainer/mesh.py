"""The device mesh, and which parameter is split over which axis.

Three axes: `data` replicates the weights, `fsdp` splits weights and batch, `tensor` splits heads and
MLP. One table of (path pattern, PartitionSpec) decides; the first match wins and no match is an
error. One device is the same code with three axes of size 1.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vade_jax import arrays
from vade_jax.models.qwen import layers

AXES = ("data", "fsdp", "tensor")
BATCH = ("data", "fsdp")  # the devices of a `tensor` group have the same rows
Rules = Sequence[tuple[str, P]]

# Stacked layers have L as first axis, which is never split: a scan takes one layer after another.
# Within a layer the first matmul splits its output over `tensor` and the second its input, so that
# heads and MLP columns stay on their device in between and one sum ends the layer.
# The vision tower (0.7 of 8 B parameters) is split over fsdp alone: the 3,420-wide MLP of Qwen2.5-VL's
# divides by few numbers. Biases, scales and the table of positions are small, so every device has a copy.
RULES: Rules = (
    (r"lora/lora_[ab]$", P()),  # an adapter is small, so every device has a copy
    (r"vision/blocks/.*(qkv|gate|up|fc1)/kernel$", P(None, "fsdp", None)),
    (r"vision/blocks/.*(proj|down|fc2)/kernel$", P(None, None, "fsdp")),
    (r"vision/merger/.*(up|down|fc1|fc2)/kernel$", P("fsdp", None)),
    (r"vision/deepstack/.*/kernel$", P(None, "fsdp", None)),
    (r"vision/patch/kernel$", P(None, None, "fsdp")),
    (r"vision/.*(bias|scale|table)$", P()),
    # The parts of a DeltaNet's projections are not multiples of each other.
    (r"delta/(qkv|gate|beta|decay)/kernel$", P(None, "fsdp", None)),
    (r"delta/output/kernel$", P(None, None, "fsdp")),
    (r"delta/(conv|norm|log_rate|rate_bias)$", P()),
    (r"(query|key|value|gate|up)/kernel$", P(None, "fsdp", "tensor")),
    (r"(output|down)/kernel$", P(None, "tensor", "fsdp")),
    (r"(query|key|value)/bias$", P(None, "tensor")),
    (r"norm\d?/scale$", P()),
    (r"embedding$", P("tensor", "fsdp")),
    (r"lm_head/kernel$", P("fsdp", "tensor")),
)


def make(data: int = 1, fsdp: int = -1, tensor: int = 1, devices=None) -> Mesh:
    """Returns a (data, fsdp, tensor) mesh; one axis may be -1: all remaining devices."""
    devices = np.asarray(jax.devices() if devices is None else devices)
    try:
        grid = devices.reshape(data, fsdp, tensor)
    except ValueError as error:
        raise ValueError(
            f"mesh data={data} fsdp={fsdp} tensor={tensor} does not fill {devices.size} devices: give axes whose "
            "product is their number, one of them may be -1 for all remaining devices"
        ) from error
    # Auto: XLA propagates shardings; `Place` decides only where it would choose badly.
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * 3)


def shardings(mesh: Mesh, tree, rules: Rules = RULES):
    """Returns the NamedSharding of every leaf of `tree` (arrays or ShapeDtypeStructs).

    Optimizer moments end in the path of their parameter, so the same rules place them; scalars are
    replicated.

    Raises:
        ValueError: no rule matches a path, or an axis does not divide its dimension.
    """

    def place(path, leaf):
        name = path_name(path)
        spec = _spec(name, rules) if leaf.ndim else P()
        if spec is None:
            raise ValueError(f"no sharding rule matches {name} {leaf.shape}")
        sharding = NamedSharding(mesh, spec)
        sharding.shard_shape(leaf.shape)  # called only for its error
        return sharding

    return jax.tree_util.tree_map_with_path(place, tree)


@dataclasses.dataclass(frozen=True)
class Place(layers.Placement):
    """Splits a model's activations over the mesh.

    Heads and MLP follow their weights over `tensor`. Where `data` x `fsdp` is 1, nothing is set.
    """

    mesh: Mesh

    @property
    def ways(self) -> int:
        """The number of devices that share the rows."""
        return batch_size(self.mesh)

    @property
    def platform(self) -> str:
        """The kind of the devices: "cpu", "gpu" or "tpu"."""
        return self.mesh.devices.flat[0].platform

    def rows(self, x: jax.Array) -> jax.Array:
        """Splits the first axis over the batch axes."""
        return self._put(x, BATCH, *[P.UNCONSTRAINED] * (x.ndim - 1))

    def width(self, x_D: jax.Array) -> jax.Array:
        """Splits the last axis over the batch axes, and no other."""
        return self._put(x_D, *[None] * (x_D.ndim - 1), BATCH)

    def replicated(self, x: jax.Array) -> jax.Array:
        """Replicates `x` on every device."""
        return self._put(x)

    def looked_up(self, x_D: jax.Array) -> jax.Array:
        """Splits the first axis over `data` and the last over `fsdp`, like the embedding's."""
        return self._put(x_D, "data", *[None] * (x_D.ndim - 2), "fsdp")

    def head(self, x_DV: jax.Array) -> jax.Array:
        """Splits like the head, which may be the transposed embedding."""
        return self._put(x_DV, "fsdp", "tensor")

    def apart(self, function, *heads_NTHK, split_heads: bool = True):
        """Calls `function` on each device's rows and heads; see `layers.Placement`."""
        spec = P(BATCH, None, "tensor" if split_heads else None, None)
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False
        )(*heads_NTHK)

    def weights(self, module, name: str, dtype):
        """Gathers the matrices of a module over `fsdp`, in `dtype`; see `layers.Placement`.

        They are cast before they are gathered, and their gradients are reduced and scattered at once, in the
        same dtype. Otherwise the compiler gathers a matrix for every use of it, and sums the full gradient on
        every device before each keeps its part.
        """
        if self.mesh.shape["fsdp"] == 1:
            return module

        def gather(path, x):
            split = _spec(f"{name}/{path_name(path)}".removesuffix("/value"), RULES)
            assert split is not None, "every weight has a rule"
            split = P(*split[max(len(split) - x.ndim, 0) :])  # of one layer
            if "fsdp" not in split:
                return x
            gathered = P(*[axis if axis != "fsdp" else None for axis in split])
            where = (NamedSharding(self.mesh, spec) for spec in (split, gathered))
            return _gathered(*where, jnp.dtype(dtype), x.dtype, x)

        return jax.tree_util.tree_map_with_path(gather, module)

    def _put(self, x, *spec):
        if self.ways == 1:
            return x
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*spec)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _gathered(split, gathered, dtype, stored, x):
    """Returns `x` as `gathered` in `dtype`; its gradient comes back as `split`, in the stored dtype."""
    # Constrained twice: with the second constraint alone, the compiler gathers and then casts.
    x = jax.lax.with_sharding_constraint(arrays.rounded(x, dtype), split)
    return jax.lax.with_sharding_constraint(x, gathered)


_gathered.defvjp(
    lambda *given: (_gathered(*given), None),
    lambda split, gathered, dtype, stored, _, dx: (
        jax.lax.with_sharding_constraint(dx, split).astype(stored),
    ),
)


def batch_sharding(mesh: Mesh, *, axis: int = 0) -> NamedSharding:
    """Returns the sharding that splits dimension `axis` over the batch axes."""
    return NamedSharding(mesh, P(*[None] * axis, BATCH))


def batch_size(mesh: Mesh) -> int:
    """Returns how many ways a batch is split."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def check_batch(mesh: Mesh, name: str, size: int) -> None:
    """Raises ValueError when the `size` prompts of the field `name` cannot be split evenly."""
    if size % (ways := batch_size(mesh)):
        raise ValueError(f"{name}={size} is not a multiple of mesh.data x mesh.fsdp={ways}")


def check_model(mesh: Mesh, shape) -> None:
    """Raises ValueError when `mesh.tensor` does not divide the heads of `shape`, a model's config."""
    ways, heads, kv_heads = mesh.shape["tensor"], shape.text.num_heads, shape.text.num_kv_heads
    if math.gcd(heads, kv_heads) % ways:
        raise ValueError(
            f"mesh.tensor={ways} does not divide {heads} heads and {kv_heads} key/value heads: give more mesh.fsdp"
        )


def path_name(path) -> str:
    """Returns a tree path as `text/layers/q/kernel`."""
    return "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)


def _spec(name: str, rules: Rules) -> P | None:
    return next((spec for rule, spec in rules if re.search(rule, name)), None)
