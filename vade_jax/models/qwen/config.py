"""Sizes and token ids of a model, and their conversion from and to Hugging Face's config.json.

The families differ in few things, which are fields here. `FAMILIES` says what each has: the vision-language
models Qwen2.5-VL, Qwen3-VL and Qwen3.5, the text models Qwen2.5, Qwen3 and Qwen3.5, which are their decoders,
and Llama-shaped text models such as Llama 3 and SmolLM2. `presets` has the published sizes.

Two layouts are read: text fields at the root with `rope_scaling`, as published Qwen2.5-VL files have them,
and `text_config` with `rope_parameters`, which transformers 5 saves. Each family is written as it is
published.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple


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
_LINEAR_NAMES = {
    "num_key_heads": "linear_num_key_heads",
    "num_heads": "linear_num_value_heads",
    "key_width": "linear_key_head_dim",
    "value_width": "linear_value_head_dim",
    "kernel": "linear_conv_kernel_dim",
}
_VISION_NAMES = {
    "depth": "depth",
    "width": "hidden_size",
    "num_heads": "num_heads",
    "mlp_width": "intermediate_size",
}
# What transformers 4.49, which had the first Qwen2.5-VL, leaves out of a file, as it is its class's default.
_DEFAULTS_OF_449 = {
    "depth": 32,
    "num_heads": 16,
    "intermediate_size": 3420,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "out_hidden_size": 3584,
}
VISION_THETA = 10000.0  # of the vision tower's rotation, in every published checkpoint
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
# By tower. types.Images and the modules support only these values; all published checkpoints have them.
_FIXED_VISION: dict[str, dict[str, Any]] = {
    "windowed": {
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "hidden_act": "silu",
    },
    "plain": {
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "hidden_act": "gelu_pytorch_tanh",
    },
}


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
        if self.head_width % 4:
            raise ValueError(
                f"the vision head width {self.head_width} (width {self.width} / "
                f"{self.num_heads} heads) must be a multiple of 4 for its 2-D rotation"
            )
        for name, blocks in (("full_blocks", self.full_blocks), ("deepstack", self.deepstack)):
            if bad := [i for i in blocks if not 0 <= i < self.depth]:
                raise ValueError(f"{name} {bad} are outside of depth {self.depth}")
        if list(self.deepstack) != sorted(set(self.deepstack)):
            raise ValueError(f"deepstack {list(self.deepstack)} must be in ascending order")

    @property
    def kind(self) -> str:
        return "plain" if self.table_side else "windowed"

    @property
    def patch_size(self) -> int:
        """Pixels per side of a patch."""
        return _FIXED_VISION[self.kind]["patch_size"]

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
        for name, token in self._tokens().items():
            if not 0 <= token < self.text.vocab_size:
                raise ValueError(
                    f"{name} {token} is outside of the vocabulary of {self.text.vocab_size} rows"
                )
        if self.vision and len(self.vision.deepstack) > self.text.num_layers:
            raise ValueError(
                f"deepstack {list(self.vision.deepstack)} needs at least as many decoder layers, not "
                f"{self.text.num_layers}"
            )

    @property
    def family(self) -> str:
        """Hugging Face's model_type."""
        tower = self.vision.kind if self.vision else ""
        own = (self.text.bias, self.text.qk_norm, tower, self.text.linear is not None)
        return next(name for name, family in FAMILIES.items() if family[1:] == own)

    def _tokens(self) -> dict[str, int]:
        names = _TOKEN_NAMES + (_VISION_TOKEN_NAMES if self.vision else ())
        tokens = {name: getattr(self, name) for name in names}
        return {name: token for name, token in tokens.items() if token is not None}

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> "Config":
        """Returns the config that a config.json describes, in the published or transformers 5's layout.

        Raises:
            ValueError: a field is missing or has a value that is not supported.
        """
        family = _family(fields)
        if quantized := _section(fields, "quantization_config"):
            raise ValueError(
                f"the weights are quantised ({quantized.get('quant_method')}): give a checkpoint that is not"
            )
        # transformers 5 nests the decoder's fields; published files have them at the root. A nested field
        # overrides one at the root unless it is null.
        nested = _section(fields, "text_config")
        text = {**fields, **{k: v for k, v in nested.items() if v is not None}}
        vision, names = None, _TOKEN_NAMES
        if tower := FAMILIES[family].tower:
            of_vision = _section(fields, "vision_config")
            if FAMILIES[family].is_hybrid:
                of_vision = {"deepstack_visual_indexes": [], **of_vision}
            vision = _read_vision(of_vision, tower, _number(text, "hidden_size"))
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
        text: dict[str, Any] = {
            **{hf: getattr(self.text, ours) for ours, hf in _TEXT_NAMES.items()},
            **{name: token for name, token in self._tokens().items() if name in _TOKEN_NAMES},
            # Fields that our model does not have but transformers' classes need, with published values.
            "attention_dropout": 0.0,
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "rope_theta": self.text.rope_theta,
            "use_cache": True,
        }
        if not self.text.bias:
            # Without head_dim, transformers' Qwen3 takes 128, whatever the model's width.
            text |= {"attention_bias": False, "head_dim": self.text.head_width}
        if self.text.long_rope:
            text["rope_scaling"] = {"rope_type": "llama3", **self.text.long_rope._asdict()}
        if self.family == "llama":
            text["mlp_bias"] = False
        elif self.text.linear is not None:
            text |= self._hybrid_to_hf(self.text.linear)
        elif self.family != "qwen3_vl":
            sliding = {"sliding_window": 32768, "use_sliding_window": False}
            text |= {**sliding, "max_window_layers": self.text.num_layers}
        root: dict[str, Any] = {
            "architectures": [FAMILIES[self.family].architecture],
            "model_type": self.family,
            "tie_word_embeddings": self.tie_embeddings,
        }
        if self.vision is None:
            return root | text
        root |= {name: getattr(self, name) for name in _VISION_TOKEN_NAMES}
        root["vision_config"] = self._vision_to_hf(self.vision)
        section = list(self.text.mrope_section)
        if self.vision.kind == "windowed":
            return root | text | {"rope_scaling": {"type": "mrope", "mrope_section": section}}
        interleaved = {"mrope_interleaved": True, "mrope_section": section, "rope_type": "default"}
        if self.text.linear is not None:
            text["rope_parameters"] |= interleaved
        else:
            text["rope_scaling"] = interleaved
        return root | {"text_config": text | {"model_type": f"{self.family}_text"}}

    def _hybrid_to_hf(self, linear: LinearConfig) -> dict[str, Any]:
        before = ["linear_attention"] * (self.text.interval - 1)
        blocks = self.text.num_layers // self.text.interval
        return {
            **{hf: getattr(linear, ours) for ours, hf in _LINEAR_NAMES.items()},
            "attn_output_gate": True,
            "full_attention_interval": self.text.interval,
            "layer_types": [*before, "full_attention"] * blocks,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.text.rope_theta,
                "partial_rotary_factor": self.text.rotary_share,
            },
        }

    def _vision_to_hf(self, vision: VisionConfig) -> dict[str, Any]:
        shape = {hf: getattr(vision, ours) for ours, hf in _VISION_NAMES.items()}
        shape |= _FIXED_VISION[vision.kind]
        shape |= {"model_type": self.family, "out_hidden_size": self.text.width}
        if vision.kind == "plain":
            if self.family == "qwen3_vl":
                shape["deepstack_visual_indexes"] = list(vision.deepstack)
            return shape | {
                "in_channels": 3,
                "initializer_range": 0.02,
                "num_position_embeddings": vision.table_side**2,
            }
        return shape | {
            "fullatt_block_indexes": list(vision.full_blocks),
            "in_chans": 3,
            "spatial_patch_size": vision.patch_size,
            "tokens_per_second": 2,
        }


def _read_text(fields: Mapping[str, Any], family: str) -> TextConfig:
    if fields.get("use_sliding_window"):
        raise ValueError("use_sliding_window true is not supported: set it to false")
    if fields.get("hidden_act", "silu") != "silu":
        raise ValueError(f"text hidden_act {fields['hidden_act']!r} is not 'silu'")
    rope = _section(fields, "rope_parameters") or _section(fields, "rope_scaling")
    turns = rope if "rope_theta" in rope else fields  # no default: those of the families differ
    shape: dict[str, Any] = {
        ours: _number(fields, hf) for ours, hf in _TEXT_NAMES.items() if ours != "norm_eps"
    }
    shape["norm_eps"] = _real(fields, "rms_norm_eps", 0.1)
    shape["rope_theta"] = _real(turns, "rope_theta", 1e12)
    known = FAMILIES[family]
    shape["bias"], shape["qk_norm"] = known.bias, known.qk_norm
    if fields.get("attention_bias", known.bias) != known.bias:
        raise ValueError(f"attention_bias {fields['attention_bias']} is not that of a {family}")
    usual = shape["width"] // shape["num_heads"]
    head_width = _number(fields, "head_dim") if fields.get("head_dim") else usual
    if head_width != usual:
        if known.bias:
            raise ValueError(
                f"head_dim {head_width} must be hidden_size / num_attention_heads = {usual}"
            )
        shape["own_head_width"] = head_width
    if known.is_hybrid:
        shape |= _read_hybrid(fields, rope, shape["num_layers"])
    section: Any = (int(head_width * shape.get("rotary_share", 1)) // 2, 0, 0)
    if known.tower:
        section = _numbers(rope, "mrope_section")
        shape["interleaved"] = known.tower == "plain"
        if rope.get("mrope_interleaved", shape["interleaved"]) != shape["interleaved"]:
            actual = rope["mrope_interleaved"]
            raise ValueError(f"mrope_interleaved {actual!r} is not that of a {family}")
    if fields.get("mlp_bias"):
        raise ValueError("mlp_bias true is not supported")
    if family == "llama" and (rope.get("rope_type") or rope.get("type")) == "llama3":
        low, high = (_real(rope, f"{name}_freq_factor", 1e6) for name in ("low", "high"))
        positions = _number(rope, "original_max_position_embeddings")
        shape["long_rope"], rope = LongRope(_real(rope, "factor", 1e6), low, high, positions), {}
    # Published files name the kind `type`. transformers 5 names it `rope_type`, and M-RoPE "default".
    for kind in filter(None, (rope.get("rope_type"), rope.get("type"))):
        if kind != "default" and not (known.tower and kind == "mrope"):
            raise ValueError(
                f"rope scaling {kind!r} is not supported: only plain rotary positions are"
            )
    return TextConfig(**shape, mrope_section=section)


def _read_hybrid(
    fields: Mapping[str, Any], rope: Mapping[str, Any], num_layers: int
) -> dict[str, Any]:
    """Returns the fields of `TextConfig` that only a hybrid has."""
    if not fields.get("attn_output_gate", True):
        raise ValueError("attn_output_gate false is not supported")
    full, kinds = "full_attention", fields.get("layer_types")
    if isinstance(kinds, list) and full in kinds:  # a file may have either field, or both
        interval = kinds.index(full) + 1
    else:
        interval = _number({"full_attention_interval": 4, **fields}, "full_attention_interval")
    names = [full if (i + 1) % interval == 0 else "linear_attention" for i in range(num_layers)]
    if kinds not in (None, names):
        raise ValueError(f"layer_types {kinds!r:.80} are not equal blocks that end in {full!r}")
    share = rope.get("partial_rotary_factor", fields.get("partial_rotary_factor", 0.25))
    return {
        "linear": LinearConfig(**{ours: _number(fields, hf) for ours, hf in _LINEAR_NAMES.items()}),
        "interval": interval,
        "rotary_share": _real({"partial_rotary_factor": share}, "partial_rotary_factor", 1),
    }


def _read_vision(fields: Mapping[str, Any], tower: str, text_width: int) -> VisionConfig:
    if tower == "windowed":
        fields = {**_DEFAULTS_OF_449, **fields}
    expected = {**_FIXED_VISION[tower], "out_hidden_size": text_width}
    # Published files have in_chans, transformers' own class in_channels. A file may have neither.
    if "in_channels" in fields or "in_chans" in fields:
        channels = fields.get("in_chans", fields.get("in_channels"))
        fields, expected = {**fields, "in_chans": channels}, {**expected, "in_chans": 3}
    for name, value in expected.items():
        if (actual := fields.get(name, value)) != value:
            raise ValueError(f"vision_config {name} must be {value}, not {actual}")
    shape: dict[str, Any] = {ours: _number(fields, hf) for ours, hf in _VISION_NAMES.items()}
    if tower == "windowed":
        return VisionConfig(**shape, full_blocks=_numbers(fields, "fullatt_block_indexes"))
    rope = _section(fields, "rope_parameters")
    theta = rope.get("rope_theta", VISION_THETA)
    if rope.get("rope_type", "axial") != "axial" or theta != VISION_THETA:
        raise ValueError(
            f"vision_config rope_parameters {dict(rope)} are not axial with {VISION_THETA}"
        )
    side = math.isqrt(num := _number(fields, "num_position_embeddings"))
    if side * side != num or side < 2:
        raise ValueError(f"num_position_embeddings {num} is not the size of a square table")
    deepstack = _numbers(fields, "deepstack_visual_indexes")
    return VisionConfig(**shape, table_side=side, deepstack=deepstack)


def _family(fields: Mapping[str, Any]) -> str:
    """Returns the model_type; raises ValueError if it is not one of `FAMILIES`."""
    family = fields.get("model_type")
    named = fields.get("architectures") or [family]
    name = named[0] if isinstance(named, list) else named
    if family not in list(FAMILIES) or name not in (FAMILIES[family].architecture, family):
        raise ValueError(
            f"config.json describes {name!r} (model_type {family!r}); supported are "
            + ", ".join(f"{x.architecture!r} ({kind!r})" for kind, x in FAMILIES.items())
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
        raise ValueError(f"{name} {values!r:.80} is not a list")
    return tuple(_whole(name, value, 0) for value in values)


def _whole(name: str, value: Any, at_least: int) -> int:
    most = _MOST.get(name, _MOST_ELSE)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not at_least <= value <= most:
        raise ValueError(f"{name} {value!r:.80} is not a whole number in {at_least} .. {most:,}")
    return value


def _real(fields: Mapping[str, Any], name: str, most: float) -> float:
    value = _field(fields, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ValueError(f"{name} {value!r:.80} is not a number above 0 and up to {most}")
    return float(value)


def _divides(small_name: str, small: int, large_name: str, large: int) -> None:
    if small < 1 or large % small:
        raise ValueError(f"{large_name} {large} must be a multiple of {small_name} {small}")
