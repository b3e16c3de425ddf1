"""VADE + GSPO on Qwen3.5-9B, 4 GPUs of 80 GB with `:bf16`. See configs/qwen.py."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "Qwen/Qwen3.5-9B", loss="gspo")
