"""VADE + GRPO on Qwen2.5-VL-7B-Instruct as in Table 4: see configs/qwen.py. Not run yet."""

import functools

from configs import default, qwen

get_config = functools.partial(qwen.base, size="7b", loss=default.grpo)
