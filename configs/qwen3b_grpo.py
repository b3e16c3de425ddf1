"""VADE + GRPO on Qwen2.5-VL-3B-Instruct as in Table 4: see configs/qwen.py. Not run yet."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, size="3b", loss="grpo")
