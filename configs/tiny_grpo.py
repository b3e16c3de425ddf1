"""VADE + GRPO on the tiny job, on a laptop CPU: see configs/tiny.py."""

import functools

from configs import default, tiny

get_config = functools.partial(tiny.base, loss=default.grpo)
