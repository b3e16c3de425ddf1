"""VADE + GSPO on Qwen3-VL-4B-Instruct, one GPU of 80 GB with `:single,lora`. See configs/qwen.py."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "qwen3vl-4b", loss="gspo")
