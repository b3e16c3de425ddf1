"""Models, prompts and batches of given sizes, filled with random tokens."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.data import batching, prompts
from vade_jax.models.qwen import config, model
from vade_jax.types import Batch, Params, Prompt


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of groups of full-length prompts and answers."""

    num_prompts: int
    group_size: int
    prompt: int  # tokens
    answer: int

    @property
    def num_answers(self) -> int:
        return self.num_prompts * self.group_size

    def __str__(self) -> str:
        return (
            f"{self.num_prompts} prompts x {self.group_size} answers, "
            f"prompt {self.prompt}, answer {self.answer}"
        )


# ------------------------------------------------------------------------------ models
def text_model(*, width: int, num_layers: int, mlp_width: int, vocab_size: int):
    """Returns the config of a decoder with heads of width 32, 4 for each key/value head, and tied embeddings.

    Its vision tower is as small as possible, and sees no image.
    """
    text = config.TextConfig(
        vocab_size=vocab_size,
        width=width,
        num_layers=num_layers,
        num_heads=width // 32,
        num_kv_heads=width // 128,
        mlp_width=mlp_width,
        mrope_section=(4, 6, 6),
    )
    vision = config.VisionConfig(depth=1, width=32, num_heads=1, mlp_width=32, full_blocks=())
    names = [f.name for f in dataclasses.fields(config.Config) if "_id" in f.name]
    special = {name: vocab_size - 1 - i for i, name in enumerate(names)}
    return config.Config(text=text, vision=vision, tie_embeddings=True, **special)


def policy(shape: config.Config) -> tuple[Params, object]:
    """Returns random parameters and `merge`."""
    graphdef, init = model.graph(shape), functools.partial(model.init, shape)
    return jax.jit(init)(jax.random.key(0)), lambda p: model.merge(graphdef, p)


def num_params(params: Params) -> int:
    """Returns the number of weights of the decoder, embedding included."""
    return sum(x.size for x in jax.tree.leaves([params["text"], params["embedding"]]))


# ------------------------------------------------------------------------------ prompts and answers
def text_prompts(shape: config.Config, sizes: Sizes) -> list[Prompt]:
    """Returns prompts of random text."""
    size = (sizes.num_prompts, sizes.prompt)
    token_MP = np.random.default_rng(0).integers(0, shape.image_token_id - 16, size)
    return [_prompt(shape, token_P, ()) for token_P in token_MP]


def image_prompts(shape: config.Config, sizes: Sizes) -> list[Prompt]:
    """Returns prompts of one 112 x 112 image (16 tokens) and random text."""
    rng = np.random.default_rng(0)
    token_MP = rng.integers(0, 256, (sizes.num_prompts, sizes.prompt))
    token_MP[:, 8:24] = shape.image_token_id
    image_MYX3 = rng.integers(0, 256, (sizes.num_prompts, 112, 112, 3), np.uint8)
    pairs = zip(token_MP, image_MYX3, strict=True)
    return [_prompt(shape, token_P, (image,)) for token_P, image in pairs]


def grouped_batch(shape: config.Config, sizes: Sizes) -> Batch:
    """Returns one micro-batch with each prompt once; its log-probs are zeros, to be replaced."""
    rng = np.random.default_rng(1)
    size = (sizes.num_answers, sizes.answer)
    zeros_NT = jnp.zeros(size, jnp.float32)
    return Batch(
        prompts=_collate(text_prompts(shape, sizes)),
        token_NT=rng.integers(0, shape.image_token_id - 16, size, np.int32),
        mask_NT=np.ones(size, np.float32),
        group_R=None,
        advantage_N=rng.standard_normal(size[0]).astype(np.float32),
        rollout_logp_NT=zeros_NT,
        old_logp_NT=zeros_NT,
        ref_logp_NT=zeros_NT,
    )


def plain_batch(shape: config.Config, sizes: Sizes, batch: Batch) -> Batch:
    """Returns `batch` with one row for each answer: the tokens of its prompt, then its own."""
    rows_NP = np.repeat(batch.prompts.token_MP, sizes.group_size, axis=0)
    rows = np.concatenate([rows_NP, batch.token_NT], 1)
    return batch.replace(prompts=_collate([_prompt(shape, row, ()) for row in rows]))


def _collate(batch: Sequence[Prompt]):
    return batching.collate(batch, multiple=batch[0].length, num_images=0)


def _prompt(shape: config.Config, token_P: np.ndarray, images: tuple) -> Prompt:
    token_P = token_P.astype(np.int32)
    grids = [(4, 4) for _ in images]
    return Prompt(
        uid="random",
        text="",
        token_P=token_P,
        position_PX=prompts.positions(token_P, grids, shape.image_token_id),
        images=images,
    )
