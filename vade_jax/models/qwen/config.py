"""Families, sizes and token ids of models; `config_json` reads and writes them, `presets` has published ones.

The families differ in few things, which are fields here: the vision-language models Qwen2.5-VL, Qwen3-VL and
Qwen3.5, the text models Qwen2.5, Qwen3 and Qwen3.5, which are their decoders, and Llama-shaped text models
such as Llama 3 and SmolLM2.
"""

import dataclasses
from typing import NamedTuple


class Family(NamedTuple):
    """What distinguishes a family, apart from its sizes."""

    architecture: str  # the class in transformers
    bias: bool = False  # whether queries, keys and values have biases
    qk_norm: bool = False  # whether each head's query and key are normalised
    tower: str = ""  # "windowed" or "plain", see `VisionConfig`; "": a text model
    is_hybrid: bool = False  # whether most layers are linear, see `LinearConfig`


# By Hugging Face's model_type.
FAMILIES = {
    "qwen2_5_vl": Family("Qwen2_5_VLForConditionalGeneration", bias=True, tower="windowed"),
    "qwen3_vl": Family("Qwen3VLForConditionalGeneration", qk_norm=True, tower="plain"),
    "qwen3_5": Family(
        "Qwen3_5ForConditionalGeneration", qk_norm=True, tower="plain", is_hybrid=True
    ),
    "qwen3_5_text": Family("Qwen3_5ForCausalLM", qk_norm=True, is_hybrid=True),
    "qwen2": Family("Qwen2ForCausalLM", bias=True),
    "qwen3": Family("Qwen3ForCausalLM", qk_norm=True),
    "llama": Family("LlamaForCausalLM"),
}
VISION_THETA = 10000.0  # of the vision tower's rotation, in every published checkpoint
TOKEN_NAMES = ("bos_token_id", "eos_token_id")
VISION_TOKEN_NAMES = (
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)


class LongRope(NamedTuple):
    """How Llama 3.1 and later slow down the low frequencies of the rotation (rope_type "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclasses.dataclass(frozen=True)
class LinearConfig:
    """The linear layers of a hybrid decoder, see `deltanet`."""

    num_key_heads: int
    num_heads: int  # of values
    key_width: int
    value_width: int
    kernel: int = 4  # tokens that the convolution sees

    def __post_init__(self):
        _divides("linear_num_key_heads", self.num_key_heads, "their value heads", self.num_heads)

    @property
    def key_size(self) -> int:
        return self.num_key_heads * self.key_width

    @property
    def value_size(self) -> int:
        return self.num_heads * self.value_width

    @property
    def channels(self) -> int:
        return 2 * self.key_size + self.value_size


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """The decoder: pre-norm, grouped-query attention with M-RoPE, SiLU-gated MLP.

    In a hybrid, blocks of `interval` layers have attention in the last one; the others are linear.

    The rotation of a text model is M-RoPE in which all frequencies turn with t.
    """

    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    mlp_width: int
    mrope_section: tuple[int, int, int]  # frequencies that turn with t, h, w
    rope_theta: float = 1e6
    norm_eps: float = 1e-6
    max_positions: int = 128000
    own_head_width: int = 0  # 0: width / num_heads
    bias: bool = True  # of queries, keys and values
    qk_norm: bool = False  # whether each head's query and key are normalised
    interleaved: bool = False  # whether the axes of M-RoPE take turns over the frequencies
    long_rope: LongRope | None = None
    rotary_share: float = 1.0  # of a head's values that turn, the first ones
    linear: LinearConfig | None = None
    interval: int = 1

    def __post_init__(self):
        _divides("full_attention_interval", self.interval, "num_hidden_layers", self.num_layers)
        if not self.own_head_width:
            _divides("text num_heads", self.num_heads, "text width", self.width)
        _divides("num_kv_heads", self.num_kv_heads, "text num_heads", self.num_heads)
        turning = self.head_width * self.rotary_share
        if len(self.mrope_section) != 3 or 2 * sum(self.mrope_section) != turning:
            raise ValueError(
                f"mrope_section {self.mrope_section} must be three numbers with sum {turning / 2:g}, half of "
                f"the {turning:g} values of a head that turn"
            )

    @property
    def head_width(self) -> int:
        return self.own_head_width or self.width // self.num_heads

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_width

    @property
    def axes(self) -> tuple[int, ...]:
        """The axis (0: t, 1: h, 2: w) with which each frequency turns.

        In Qwen2.5-VL the frequencies of an axis are contiguous. In Qwen3-VL the axes take turns, and t has
        what is left: t, h, w, t, h, w, ..., t, t.
        """
        t, h, w = self.mrope_section
        if not self.interleaved:
            return (0,) * t + (1,) * h + (2,) * w
        counts = (0, h, w)
        return tuple(j % 3 if j < 3 * counts[j % 3] else 0 for j in range(t + h + w))


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """The vision tower, of one of two kinds.

    "windowed" is Qwen2.5-VL's: patches of 14 pixels, RMSNorm, gated MLPs, and attention in windows of 64
    patches except in `full_blocks`. "plain" is Qwen3-VL's: patches of 16 pixels, LayerNorm, MLPs without a
    gate, full attention in all blocks, and learned positions in addition to the rotation.
    """

    depth: int
    width: int
    num_heads: int
    mlp_width: int
    full_blocks: tuple[int, ...] = ()  # of a windowed tower
    table_side: int = 0  # of a plain tower: the learned positions are a square table with this side
    # Of a plain tower: the blocks whose features are added after the decoder's first layers (DeepStack)
    deepstack: tuple[int, ...] = ()

    def __post_init__(self):
        _divides("vision num_heads", self.num_heads, "vision width", self.width)
        if bad := [i for i in self.full_blocks + self.deepstack if not 0 <= i < self.depth]:
            raise ValueError(f"the blocks {bad} are outside of depth {self.depth}")

    @property
    def kind(self) -> str:
        return "plain" if self.table_side else "windowed"

    @property
    def patch_size(self) -> int:
        """Pixels per side of a patch."""
        return 14 if self.kind == "windowed" else 16

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole model. The defaults are the published token ids of Qwen's pictures."""

    text: TextConfig
    vision: VisionConfig | None  # None: a text model, which does not use the image and vision ids
    tie_embeddings: bool
    image_token_id: int = 151655
    video_token_id: int = 151656
    vision_start_token_id: int = 151652
    vision_end_token_id: int = 151653
    # As the checkpoint has them, for the exported one; where an answer ends, the tokenizer says.
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self):
        # A lookup outside the embedding table would silently return its last row.
        for name, token in self.tokens().items():
            if not 0 <= token < self.text.vocab_size:
                raise ValueError(
                    f"{name} {token} is outside of the vocabulary of {self.text.vocab_size} rows"
                )

    @property
    def family(self) -> str:
        """Hugging Face's model_type."""
        tower = self.vision.kind if self.vision else ""
        own = (self.text.bias, self.text.qk_norm, tower, self.text.linear is not None)
        return next(name for name, family in FAMILIES.items() if family[1:] == own)

    def tokens(self) -> dict[str, int]:
        """Returns the token ids that the model has, by name."""
        names = TOKEN_NAMES + (VISION_TOKEN_NAMES if self.vision else ())
        tokens = {name: getattr(self, name) for name in names}
        return {name: token for name, token in tokens.items() if token is not None}


def _divides(small_name: str, small: int, large_name: str, large: int) -> None:
    if small < 1 or large % small:
        raise ValueError(f"{large_name} {large} must be a multiple of {small_name} {small}")
