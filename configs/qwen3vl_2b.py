"""VADE + GSPO on Qwen3-VL-2B-Instruct, one GPU of 80 GB with `:single,bf16`. See configs/qwen.py."""

import functools

from configs import qwen

get_config = functools.partial(qwen.of_qwen3vl, size="qwen3vl-2b")
