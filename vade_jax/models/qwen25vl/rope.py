"""Rotary positions: three-axis (M-RoPE) for text, two-axis for vision patches.

Angles are always float32, and so is the rotation; only the result is cast back.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array


class Rotation(NamedTuple):
    """Cosine and sine of each frequency, `[..., K / 2]`, for every head alike."""

    cos: jax.Array
    sin: jax.Array


def text(position_X: Array, section: tuple[int, int, int], theta: float) -> Rotation:
    """Returns the rotation of tokens at `position_[...]X`: `[..., K / 2]`.

    The first `section[0]` frequencies turn with t, the next with h, the last with w
    (Qwen2-VL, arXiv:2409.12191, section 2.1; not the interleaved Qwen3-VL form).
    """
    axis = np.repeat(np.arange(3), section)
    position = jnp.asarray(position_X)[..., axis].astype(jnp.float32)
    return _rotation(position * _frequencies(2 * sum(section), theta))


def vision(row: Array, col: Array, head_width: int) -> Rotation:
    """Returns the rotation of patches: half of the frequencies turn with each axis."""
    frequency = _frequencies(head_width // 2, 10000.0)
    angles = [jnp.asarray(x, jnp.float32)[..., None] * frequency for x in (row, col)]
    return _rotation(jnp.concatenate(angles, -1))


def rotate(x_HK: jax.Array, rotation: Rotation) -> jax.Array:
    """Rotates `x_[...]HK`: pairs are (first half, second half), not interleaved."""
    first, second = jnp.split(x_HK.astype(jnp.float32), 2, -1)
    cos, sin = rotation.cos[..., None, :], rotation.sin[..., None, :]
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, -1).astype(x_HK.dtype)


def _rotation(angle: jax.Array) -> Rotation:
    return Rotation(cos=jnp.cos(angle), sin=jnp.sin(angle))


def _frequencies(width: int, theta: float) -> np.ndarray:
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    return (1.0 / np.float32(theta) ** exponent).astype(np.float32)
