"""VADE + GSPO on Qwen3.5-2B, one GPU of 80 GB with `:single,bf16`. See configs/qwen.py."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "Qwen/Qwen3.5-2B", loss="gspo")
