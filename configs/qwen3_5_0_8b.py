"""VADE + GSPO on Qwen3.5-0.8B, one GPU of 24 GB with `:single,bf16,lora`. See configs/qwen.py."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "Qwen/Qwen3.5-0.8B", loss="gspo")
