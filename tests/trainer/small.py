"""A two-layer Qwen2.5-VL, Qwen3-VL and Qwen3.5, prompts with images, and random answers to them."""

import dataclasses

import jax
import numpy as np

from tests.models.qwen import inputs, oracle
from vade_jax import settings
from vade_jax.models.qwen import config, model, presets, weights
from vade_jax.trainer import minibatches
from vade_jax.types import Prompt, Rollouts

SHAPE = dataclasses.replace(
    oracle.text(
        presets.PRESETS["tiny"],
        width=64,
        num_layers=2,
        mlp_width=96,
        mrope_section=(2, 3, 3),
    ),
    vision=config.VisionConfig(depth=2, width=48, num_heads=2, mlp_width=64, full_blocks=(1,)),
)
_TINY3 = presets.PRESETS["tiny_qwen3vl"]
QWEN3VL = dataclasses.replace(
    _TINY3,
    text=dataclasses.replace(
        _TINY3.text, width=64, num_layers=2, mlp_width=96, mrope_section=(4, 2, 2)
    ),
    vision=config.VisionConfig(2, 48, 2, 64, table_side=5, deepstack=(0, 1)),
)
QWEN35 = dataclasses.replace(
    _TINY3,
    text=dataclasses.replace(
        QWEN3VL.text, num_layers=4, interval=2, linear=config.LinearConfig(2, 4, 8, 16)
    ),
    vision=dataclasses.replace(QWEN3VL.vision, deepstack=()),
)
STOP = (SHAPE.eos_token_id, SHAPE.bos_token_id)
FAST = {"xla_backend_optimization_level": 0}  # half the time to compile
BANNED = (329, 330, 331, 332, 333)
SIZES = ([(2, 3)], [], [(2, 2), (3, 1)], [(4, 5)])  # images, in cells


def loss(ratio, clip_low, clip_high, aggregate, **changes) -> settings.Loss:
    """A loss without dual clip and KL, unless they are asked for."""
    return settings.Loss(
        ratio=ratio,
        clip_low=clip_low,
        clip_high=clip_high,
        aggregate=aggregate,
        **{"dual_clip": 0.0, "kl_coef": 0.0} | changes,
    )


GRPO = loss("token", 0.2, 0.25, "token-mean", kl_coef=0.1)
GSPO = loss("sequence", 0.05, 0.1, "seq-mean-token-mean", kl_coef=0.1)


def merge(params):
    return model.merge(model.graph(SHAPE), params)


def params(seed: int = 0, shape: config.Config = SHAPE):
    tensors = oracle.random_tensors(shape, seed)
    return jax.tree.map(jax.numpy.asarray, weights.to_params(shape, tensors))


def examples(
    num_prompts: int = 4, seed: int = 0, shape: config.Config = SHAPE
) -> list[inputs.Example]:
    rng, patch = np.random.default_rng(seed), shape.vision.patch_size
    return [
        inputs.example(rng, SIZES[m % 4], shape.image_token_id, 6 + m % 3, patch)
        for m in range(num_prompts)
    ]


def prompt(example: inputs.Example, uid: str = "") -> Prompt:
    return Prompt(
        uid=uid,
        text="",
        token_P=np.array(example.ids, np.int32),
        position_PX=inputs.positions(
            example.ids, example.images, SHAPE.image_token_id, example.patch
        ),
        images=tuple(example.images),
        patch=example.patch,
    )


def prompts(num_prompts: int = 4, seed: int = 0, shape: config.Config = SHAPE) -> list[Prompt]:
    return [prompt(e, str(m)) for m, e in enumerate(examples(num_prompts, seed, shape))]


def rollouts(num_rollouts_M, T: int = 5, seed: int = 0) -> Rollouts:
    """Random tokens; behaviour log-probs near those of a random model."""
    rng = np.random.default_rng(seed)
    N = int(np.sum(num_rollouts_M))
    length_N = rng.integers(1, T + 1, N).astype(np.int32)
    inside_NT = np.arange(T) < length_N[:, None]
    logp_NT = rng.normal(-6, 0.3, (N, T)).astype(np.float32)
    return Rollouts(
        token_NT=rng.integers(0, 300, (N, T)).astype(np.int32),
        length_N=length_N,
        logp_NT=np.where(inside_NT, logp_NT, 0).astype(np.float32),
        group_N=np.repeat(np.arange(len(num_rollouts_M), dtype=np.int32), num_rollouts_M),
        finished_N=np.ones(N, bool),
        valid_N=np.ones(N, bool),
        params_version=np.int32(0),
    )


def advantages(num_answers: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=num_answers).astype(np.float32)


def split(prompts, rollouts, advantage_N, *, map=map, **shape):
    """`minibatches.split` with rows of 4 answers and prompts in multiples of 32."""
    defaults = {"answers_per_row": 4, "length_multiple": 32}
    return minibatches.split(prompts, rollouts, advantage_N, map=map, **defaults | shape)
