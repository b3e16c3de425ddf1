"""VADE + GSPO on Qwen2.5-VL-7B-Instruct as in Table 4: see configs/qwen.py. Not run yet."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, size="7b", loss="gspo")
