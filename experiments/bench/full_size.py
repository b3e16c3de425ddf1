"""A run's policy at full size with random weights, and full batches for it, on this machine's devices."""

import concurrent.futures
import dataclasses
import multiprocessing
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench import plan_programs
from vade_jax import settings
from vade_jax.data import images, prompts
from vade_jax.models.qwen import config
from vade_jax.run import build
from vade_jax.trainer.policy import Policy
from vade_jax.trainer import mesh, minibatches
from vade_jax.types import Batch, Params, Prompt, Rollouts

T = TypeVar("T")
FIRST_IMAGE_TOKEN = 4  # place in a prompt; text comes before and after the image


def alone(function: Callable[..., T], *arguments) -> T:
    """Calls a function in a separate process, and returns its result.

    The device's memory is free before and after the call, and the peak is that of this call alone.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


# ------------------------------------------------------------------------------ weights
def policy(run: settings.Run, devices: Sequence | None = None) -> Policy:
    """Returns the policy of a run with random weights, on `devices` or on all devices."""
    abstract = plan_programs.abstract_policy(run, devices or jax.devices())

    def fill(tree: Params, shardings: Params) -> Params:
        make = lambda: jax.tree_util.tree_map_with_path(_random, tree)
        return jax.jit(make, out_shardings=shardings)()

    params = fill(abstract.params, abstract.shardings)
    base = fill(abstract.base, abstract.base_shardings)
    return dataclasses.replace(abstract, params=params, base=base)


def _random(path, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """Returns weights of usual magnitude: scales 1, biases 0, the rest about 1 / sqrt(inputs).

    They are hashes of their indices, which need no extra memory. Random draws would need arrays of bits as
    large as the weights.
    """
    name = mesh.path_name(path)
    if name.endswith("scale") or name.endswith("bias"):
        return jnp.full(leaf.shape, name.endswith("scale"), leaf.dtype)
    place = jnp.zeros(leaf.shape, jnp.uint32)
    for axis, size in enumerate(leaf.shape):
        place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, leaf.shape, axis)
    bits = (place ^ (place >> 15)) * jnp.uint32(2654435769)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(2246822519)
    uniform = (bits >> 8).astype(jnp.float32) / 2**23 - 1
    std = 0.2 if name == "embedding" else leaf.shape[-2] ** -0.5
    return (uniform * (3**0.5 * std)).astype(leaf.dtype)


# ------------------------------------------------------------------------------ prompts and answers
def full_prompts(shape: config.Config, lengths: plan_programs.Lengths, count: int) -> list[Prompt]:
    """Returns prompts of full length, with random text and one random image."""
    rng, made = np.random.default_rng(0), []
    rows, cols = lengths.cells
    for m in range(count):
        token_P = rng.integers(0, _num_plain_tokens(shape), lengths.prompt).astype(np.int32)
        pictures, grids = (), []
        if shape.vision:
            cell = images.cell_side(shape.vision.patch_size)
            size = (cell * rows, cell * cols, 3)
            pictures, grids = (rng.integers(0, 256, size, np.uint8),), [lengths.cells]
            first = FIRST_IMAGE_TOKEN
            if first + rows * cols > lengths.prompt:
                raise ValueError(
                    f"an image of {rows * cols} tokens does not fit a prompt of {lengths.prompt}: "
                    "lower data.max_pixels or raise data.max_prompt_length"
                )
            token_P[first : first + rows * cols] = shape.image_token_id
        position_PX = prompts.positions(token_P, grids, shape.image_token_id)
        patch = shape.vision.patch_size if shape.vision else images.PATCH
        made.append(Prompt(str(m), "", token_P, position_PX, pictures, patch))
    return made


def full_rollouts(shape: config.Config, num_prompts: int, group_size: int, length: int) -> Rollouts:
    """Returns random answers of full length, each group with its prompt."""
    rng, N = np.random.default_rng(1), num_prompts * group_size
    return Rollouts(
        token_NT=rng.integers(0, _num_plain_tokens(shape), (N, length), np.int32),
        length_N=np.full(N, length, np.int32),
        # About the log-prob that random weights give any token, so that ratios stay near 1.
        logp_NT=np.full((N, length), -np.log(shape.text.vocab_size), np.float32),
        group_N=np.repeat(np.arange(num_prompts, dtype=np.int32), group_size),
        finished_N=np.ones(N, bool),
        valid_N=np.ones(N, bool),
        params_version=np.int32(0),
    )


def full_batch(run: settings.Run, policy: Policy, of: list[Prompt], rollouts: Rollouts) -> Batch:
    """Returns the prompts and answers as one mini-batch on the devices."""
    advantage_N = np.random.default_rng(2).standard_normal(len(rollouts.length_N))
    (batch,) = minibatches.split(of, rollouts, advantage_N, build.batch_shape(run, policy.mesh))
    return jax.device_put(batch, mesh.batch_sharding(policy.mesh, axis=1))


def _num_plain_tokens(shape: config.Config) -> int:
    """Returns the number of tokens before the special ones."""
    return min(shape.image_token_id, shape.text.vocab_size) - 16
