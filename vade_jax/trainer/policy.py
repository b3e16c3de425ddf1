"""The policy of a run: a Hugging Face directory, loaded onto the mesh, with or without an adapter."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from vade_jax import settings
from vade_jax.data import tokens
from vade_jax.models.qwen import config, files, lora, model, peft
from vade_jax.trainer import mesh
from vade_jax.types import Params


@dataclasses.dataclass(frozen=True)
class Policy:
    """A checkpoint on the devices: the trained parameters `params`, and `base`, the frozen ones.

    Without an adapter all parameters are trained, and `base` is empty.
    """

    directory: str
    shape: config.Config
    merge: Callable[[Params], Any]  # all parameters -> the model
    whole: Callable[[Params, Params], Params]  # trained and frozen -> all parameters
    params: Params
    shardings: Params
    tokenizer: tokens.Tokenizer
    mesh: jax.sharding.Mesh
    dtype: jnp.dtype  # the compute dtype
    base: Params = dataclasses.field(default_factory=dict)
    base_shardings: Params = dataclasses.field(default_factory=dict)
    adapter: lora.Adapter | None = None


def place_policy(
    directory: str,
    devices: jax.sharding.Mesh,
    dtype: jnp.dtype,
    adapter_settings: settings.Lora = settings.Lora(),  # noqa: B008 (frozen)
    key: jax.Array | None = None,
    *,
    param_dtype: jax.typing.DTypeLike = jnp.float32,
) -> Policy:
    """Loads a Hugging Face directory onto the mesh: weights in `param_dtype`, computation in `dtype`.

    With an adapter (drawn with `key`), the weights are the frozen base and are kept in `dtype`.

    Raises:
        ValueError: the mesh does not divide the model.
    """
    shape, tokenizer = files.load_config(directory), tokens.Tokenizer.load(directory)
    policy = abstract_policy(shape, devices, dtype, adapter_settings, param_dtype)
    policy = dataclasses.replace(policy, directory=str(directory), tokenizer=tokenizer)
    if policy.adapter is None:
        _, params = files.load(directory, param_dtype, policy.shardings)
        return dataclasses.replace(policy, params=params)
    _, base = files.load(directory, dtype, policy.base_shardings)
    start = functools.partial(lora.start, policy.params)
    params = jax.jit(start, out_shardings=policy.shardings)(key)
    return dataclasses.replace(policy, params=params, base=base)


def abstract_policy(
    shape: config.Config,
    devices: jax.sharding.Mesh,
    dtype: jnp.dtype,
    adapter_settings: settings.Lora,
    param_dtype: jax.typing.DTypeLike = jnp.float32,
) -> Policy:
    """Returns a policy with shapes instead of arrays, without directory and tokenizer; see `place_policy`."""
    mesh.check_model(devices, shape)
    adapter = peft.choose(adapter_settings, shape) if adapter_settings.rank else None
    params, base = model.abstract(shape, adapter=adapter, param_dtype=param_dtype), {}
    whole = lambda params, frozen: params
    if adapter is not None:
        whole = lambda params, frozen: lora.join(frozen, params, adapter.scale)
        base, params = lora.split(params)
        base = jax.tree.map(lambda x: x.update(dtype=dtype), base)
    graph = model.graph(shape, dtype=dtype, place=mesh.Place(devices), adapter=adapter)
    return Policy(
        directory="",
        shape=shape,
        merge=functools.partial(model.merge, graph),
        whole=whole,
        params=params,
        shardings=mesh.shardings(devices, params),
        tokenizer=None,  # pyright: ignore[reportArgumentType] (it comes with the weights)
        mesh=devices,
        dtype=dtype,
        base=base,
        base_shardings=mesh.shardings(devices, base),
        adapter=adapter,
    )


def compute_dtype(model: settings.Model, devices: jax.sharding.Mesh) -> jnp.dtype:
    """Returns the compute dtype: that of the settings, or the default of the devices."""
    if model.dtype != "auto":
        return jnp.dtype(model.dtype)
    return jnp.dtype("float32" if mesh.Place(devices).platform == "cpu" else "bfloat16")
