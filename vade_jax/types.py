"""The values that parts of vade_jax pass to each other, and the key of dimension letters.

The name of an array ends in its logical shape, one capital letter per dimension:

    I  items of the data set             N  answers, flat: all of them; in a `Batch`, R x G places
    M  prompts of a batch                R  rows: one prompt and G consecutive answers to it
    G  answers in a row                  T  tokens of an answer, right-padded
    P  tokens of a prompt, right-padded  V  rows of the vocabulary
    L  layers                            D  width of the residual stream
    H  query heads                       J  key/value heads
    K  width of a head                   F  width of the MLP
    X  the three M-RoPE axes (t, h, w)   B  images of a batch
    W  vision windows of an image        S  patch slots of a window (64)
    C  merged cells of a window (16)     E  values of a patch (3 x 14 x 14 or 16 x 16)

A file may define further letters, such as A for categories or Q for candidates. Outside the model a file
may give a letter another meaning and say so: in the selectors K are answers or strengths, C candidates, D
and E features. `length_N` and similar arrays count tokens; an array `*_N` has one scalar per answer. The
suffix is the shape of the whole array, never of a shard.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Self, dataclass_transform

import chex
import jax
import numpy as np

Array = jax.Array | np.ndarray
Params = Any  # a nested dict of arrays
Metrics = dict[str, Any]
PathLike = str | os.PathLike[str]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Pytree:
    """Declares for type checkers what `chex.dataclass` adds, which they cannot see."""

    def replace(self, **changes: Any) -> Self:
        """Returns a copy in which some fields have other values."""
        raise NotImplementedError  # `chex.dataclass` replaces it


# ------------------------------------------------------------------------------ selection
@chex.dataclass(frozen=True)
class Proposal(Pytree):
    """The selector's choice for one round: prompts, and how many answers to each."""

    # int32, rows of the data set; without duplicates, except for variants of an item
    index_M: Array
    num_rollouts_M: Array  # int32, answers to ask for
    # float32, the pass rate that the selector drew or estimated for each prompt; None: it has none
    p_M: Array | None = None
    # float32, a factor on the advantages of each group; None: 1 for all
    weight_M: Array | None = None
    # The selector's private arrays, with one entry per prompt. They come back with the feedback.
    extra_M: dict[str, Array] | None = None


@chex.dataclass(frozen=True)
class Feedback(Pytree):
    """The outcome of one proposal. Counts are over valid answers only."""

    index_M: Array  # int32
    successes_M: Array  # float32, correct answers (never the mixed reward)
    trials_M: Array  # float32, valid answers
    group_N: Array  # int32, the slot of the proposal that the answer belongs to
    reward_N: Array  # float32, the reward that advantages are computed from
    correct_N: Array  # float32, 0 or 1; in between if `selector.Selector` was given soft scores
    advantage_N: Array  # float32
    length_N: Array  # int32, tokens
    valid_N: Array  # bool, False if there is no answer or no verdict on it
    # Those of the proposal, or values that a pass over all items measured for the selector.
    extra_M: dict[str, Array] | None = None

    @property
    def mixed_M(self) -> Array:  # noqa: N802 (named like the fields)
        """Which groups have both right and wrong answers, the only ones to learn from in the paper."""
        return (self.successes_M > 0) & (self.successes_M < self.trials_M)


# ------------------------------------------------------------------------------ data, on the host
@dataclasses.dataclass(frozen=True)
class Item:
    """One row of a data set: a question about images with a verifiable answer."""

    uid: str
    question: str  # "<image>" marks the place of each image; none: images come first
    images: tuple[Any, ...]  # PIL images
    answer: str
    kind: str  # "choice" | "yesno" | "int" | "float" | "text" | "list" | "expr"
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The unchanged row of the file, for reward functions; empty in a run without them.
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def without_images(self) -> "Item":
        """Returns the item without its images, to keep once the prompt is built: each takes megabytes."""
        return dataclasses.replace(self, images=())


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One rendered question, as every engine and the trainer see it."""

    uid: str
    text: str  # the chat-formatted prompt, one image pad per image
    token_P: np.ndarray  # int32, image pads expanded to one per merged cell
    position_PX: np.ndarray  # int32, M-RoPE positions
    images: tuple[
        np.ndarray, ...
    ]  # uint8 [height, width, 3], sides in whole cells of 2 x 2 patches
    patch: int = 14  # pixels per side of a patch, as the model wants it

    @property
    def length(self) -> int:
        """Number of tokens, image tokens included."""
        return len(self.token_P)


# ------------------------------------------------------------------------------ model input
@chex.dataclass(frozen=True)
class Images(Pytree):
    """Images cut into windows of 64 patch slots, so that window attention is a reshape.

    A window has 4 x 4 merged cells, and a cell has 2 x 2 patches; slot = 4 * cell + patch in the cell,
    with cells in row-major order. Windows at an edge have empty slots.
    """

    patch_BWSE: Array  # uint8, (channel, y, x) order within E
    row_BWS: Array  # int32, row of the patch in its image
    col_BWS: Array  # int32, column of the patch in its image
    valid_BWS: Array  # bool, False for empty slots, padded windows and padded images


@chex.dataclass(frozen=True)
class Prompts(Pytree):
    """A batch of prompts, right-padded, with their images."""

    token_MP: Array  # int32
    length_M: Array  # int32
    position_MPX: Array  # int32
    # int32, the position of an answer's first token, the same on all three axes
    next_position_M: Array
    cell_MP: Array  # int32, index into the flat (B, W, C) merged cells; -1 for text
    images: Images


# ------------------------------------------------------------------------------ rollouts
@chex.dataclass(frozen=True)
class Rollouts(Pytree):
    """Flat answers; a prompt may have any number. `group_N` (ascending) is the prompt of each answer."""

    token_NT: Array  # int32, the end token included, right-padded
    length_N: Array  # int32
    logp_NT: Array  # float32, of the policy that sampled, at its temperature; 0 after the end
    group_N: Array  # int32
    finished_N: Array  # bool, False if the answer was cut off at the length limit
    valid_N: Array  # bool, False if there is no answer or, once scored, no verdict on it
    params_version: Array  # int32 scalar, the version of the weights that made the answers


@chex.dataclass(frozen=True)
class Batch(Pytree):
    """The arrays of one optimizer update; they may have a leading micro-batch axis."""

    prompts: Prompts
    token_NT: Array  # int32; answer r * G + g is one to prompt r
    mask_NT: Array  # float32, 1 on the tokens of valid answers
    advantage_N: Array  # float32
    rollout_logp_NT: Array  # float32, log-probs that the engine reported
    old_logp_NT: Array  # float32, log-probs of the policy before the updates of this step
    ref_logp_NT: Array  # float32, log-probs of the reference policy


@chex.dataclass(frozen=True)
class TrainState(Pytree):
    """Parameters and optimizer; `step` counts optimizer updates."""

    params: Params  # that are trained
    opt_state: Any
    step: Array  # int32 scalar
    frozen: Params = dataclasses.field(default_factory=dict)  # the base of an adapter; else empty
