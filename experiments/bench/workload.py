"""What is compiled, run and compared: a run's policy with random weights, and full batches for it."""

import concurrent.futures
import dataclasses
import multiprocessing
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays, settings
from vade_jax.data import batching, images, prompts
from vade_jax.models.qwen import config, presets
from vade_jax.run import build
from vade_jax.trainer import mesh, minibatches, policy
from vade_jax.types import Batch, Params, Prompt, Rollouts

FIRST_IMAGE_TOKEN = 4  # place in a prompt; text comes before and after the image


def alone(function: Callable, *arguments) -> Any:
    """Calls a function in a separate process, and returns its result.

    The device's memory is free before and after the call, and the peak is that of this call alone.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


# ------------------------------------------------------------------------------ lengths
class Lengths(NamedTuple):
    """The sizes of a prompt and of each answer to it."""

    prompt: int
    answer: int
    cells: tuple[int, int]  # rows and columns of its image


def largest(run: settings.Run) -> Lengths:
    """Returns the largest prompt and answer that the settings allow."""
    length = arrays.bucket(run.data.max_prompt_length, run.data.length_multiple)
    shape = presets.PRESETS.get(run.model.preset or run.model.size)
    patch = shape.vision.patch_size if shape and shape.vision else images.PATCH
    return Lengths(length, run.sampling.max_tokens, image_cells(run.data.max_pixels, patch))


def image_cells(num_pixels: int, patch: int) -> tuple[int, int]:
    """Returns rows and columns of the image with the most cells; of several, the squarest."""
    cells = max(1, num_pixels // images.cell_side(patch) ** 2)
    rows = np.arange(max(1, int((cells / 2) ** 0.5)), int(cells**0.5) + 1)
    best = rows[(rows * (cells // rows) == (rows * (cells // rows)).max())][-1]
    return int(best), int(cells // best)


def num_microbatches(run: settings.Run) -> int:
    """Returns the number of micro-batches of an update."""
    return run.batch.prompts_per_minibatch // run.batch.prompts_per_microbatch


# ------------------------------------------------------------------------------ weights
def abstract_policy(run: settings.Run, devices: Sequence | None) -> policy.Policy:
    """Returns the policy of a run on these devices (None: all), with shapes instead of arrays.

    Raises:
        ValueError: the model's size is not known, or the devices do not divide it.
    """
    name = run.model.preset or run.model.size
    if name not in presets.PRESETS:
        raise ValueError(
            f"model.size={run.model.size!r}: a plan needs one of {', '.join(presets.PRESETS)}"
        )
    shape = presets.PRESETS[name]
    devices = mesh.make(**run.mesh.to_dict(), devices=devices)
    special = ("vision_start", "vision_end", "image", "video")
    banned = tuple(getattr(shape, f"{name}_token_id") for name in special)
    dtype, stored = policy.compute_dtype(run.model, devices), jnp.dtype(run.model.param_dtype)
    abstract = policy.abstract_policy(shape, devices, dtype, run.lora, stored)
    return dataclasses.replace(abstract, tokenizer=types.SimpleNamespace(banned_ids=banned))


def random_policy(run: settings.Run) -> policy.Policy:
    """Returns the policy of a run with random weights, on all devices."""
    abstract = abstract_policy(run, None)

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
def full_prompts(shape: config.Config, lengths: Lengths, count: int) -> list[Prompt]:
    """Returns prompts of full length, with random text and one random image if the model sees images.

    Raises:
        ValueError: the image does not fit the prompt.
    """
    rng, patch = np.random.default_rng(0), images.PATCH
    token_MP = rng.integers(0, _num_plain_tokens(shape), (count, lengths.prompt), np.int32)
    grids, pictures = [], [()] * count
    if shape.vision:
        patch, (rows, cols) = shape.vision.patch_size, lengths.cells
        if FIRST_IMAGE_TOKEN + rows * cols > lengths.prompt:
            raise ValueError(
                f"an image of {rows * cols} tokens does not fit a prompt of {lengths.prompt}: "
                "lower data.max_pixels or raise data.max_prompt_length"
            )
        token_MP[:, FIRST_IMAGE_TOKEN : FIRST_IMAGE_TOKEN + rows * cols] = shape.image_token_id
        cell, grids = images.cell_side(patch), [lengths.cells]
        size = (cell * rows, cell * cols, 3)
        pictures = [(rng.integers(0, 256, size, np.uint8),) for _ in range(count)]
    position_PX = prompts.positions(token_MP[0], grids, shape.image_token_id)
    return [
        Prompt(str(m), "", token_P, position_PX, of_prompt, patch)
        for m, (token_P, of_prompt) in enumerate(zip(token_MP, pictures, strict=True))
    ]


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


def advantages(rollouts: Rollouts) -> np.ndarray:
    """Returns random advantages of the answers."""
    return np.random.default_rng(2).standard_normal(len(rollouts.length_N)).astype(np.float32)


def full_batch(run: settings.Run, of: policy.Policy, inputs: list[Prompt], done: Rollouts) -> Batch:
    """Returns prompts and answers as one mini-batch on the devices."""
    size = len(inputs)
    sizes = build.batch_sizes(run, of.mesh) | {
        "prompts_per_minibatch": size,
        "prompts_per_microbatch": size // num_microbatches(run),
        "answers_per_row": len(done.length_N) // size,
    }
    (batch,) = minibatches.split(inputs, done, advantages(done), **sizes)
    return jax.device_put(batch, mesh.batch_sharding(of.mesh, axis=1))


def abstract_batch(run: settings.Run, of: policy.Policy) -> Batch:
    """Returns the shapes of a full mini-batch; a micro-batch of it is made and cut as a run does."""
    size, lengths = run.batch.prompts_per_microbatch, largest(run)
    done = full_rollouts(of.shape, size, run.num_rollouts, lengths.answer)
    sizes = build.batch_sizes(run, of.mesh) | {"prompts_per_minibatch": size}
    inputs = full_prompts(of.shape, lengths, size)
    (batch,) = minibatches.split(inputs, done, advantages(done), **sizes)
    put = lambda x: jax.ShapeDtypeStruct((num_microbatches(run), *x.shape[1:]), x.dtype)
    return jax.tree.map(put, batch)


def decode_inputs(
    run: settings.Run, of: policy.Policy, inputs: list[Prompt], num_answers: int
) -> tuple[Any, ...]:
    """Returns the prompts of a call of the built-in engine, no map of rows, and the answers' numbers."""
    sizes = batching.shapes(inputs, multiple=run.data.length_multiple)
    sizes["num_images"] += -sizes["num_images"] % mesh.batch_size(of.mesh)
    return batching.collate(inputs, **sizes), None, np.arange(num_answers, dtype=np.int32)


def _num_plain_tokens(shape: config.Config) -> int:
    """Returns the number of tokens before the special ones."""
    return min(shape.image_token_id, shape.text.vocab_size) - 16
