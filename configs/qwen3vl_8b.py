"""VADE + GSPO on Qwen3-VL-8B-Instruct, 4 GPUs of 80 GB with `:bf16`. See configs/qwen.py."""

import functools

from configs import qwen

get_config = functools.partial(qwen.of_qwen3vl, size="qwen3vl-8b")
