"""The values that parts of vade_jax hand to each other, and the key of dimension letters.

Arrays end in their logical shape, one capital letter a dimension:

    I  items of the data set             N  answers (rollouts), flat: N = R x G
    M  prompts of a batch                R  rows: one prompt and G consecutive answers to it
    G  answers in a row                  T  tokens of an answer, right-padded
    P  tokens of a prompt, right-padded  V  rows of the vocabulary
    L  layers                            D  width of the residual stream
    H  query heads                       J  key/value heads
    K  width of a head                   F  width of the MLP
    X  the three M-RoPE axes (t, h, w)   B  images of a batch
    W  vision windows of an image        S  patch slots of a window (64)
    C  merged cells of a window (16)     E  values of a patch (588 = 3 x 14 x 14)

A file may have letters of its own beside these, such as A for categories or Q for candidates.
`length_N` and the like count tokens; `*_N` alone is one scalar an answer. The suffix is the
logical shape, never the shard.
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
    """What type checkers are to know of a `chex.dataclass`, whose own types they do not see."""

    def replace(self, **changes: Any) -> Self:
        """Returns a copy in which some fields have other values."""
        raise NotImplementedError  # `chex.dataclass` puts its own in this place


# ------------------------------------------------------------------------------ selection
@chex.dataclass(frozen=True)
class Proposal(Pytree):
    """What a selector asks the engine for: prompts, and how many answers to each."""

    index_M: Array  # int32, rows of the data set, without duplicates, but for variants of an item
    num_rollouts_M: Array  # int32
    # float32, the pass rate drawn or estimated for each; None: none
    p_M: Array | None = None
    # float32, a factor of the advantages of each group; None: all weigh the same
    weight_M: Array | None = None
    # What only the selector understands, arrays with one entry a prompt. It gets them back with
    # the feedback.
    extra_M: dict[str, Array] | None = None


@chex.dataclass(frozen=True)
class Feedback(Pytree):
    """What came back for one proposal. Counts are over valid answers only."""

    index_M: Array  # int32
    successes_M: Array  # float32, correct answers (never the mixed reward)
    trials_M: Array  # float32, valid answers
    group_N: Array  # int32, which slot of the proposal the answer belongs to
    reward_N: Array  # float32, the reward that the advantages are made from
    correct_N: Array  # float32, 0 or 1; between them where a `Selector` is given soft scores
    advantage_N: Array  # float32
    length_N: Array  # int32, tokens
    valid_N: Array  # bool, False where the engine gave no answer
    # The proposal's, or what a pass over all items has measured for the selector.
    extra_M: dict[str, Array] | None = None

    @property
    def mixed_M(self) -> Array:  # noqa: N802 (named as its fields are)
        """Which groups have right and wrong answers: the paper's groups that teach."""
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
    # The row as its file has it, for reward functions; empty in a run without them.
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def without_images(self) -> "Item":
        """What is kept of an item once its prompt is built: a decoded image takes megabytes."""
        return dataclasses.replace(self, images=())


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One rendered question, as every engine and the trainer see it."""

    uid: str
    text: str  # the chat-formatted prompt, one image pad per image
    token_P: np.ndarray  # int32, image pads expanded to one per merged cell
    position_PX: np.ndarray  # int32, M-RoPE positions
    images: tuple[np.ndarray, ...]  # uint8 [height, width, 3], sides multiples of 28

    @property
    def length(self) -> int:
        """Tokens, image tokens included."""
        return len(self.token_P)


# ------------------------------------------------------------------------------ model input
@chex.dataclass(frozen=True)
class Images(Pytree):
    """Images cut to windows of 64 patch slots: window attention is then a reshape.

    A window is 4 x 4 merged cells, a cell 2 x 2 patches; slot = 4 * cell + patch in the cell,
    cells row-major in the window. Edge windows leave slots empty.
    """

    patch_BWSE: Array  # uint8, (channel, y, x) order within E
    row_BWS: Array  # int32, patch row in its image
    col_BWS: Array  # int32, patch column in its image
    valid_BWS: Array  # bool, False for empty slots, padded windows and padded images


@chex.dataclass(frozen=True)
class Prompts(Pytree):
    """A batch of prompts, right-padded, with the images they show."""

    token_MP: Array  # int32
    length_M: Array  # int32
    position_MPX: Array  # int32
    # int32, the position (all three axes) of an answer's first token
    next_position_M: Array
    cell_MP: Array  # int32, index into the flat (B, W, C) merged cells; -1 for text
    images: Images


# ------------------------------------------------------------------------------ rollouts
@chex.dataclass(frozen=True)
class Rollouts(Pytree):
    """Flat answers, in any split over prompts: `group_N` says whose (sorted, ascending)."""

    token_NT: Array  # int32, the end token included, right-padded
    length_N: Array  # int32
    logp_NT: Array  # float32, behaviour policy, at the sampling temperature; 0 behind the end
    group_N: Array  # int32
    finished_N: Array  # bool, False when cut at the length limit
    valid_N: Array  # bool
    params_version: Array  # int32 scalar, the version of the weights that made them


@chex.dataclass(frozen=True)
class Batch(Pytree):
    """Everything one gradient step needs; leaves may carry a leading micro-batch axis."""

    prompts: Prompts
    token_NT: Array  # int32
    mask_NT: Array  # float32, 1 on the tokens of valid answers
    group_R: Array | None  # int32, row -> prompt; None: row r is prompt r's
    advantage_N: Array  # float32
    rollout_logp_NT: Array  # float32, the engine's
    old_logp_NT: Array  # float32, of the policy before this step's updates
    ref_logp_NT: Array  # float32


@chex.dataclass(frozen=True)
class TrainState(Pytree):
    """Parameters and optimizer; `step` counts optimizer updates."""

    params: Params
    opt_state: Any
    step: Array  # int32 scalar
