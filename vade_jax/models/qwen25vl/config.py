"""Shapes and token ids of a Qwen2.5-VL, to and from Hugging Face's config.json.

Two layouts are read: the published one (text fields at the root, `rope_scaling`) and the one that
transformers 5 saves (`text_config`, `rope_parameters`). The published one is written.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

ARCHITECTURE = "Qwen2_5_VLForConditionalGeneration"

# Our field -> Hugging Face's. What has no line here (rotation, token ids) is read and written by hand.
_TEXT_NAMES = {
    "vocab_size": "vocab_size",
    "width": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "mlp_width": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
}
_VISION_NAMES = {
    "depth": "depth",
    "width": "hidden_size",
    "num_heads": "num_heads",
    "mlp_width": "intermediate_size",
    "full_blocks": "fullatt_block_indexes",
}
_TOKEN_NAMES = (
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "bos_token_id",
    "eos_token_id",
)
# What types.Images and the patch embedding are built for; every published checkpoint agrees.
_FIXED_VISION = {
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "hidden_act": "silu",
}


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """The decoder: pre-norm, grouped-query attention with M-RoPE, SiLU-gated MLP."""

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

    def __post_init__(self):
        _divides("text num_heads", self.num_heads, "text width", self.width)
        _divides("num_kv_heads", self.num_kv_heads, "text num_heads", self.num_heads)
        if len(self.mrope_section) != 3 or 2 * sum(self.mrope_section) != self.head_width:
            raise ValueError(
                f"mrope_section {self.mrope_section} must be three numbers with sum "
                f"{self.head_width / 2:g}, half the head width {self.head_width}"
            )

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """The vision tower: windows of 64 patches, except in `full_blocks`."""

    depth: int
    width: int
    num_heads: int
    mlp_width: int
    full_blocks: tuple[int, ...]

    def __post_init__(self):
        _divides("vision num_heads", self.num_heads, "vision width", self.width)
        if self.head_width % 4:
            raise ValueError(
                f"the vision head width {self.head_width} (width {self.width} / "
                f"{self.num_heads} heads) must be a multiple of 4 for its 2-D rotation"
            )
        if bad := [i for i in self.full_blocks if not 0 <= i < self.depth]:
            raise ValueError(f"full_blocks {bad} are outside of depth {self.depth}")

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole model. The defaults are the published token ids."""

    text: TextConfig
    vision: VisionConfig
    tie_embeddings: bool
    image_token_id: int = 151655
    video_token_id: int = 151656
    vision_start_token_id: int = 151652
    vision_end_token_id: int = 151653
    bos_token_id: int = 151643
    eos_token_id: int = 151645

    def __post_init__(self):
        # A lookup outside of the table would be clipped to its last row in silence.
        for name in _TOKEN_NAMES:
            if not 0 <= getattr(self, name) < self.text.vocab_size:
                raise ValueError(
                    f"{name} {getattr(self, name)} is outside of the vocabulary of "
                    f"{self.text.vocab_size} rows"
                )

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> "Config":
        """Reads a config.json, published or transformers-5 layout."""
        _check_architecture(fields)
        # transformers 5 nests the decoder's fields, the published files have them at the root. Nested ones
        # win where both are there.
        text = {**fields, **(fields.get("text_config") or {})}
        tokens = {n: text[n] for n in _TOKEN_NAMES if isinstance(text.get(n), int)}
        return cls(
            text=_read_text(text),
            vision=_read_vision(_field(fields, "vision_config"), text["hidden_size"]),
            tie_embeddings=bool(
                fields.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
            ),
            **tokens,
        )

    def to_hf(self) -> dict[str, Any]:
        """Returns the published layout, which vLLM and every transformers read."""
        text = {hf: getattr(self.text, ours) for ours, hf in _TEXT_NAMES.items()}
        vision = {hf: getattr(self.vision, ours) for ours, hf in _VISION_NAMES.items()}
        section = list(self.text.mrope_section)
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen2_5_vl",
            **{name: getattr(self, name) for name in _TOKEN_NAMES},
            **text,
            # What we do not have but their classes ask for, with the published values.
            "attention_dropout": 0.0,
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "rope_theta": self.text.rope_theta,
            "rope_scaling": {"type": "mrope", "mrope_section": section},
            "sliding_window": 32768,
            "max_window_layers": self.text.num_layers,
            "use_sliding_window": False,
            "use_cache": True,
            "tie_word_embeddings": self.tie_embeddings,
            "vision_config": {
                **vision,
                **_FIXED_VISION,
                "model_type": "qwen2_5_vl",
                "fullatt_block_indexes": list(self.vision.full_blocks),
                "out_hidden_size": self.text.width,
                "in_chans": 3,
                "spatial_patch_size": 14,
                "tokens_per_second": 2,
            },
        }


def _read_text(fields: Mapping[str, Any]) -> TextConfig:
    if fields.get("use_sliding_window"):
        raise ValueError("use_sliding_window true is not supported: set it to false")
    if fields.get("hidden_act", "silu") != "silu":
        raise ValueError(f"text hidden_act {fields['hidden_act']!r} is not 'silu'")
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    theta = rope.get("rope_theta", fields.get("rope_theta", 1e6))
    shape = {ours: _field(fields, hf) for ours, hf in _TEXT_NAMES.items()}
    section = tuple(_field(rope, "mrope_section"))
    config = TextConfig(**shape, mrope_section=section, rope_theta=float(theta))
    if fields.get("head_dim", config.head_width) != config.head_width:
        raise ValueError(
            f"head_dim {fields['head_dim']} must be hidden_size / num_attention_heads "
            f"= {config.head_width}"
        )
    return config


def _read_vision(fields: Mapping[str, Any], text_width: int) -> VisionConfig:
    expected = {**_FIXED_VISION, "out_hidden_size": text_width}
    # Published as in_chans; transformers' own class calls it in_channels. Files may leave both out.
    if "in_channels" in fields or "in_chans" in fields:
        channels = fields.get("in_chans", fields.get("in_channels"))
        fields, expected = {**fields, "in_chans": channels}, {**expected, "in_chans": 3}
    for name, value in expected.items():
        if (found := fields.get(name, value)) != value:
            raise ValueError(f"vision_config {name} must be {value}, found {found}")
    shape = {ours: _field(fields, hf) for ours, hf in _VISION_NAMES.items()}
    return VisionConfig(**{**shape, "full_blocks": tuple(shape["full_blocks"])})


def _check_architecture(fields: Mapping[str, Any]) -> None:
    found = fields.get("architectures") or [fields.get("model_type")]
    known = (ARCHITECTURE, "qwen2_5_vl")
    if fields.get("model_type") != "qwen2_5_vl" or found[0] not in known:
        raise ValueError(
            f"config.json describes {found[0]!r} (model_type {fields.get('model_type')!r}); "
            f"only {ARCHITECTURE!r} (model_type 'qwen2_5_vl') is supported"
        )


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if fields.get(name) is None:
        raise ValueError(f"config.json has no value for {name!r}")
    return fields[name]


def _divides(small_name: str, small: int, large_name: str, large: int) -> None:
    if small < 1 or large % small:
        raise ValueError(f"{large_name} {large} must be a multiple of {small_name} {small}")


def _published(*, tie_embeddings: bool, **text: int) -> Config:
    """Returns a published model: all have the same tower, head width and special tokens."""
    vision = VisionConfig(
        depth=32, width=1280, num_heads=16, mlp_width=3420, full_blocks=(7, 15, 23, 31)
    )
    return Config(TextConfig(**text, mrope_section=(16, 24, 24)), vision, tie_embeddings)


PRESETS = {
    # Token ids of the tiny tokenizer: 256 bytes, 64 merges, then the published special tokens.
    "tiny": Config(
        text=TextConfig(
            vocab_size=512,
            width=128,
            num_layers=4,
            num_heads=4,
            num_kv_heads=2,
            mlp_width=352,
            mrope_section=(4, 6, 6),
            max_positions=4096,
        ),
        vision=VisionConfig(depth=4, width=96, num_heads=3, mlp_width=256, full_blocks=(1, 3)),
        tie_embeddings=True,
        image_token_id=332,
        video_token_id=333,
        vision_start_token_id=329,
        vision_end_token_id=330,
        bos_token_id=320,
        eos_token_id=322,
    ),
    "3b": _published(
        vocab_size=151936,
        width=2048,
        num_layers=36,
        num_heads=16,
        num_kv_heads=2,
        mlp_width=11008,
        tie_embeddings=True,
    ),
    "7b": _published(
        vocab_size=152064,
        width=3584,
        num_layers=28,
        num_heads=28,
        num_kv_heads=4,
        mlp_width=18944,
        tie_embeddings=False,
    ),
}
