"""VADE + GSPO on Qwen3.5-2B with the values of Table 4: see configs/qwen.py. Not run yet."""

from configs import qwen

get_config = lambda arg=None: qwen.base(arg, "Qwen/Qwen3.5-2B", loss="gspo")
