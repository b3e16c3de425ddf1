"""VADE + GSPO on Qwen3-VL-8B-Instruct, 4 GPUs of 80 GB with `:bf16`. See configs/qwen.py."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "qwen3vl-8b", loss="gspo")
