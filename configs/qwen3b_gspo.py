"""VADE + GSPO on Qwen2.5-VL-3B-Instruct as in Table 4: see configs/qwen.py. Not run yet."""

import functools

from configs import default, qwen

get_config = functools.partial(qwen.base, size="3b", loss=default.gspo)
