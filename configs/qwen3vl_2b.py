"""VADE + GSPO on Qwen3-VL-2B-Instruct, one GPU of 80 GB with `:single,bf16`. See configs/qwen.py."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "qwen3vl-2b", loss="gspo")
