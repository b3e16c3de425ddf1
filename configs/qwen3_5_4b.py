"""VADE + GSPO on Qwen3.5-4B, one GPU of 80 GB with `:single,lora`. See configs/qwen.py."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "Qwen/Qwen3.5-4B", loss="gspo")
