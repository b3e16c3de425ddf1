"""The arrays of a run as shapes, from its config alone."""

import dataclasses
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from vade_jax import arrays
from vade_jax.data import images
from vade_jax.models.qwen25vl import config, model
from vade_jax.run import build
from vade_jax.trainer import mesh
from vade_jax.types import Batch, Images, Prompts

TYPICAL = {"prompt": 1300, "answer": 500, "pixels": 1024 * 1024}


class Lengths(NamedTuple):
    """One prompt, and each answer to it."""

    prompt: int
    answer: int
    cells: tuple[int, int]  # rows and columns of its image

    @property
    def patches(self) -> int:
        return 4 * self.cells[0] * self.cells[1]

    @property
    def windows(self) -> int:
        rows, cols = (-(-side // images.WINDOW) for side in self.cells)
        return rows * cols


def abstract_policy(c: ConfigDict, num_devices: int) -> build.Policy:
    """Returns the policy that `c` describes, with shapes in the place of arrays."""
    name = c.model.preset or c.model.size
    if name not in config.PRESETS:
        raise ValueError(
            f"model.size={c.model.size!r}: a plan needs one of {', '.join(config.PRESETS)}"
        )
    if num_devices > len(jax.devices()):
        raise ValueError(f"--devices={num_devices}: {len(jax.devices())} were started")
    shape = config.PRESETS[name]
    devices = mesh.make(**c.mesh, devices=jax.devices()[:num_devices])
    mesh.check_model(devices, shape)
    params = model.abstract(shape)
    special = ("vision_start", "vision_end", "image", "video")
    banned = tuple(getattr(shape, f"{name}_token_id") for name in special)
    dtype = jnp.float32 if c.model.dtype == "float32" else jnp.bfloat16
    return build.Policy(
        directory="",
        shape=shape,
        graphdef=model.graph(shape, dtype=dtype, place=mesh.Place(devices)),
        params=params,
        shardings=mesh.shardings(devices, params),
        tokenizer=types.SimpleNamespace(banned_ids=banned),
        mesh=devices,
    )


def largest(c: ConfigDict) -> Lengths:
    """Returns the largest prompt and answer that the config allows."""
    length = arrays.bucket(c.data.max_prompt_length, c.data.length_multiple)
    return Lengths(length, c.sampling.max_tokens, image_cells(c.data.max_pixels))


def typical(c: ConfigDict) -> Lengths:
    """Returns a usual prompt with a picture of a megapixel, within the config's limits."""
    return Lengths(
        min(TYPICAL["prompt"], c.data.max_prompt_length),
        min(TYPICAL["answer"], c.sampling.max_tokens),
        image_cells(min(TYPICAL["pixels"], c.data.max_pixels)),
    )


def image_cells(num_pixels: int) -> tuple[int, int]:
    """Returns rows and columns of the image with the most cells, and the squarest of those."""
    cells = max(1, num_pixels // images.CELL**2)
    rows = np.arange(max(1, int((cells / 2) ** 0.5)), int(cells**0.5) + 1)
    best = rows[(rows * (cells // rows) == (rows * (cells // rows)).max())][-1]
    return int(best), int(cells // best)


def prompts(num_prompts: int, lengths: Lengths, ways: int, *leading: int) -> Prompts:
    """Returns the shapes of a batch of prompts, padded as `batching` pads them."""
    put = lambda *shape, dtype=jnp.int32: jax.ShapeDtypeStruct(
        (*leading, *shape), dtype
    )
    M, P = num_prompts, lengths.prompt
    B = arrays.bucket(num_prompts, 1)
    B += -B % ways
    slots = (B, arrays.bucket(lengths.windows, 1), images.SLOTS)
    return Prompts(
        token_MP=put(M, P),
        length_M=put(M),
        position_MPX=put(M, P, 3),
        next_position_M=put(M),
        cell_MP=put(M, P),
        images=Images(
            patch_BWSE=put(*slots, images.WIDTH, dtype=jnp.uint8),
            row_BWS=put(*slots),
            col_BWS=put(*slots),
            valid_BWS=put(*slots, dtype=jnp.bool_),
        ),
    )


def batch(c: ConfigDict, policy: build.Policy, lengths: Lengths) -> Batch:
    """Returns the shapes of a mini-batch."""
    size, leading = c.batch.prompts_per_microbatch, num_microbatches(c)
    N, T = size * c.num_rollouts, lengths.answer
    put = lambda *shape: jax.ShapeDtypeStruct((leading, *shape), jnp.float32)
    names = [f.name for f in dataclasses.fields(Batch) if f.name.endswith("_NT")]
    of_tokens = {name: put(N, T) for name in names}
    of_tokens["token_NT"] = jax.ShapeDtypeStruct((leading, N, T), jnp.int32)
    return Batch(
        prompts=prompts(size, lengths, mesh.batch_size(policy.mesh), leading),
        group_R=None,
        advantage_N=put(N),
        **of_tokens,
    )


def num_microbatches(c: ConfigDict) -> int:
    """Returns the micro-batches of an update."""
    return c.batch.prompts_per_minibatch // c.batch.prompts_per_microbatch
