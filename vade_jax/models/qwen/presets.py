"""The published models by name, and tiny ones of each family for tests and examples."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vade_jax.models.qwen.config import Config, LongRope, TextConfig, VisionConfig


def _text_model(
    *sizes: int,
    vocab_size: int = 151936,
    tie_embeddings: bool = True,
    own_head_width: int = 0,
    tokens: Mapping[str, int] = {},
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
    return Config(text, None, tie_embeddings, **tokens)


def _vision_model(of_text: Config, vision: VisionConfig, **text: Any) -> Config:
    """Returns a published vision-language model: a text model with a tower, and with M-RoPE."""
    return dataclasses.replace(
        of_text, text=dataclasses.replace(of_text.text, **text), vision=vision
    )


def _tiny_text_model(**text: Any) -> Config:
    """Returns a text model with the sizes and token ids of "tiny"."""
    return Config(
        dataclasses.replace(TINY.text, **text),
        None,
        TINY.tie_embeddings,
        bos_token_id=TINY.bos_token_id,
        eos_token_id=TINY.eos_token_id,
    )


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
# Qwen2.5-VL has this tower in the 3B and 7B, and wider MLPs from the 32B on; Qwen3-VL has one for the 2B and
# 4B and one from the 8B on.
_TOWER25 = VisionConfig(
    depth=32, width=1280, num_heads=16, mlp_width=3420, full_blocks=(7, 15, 23, 31)
)
_TOWER25_LARGE = dataclasses.replace(_TOWER25, mlp_width=3456)
_TOWER3_SMALL = VisionConfig(
    depth=24, width=1024, num_heads=16, mlp_width=4096, table_side=48, deepstack=(5, 11, 17)
)
_TOWER3_LARGE = VisionConfig(
    depth=27, width=1152, num_heads=16, mlp_width=4304, table_side=48, deepstack=(8, 16, 24)
)
# What the text models of a family share, as their config.json has it.
_QWEN: dict[str, Any] = {"tokens": {"bos_token_id": 151643, "eos_token_id": 151645}}
_QWEN25: dict[str, Any] = {"max_positions": 32768, **_QWEN}
_QWEN25_LARGE: dict[str, Any] = {"vocab_size": 152064, "tie_embeddings": False, **_QWEN25}
_LLAMA: dict[str, Any] = {"bias": False, "norm_eps": 1e-5}
_SMOLLM2: dict[str, Any] = {
    "vocab_size": 49152,
    "rope_theta": 1e5,
    "max_positions": 8192,
    "tokens": {"bos_token_id": 1, "eos_token_id": 2},
    **_LLAMA,
}
_LLAMA31: dict[str, Any] = {
    "vocab_size": 128256,
    "rope_theta": 5e5,
    "max_positions": 131072,
    "tokens": {"bos_token_id": 128000, "eos_token_id": 128009},
    **_LLAMA,
}
_LLAMA32: dict[str, Any] = {"long_rope": LongRope(32.0, 1.0, 4.0, 8192), **_LLAMA31}
_QWEN3_HEADS: dict[str, Any] = {"bias": False, "qk_norm": True}
_QWEN3: dict[str, Any] = {"max_positions": 40960, **_QWEN3_HEADS, **_QWEN}
_QWEN3_LARGE: dict[str, Any] = {"tie_embeddings": False, **_QWEN3}
PRESETS = {
    "tiny": TINY,
    "tiny_reader": TINY,  # its trained weights are part of the package: models/qwen/tiny_checkpoint.py
    "tiny_6m": dataclasses.replace(
        TINY,
        text=dataclasses.replace(TINY.text, width=256, num_layers=6, num_heads=8, mlp_width=704),
        vision=VisionConfig(depth=4, width=160, num_heads=5, mlp_width=432, full_blocks=(1, 3)),
    ),
    "tiny_qwen2.5": _tiny_text_model(mrope_section=(16, 0, 0)),
    "tiny_qwen3": _tiny_text_model(mrope_section=(32, 0, 0), own_head_width=64, **_QWEN3_HEADS),
    "tiny_llama": _tiny_text_model(mrope_section=(16, 0, 0), rope_theta=1e5, **_LLAMA),
    "tiny_qwen3vl": dataclasses.replace(
        TINY,
        text=dataclasses.replace(
            TINY.text, mrope_section=(6, 5, 5), interleaved=True, rope_theta=5e6, **_QWEN3_HEADS
        ),
        vision=VisionConfig(
            depth=4, width=96, num_heads=3, mlp_width=256, table_side=8, deepstack=(0, 1, 2)
        ),
    ),
}
# Width, layers, heads, key/value heads, MLP width.
_TEXT = {
    "qwen2.5-0.5b": _text_model(896, 24, 14, 2, 4864, **_QWEN25),
    "qwen2.5-1.5b": _text_model(1536, 28, 12, 2, 8960, **_QWEN25),
    "qwen2.5-3b": _text_model(2048, 36, 16, 2, 11008, **_QWEN25),
    "qwen2.5-7b": _text_model(3584, 28, 28, 4, 18944, **_QWEN25_LARGE),
    "qwen2.5-14b": _text_model(5120, 48, 40, 8, 13824, **_QWEN25_LARGE),
    "qwen2.5-32b": _text_model(5120, 64, 40, 8, 27648, **_QWEN25_LARGE),
    "qwen2.5-72b": _text_model(8192, 80, 64, 8, 29568, **_QWEN25_LARGE),
    "qwen3-0.6b": _text_model(1024, 28, 16, 8, 3072, own_head_width=128, **_QWEN3),
    "qwen3-1.7b": _text_model(2048, 28, 16, 8, 6144, **_QWEN3),
    "qwen3-4b": _text_model(2560, 36, 32, 8, 9728, own_head_width=128, **_QWEN3),
    "qwen3-8b": _text_model(4096, 36, 32, 8, 12288, **_QWEN3_LARGE),
    "qwen3-14b": _text_model(5120, 40, 40, 8, 17408, **_QWEN3_LARGE),
    "qwen3-32b": _text_model(5120, 64, 64, 8, 25600, own_head_width=128, **_QWEN3_LARGE),
    "smollm2-135m": _text_model(576, 30, 9, 3, 1536, **_SMOLLM2),
    "llama3.2-1b": _text_model(2048, 16, 32, 8, 8192, **_LLAMA32),
    "llama3.2-3b": _text_model(3072, 28, 24, 8, 8192, **_LLAMA32),
    "llama3.1-8b": _text_model(
        *(4096, 32, 32, 8, 14336),
        tie_embeddings=False,
        long_rope=LongRope(8.0, 1.0, 4.0, 8192),
        **_LLAMA31,
    ),
}
_MROPE25: dict[str, Any] = {"mrope_section": (16, 24, 24), "max_positions": 128000}
_MROPE3: dict[str, Any] = {
    "mrope_section": (24, 20, 20),
    "interleaved": True,
    "rope_theta": 5e6,
    "max_positions": 262144,
}
PRESETS |= {
    "3b": _vision_model(_TEXT["qwen2.5-3b"], _TOWER25, **_MROPE25),
    "7b": _vision_model(_TEXT["qwen2.5-7b"], _TOWER25, **_MROPE25),
    "32b": _vision_model(_TEXT["qwen2.5-32b"], _TOWER25_LARGE, **_MROPE25),
    "72b": _vision_model(_TEXT["qwen2.5-72b"], _TOWER25_LARGE, **_MROPE25),
    "qwen3vl-2b": _vision_model(_TEXT["qwen3-1.7b"], _TOWER3_SMALL, **_MROPE3),
    "qwen3vl-4b": _vision_model(_TEXT["qwen3-4b"], _TOWER3_SMALL, **_MROPE3),
    "qwen3vl-8b": _vision_model(_TEXT["qwen3-8b"], _TOWER3_LARGE, **_MROPE3),
    "qwen3vl-32b": _vision_model(_TEXT["qwen3-32b"], _TOWER3_LARGE, **_MROPE3),
    **_TEXT,
}
