"""Sizes and token ids of Qwen2.5-VL, and their conversion from and to Hugging Face's config.json.

The dense text models Qwen2.5 and Qwen3 use the same decoder without a vision tower. Qwen2.5 has exactly
the decoder of Qwen2.5-VL. Qwen3 normalises queries and keys, has no biases, and may have a head width
other than width / num_heads.

Two layouts are read: the published one (text fields at the root, `rope_scaling`) and the one that
transformers 5 saves (`text_config`, `rope_parameters`). The published one is written.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

# By Hugging Face's model_type.
ARCHITECTURES = {
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

# Our field -> Hugging Face's. Fields without a line here (rotation, token ids) are converted in code.
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
_TOKEN_NAMES = ("bos_token_id", "eos_token_id")
_VISION_TOKEN_NAMES = (
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)
# Upper limits: a wrong number in a file must be found before arrays of that size fill the memory.
_MOST = {"num_hidden_layers": 1_000, "depth": 1_000}
_MOST_ELSE = 10_000_000
# types.Images and the patch embedding support only these values; all published checkpoints have them.
_FIXED_VISION = {
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "hidden_act": "silu",
}


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """The decoder: pre-norm, grouped-query attention with M-RoPE, SiLU-gated MLP.

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
    qk_norm: bool = False  # Qwen3: norms of each head's query and key, and no biases

    def __post_init__(self):
        if not self.own_head_width:
            _divides("text num_heads", self.num_heads, "text width", self.width)
        _divides("num_kv_heads", self.num_kv_heads, "text num_heads", self.num_heads)
        if len(self.mrope_section) != 3 or 2 * sum(self.mrope_section) != self.head_width:
            raise ValueError(
                f"mrope_section {self.mrope_section} must be three numbers with sum "
                f"{self.head_width / 2:g}, half the head width {self.head_width}"
            )

    @property
    def head_width(self) -> int:
        return self.own_head_width or self.width // self.num_heads

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_width


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """The vision tower: attention in windows of 64 patches, except in `full_blocks`."""

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
    vision: VisionConfig | None  # None: a text model, which does not use the image and vision ids
    tie_embeddings: bool
    image_token_id: int = 151655
    video_token_id: int = 151656
    vision_start_token_id: int = 151652
    vision_end_token_id: int = 151653
    bos_token_id: int = 151643
    eos_token_id: int = 151645

    def __post_init__(self):
        # A lookup outside the embedding table would silently return its last row.
        for name in self._token_names():
            if not 0 <= getattr(self, name) < self.text.vocab_size:
                raise ValueError(
                    f"{name} {getattr(self, name)} is outside of the vocabulary of "
                    f"{self.text.vocab_size} rows"
                )

    def _token_names(self) -> tuple[str, ...]:
        return _TOKEN_NAMES + (_VISION_TOKEN_NAMES if self.vision else ())

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> "Config":
        """Returns the config that a config.json describes, in the published or transformers 5's layout.

        Raises:
            ValueError: a field is missing or has a value that is not supported.
        """
        family = _family(fields)
        # transformers 5 nests the decoder's fields; published files have them at the root. A nested field
        # overrides one at the root unless it is null.
        nested = _section(fields, "text_config")
        text = {**fields, **{k: v for k, v in nested.items() if v is not None}}
        vision, names = None, _TOKEN_NAMES
        if family == "qwen2_5_vl":
            vision = _read_vision(_section(fields, "vision_config"), _number(text, "hidden_size"))
            names += _VISION_TOKEN_NAMES
        tied = fields.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        if not isinstance(tied, bool | None):
            raise ValueError(f"tie_word_embeddings {tied!r} is neither true nor false")
        if isinstance(ends := text.get("eos_token_id"), list) and ends:
            text["eos_token_id"] = ends[0]
        tokens = {n: _number(text, n, at_least=0) for n in names if isinstance(text.get(n), int)}
        return cls(_read_text(text, family), vision, bool(tied), **tokens)

    def to_hf(self) -> dict[str, Any]:
        """Returns the config in the published layout, which vLLM and all versions of transformers read."""
        qwen3 = self.text.qk_norm
        family = "qwen2_5_vl" if self.vision else "qwen3" if qwen3 else "qwen2"
        return {
            "architectures": [ARCHITECTURES[family]],
            "model_type": family,
            **{name: getattr(self, name) for name in self._token_names()},
            **{hf: getattr(self.text, ours) for ours, hf in _TEXT_NAMES.items()},
            # Fields that our model does not have but transformers' classes need, with published values.
            "attention_dropout": 0.0,
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "rope_theta": self.text.rope_theta,
            "sliding_window": 32768,
            "max_window_layers": self.text.num_layers,
            "use_sliding_window": False,
            "use_cache": True,
            "tie_word_embeddings": self.tie_embeddings,
            # Without head_dim, transformers' Qwen3 takes 128, whatever the model's width.
            **({"attention_bias": False, "head_dim": self.text.head_width} if qwen3 else {}),
            **(self._vision_to_hf() if self.vision else {}),
        }

    def _vision_to_hf(self) -> dict[str, Any]:
        assert self.vision is not None
        section = list(self.text.mrope_section)
        vision = {hf: getattr(self.vision, ours) for ours, hf in _VISION_NAMES.items()}
        return {
            "rope_scaling": {"type": "mrope", "mrope_section": section},
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


def _read_text(fields: Mapping[str, Any], family: str) -> TextConfig:
    if fields.get("use_sliding_window"):
        raise ValueError("use_sliding_window true is not supported: set it to false")
    if fields.get("hidden_act", "silu") != "silu":
        raise ValueError(f"text hidden_act {fields['hidden_act']!r} is not 'silu'")
    rope = _section(fields, "rope_parameters") or _section(fields, "rope_scaling")
    turns = rope if "rope_theta" in rope else {"rope_theta": 1e6, **fields}
    shape: dict[str, Any] = {
        ours: _number(fields, hf) for ours, hf in _TEXT_NAMES.items() if ours != "norm_eps"
    }
    shape["norm_eps"] = _real(fields, "rms_norm_eps", 0.1)
    shape["rope_theta"] = _real(turns, "rope_theta", 1e12)
    shape["qk_norm"] = family == "qwen3"
    # Qwen2.5 always has biases in its attention, Qwen3 never.
    if fields.get("attention_bias", not shape["qk_norm"]) == shape["qk_norm"]:
        raise ValueError(f"attention_bias {fields['attention_bias']} is not that of a {family}")
    usual = shape["width"] // shape["num_heads"]
    head_width = _number(fields, "head_dim") if fields.get("head_dim") else usual
    if head_width != usual:
        if family != "qwen3":
            raise ValueError(
                f"head_dim {head_width} must be hidden_size / num_attention_heads = {usual}"
            )
        shape["own_head_width"] = head_width
    section: Any = (head_width // 2, 0, 0)
    if is_vl := family == "qwen2_5_vl":
        section = _numbers(rope, "mrope_section")
    # Published files name the kind `type`. transformers 5 names it `rope_type`, and M-RoPE "default".
    for kind in filter(None, (rope.get("rope_type"), rope.get("type"))):
        if kind != "default" and not (is_vl and kind == "mrope"):
            raise ValueError(
                f"rope scaling {kind!r} is not supported: only plain rotary positions are"
            )
    return TextConfig(**shape, mrope_section=section)


def _read_vision(fields: Mapping[str, Any], text_width: int) -> VisionConfig:
    expected = {**_FIXED_VISION, "out_hidden_size": text_width}
    # Published files have in_chans, transformers' own class in_channels. A file may have neither.
    if "in_channels" in fields or "in_chans" in fields:
        channels = fields.get("in_chans", fields.get("in_channels"))
        fields, expected = {**fields, "in_chans": channels}, {**expected, "in_chans": 3}
    for name, value in expected.items():
        if (found := fields.get(name, value)) != value:
            raise ValueError(f"vision_config {name} must be {value}, found {found}")
    shape = {
        ours: _number(fields, hf) for ours, hf in _VISION_NAMES.items() if ours != "full_blocks"
    }
    return VisionConfig(**shape, full_blocks=_numbers(fields, "fullatt_block_indexes"))


def _family(fields: Mapping[str, Any]) -> str:
    """Returns the model_type; raises ValueError if it is not one of `ARCHITECTURES`."""
    family = fields.get("model_type")
    named = fields.get("architectures") or [family]
    found = named[0] if isinstance(named, list) else named
    if family not in list(ARCHITECTURES) or found not in (ARCHITECTURES[family], family):
        raise ValueError(
            f"config.json describes {found!r} (model_type {family!r}); supported are "
            + ", ".join(f"{name!r} ({kind!r})" for kind, name in ARCHITECTURES.items())
        )
    return family


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if fields.get(name) is None:
        raise ValueError(f"config.json has no value for {name!r}")
    return fields[name]


def _section(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the nested fields under `name`, or an empty mapping if there are none."""
    if not isinstance(value := fields.get(name) or {}, Mapping):
        raise ValueError(f"{name} {value!r:.80} holds no names and values")
    return value


def _number(fields: Mapping[str, Any], name: str, at_least: int = 1) -> int:
    return _whole(name, _field(fields, name), at_least)


def _numbers(fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
    if not isinstance(values := _field(fields, name), list):
        raise ValueError(f"{name} {values!r:.80} is no list")
    return tuple(_whole(name, value, 0) for value in values)


def _whole(name: str, value: Any, at_least: int) -> int:
    most = _MOST.get(name, _MOST_ELSE)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not at_least <= value <= most:
        raise ValueError(f"{name} {value!r:.80} is no whole number in {at_least} .. {most:,}")
    return value


def _real(fields: Mapping[str, Any], name: str, most: float) -> float:
    value = _field(fields, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ValueError(f"{name} {value!r:.80} is no number above 0 and up to {most}")
    return float(value)


def _divides(small_name: str, small: int, large_name: str, large: int) -> None:
    if small < 1 or large % small:
        raise ValueError(f"{large_name} {large} must be a multiple of {small_name} {small}")


def _published(*, tie_embeddings: bool, **text: Any) -> Config:
    """Returns a published Qwen2.5-VL: all have the same vision tower, head width and special tokens."""
    vision = VisionConfig(
        depth=32, width=1280, num_heads=16, mlp_width=3420, full_blocks=(7, 15, 23, 31)
    )
    return Config(TextConfig(**text, mrope_section=(16, 24, 24)), vision, tie_embeddings)


def _text_model(
    *sizes: int,
    vocab_size: int = 151936,
    tie_embeddings: bool = True,
    own_head_width: int = 0,
    **more: Any,
) -> Config:
    """Returns a published text model; `sizes` are the fields of `TextConfig` from width to mlp_width."""
    width, num_layers, num_heads, num_kv_heads, mlp_width = sizes
    section = ((own_head_width or width // num_heads) // 2, 0, 0)
    text = TextConfig(
        vocab_size,
        width,
        num_layers,
        num_heads,
        num_kv_heads,
        mlp_width,
        section,
        own_head_width=own_head_width,
        **more,
    )
    return Config(text, None, tie_embeddings)


def _tiny_text_model(**text: Any) -> Config:
    """Returns a text model with the sizes and token ids of "tiny"."""
    tokens = {name: getattr(TINY, name) for name in _TOKEN_NAMES}
    return Config(dataclasses.replace(TINY.text, **text), None, TINY.tie_embeddings, **tokens)


# Token ids of the tiny tokenizer, which has 256 bytes, 64 merges, and then the published special tokens.
TINY = Config(
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
)
_QWEN25: dict[str, Any] = {"max_positions": 32768}
_QWEN3: dict[str, Any] = {"max_positions": 40960, "qk_norm": True}
PRESETS = {
    "tiny": TINY,
    "tiny_reader": TINY,  # its trained weights are part of the package: models/qwen/tiny_checkpoint.py
    "tiny_6m": dataclasses.replace(
        TINY,
        text=dataclasses.replace(TINY.text, width=256, num_layers=6, num_heads=8, mlp_width=704),
        vision=VisionConfig(depth=4, width=160, num_heads=5, mlp_width=432, full_blocks=(1, 3)),
    ),
    "tiny_qwen2.5": _tiny_text_model(mrope_section=(16, 0, 0)),
    "tiny_qwen3": _tiny_text_model(mrope_section=(32, 0, 0), own_head_width=64, qk_norm=True),
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
    # Width, layers, heads, key/value heads, MLP width.
    "qwen2.5-0.5b": _text_model(896, 24, 14, 2, 4864, **_QWEN25),
    "qwen2.5-1.5b": _text_model(1536, 28, 12, 2, 8960, **_QWEN25),
    "qwen2.5-3b": _text_model(2048, 36, 16, 2, 11008, **_QWEN25),
    "qwen2.5-7b": _text_model(
        3584, 28, 28, 4, 18944, vocab_size=152064, tie_embeddings=False, **_QWEN25
    ),
    "qwen3-0.6b": _text_model(1024, 28, 16, 8, 3072, own_head_width=128, **_QWEN3),
    "qwen3-1.7b": _text_model(2048, 28, 16, 8, 6144, **_QWEN3),
    "qwen3-4b": _text_model(2560, 36, 32, 8, 9728, own_head_width=128, **_QWEN3),
    "qwen3-8b": _text_model(4096, 36, 32, 8, 12288, tie_embeddings=False, **_QWEN3),
}
