"""What can be wrong with a server's config, found before weights are read."""

import math
import operator

from ml_collections import ConfigDict

RANGES = {  # field: its least and its greatest value
    "port": (0, 65535),
    "sampling.temperature": (0, 2),
    "sampling.top_p": (0, 1),
    "sampling.top_k": (0, math.inf),
    "sampling.max_tokens": (1, math.inf),
    "limits.max_tokens": (1, math.inf),
    "limits.body_mb": (0.001, math.inf),
    "limits.image_megapixels": (0.001, math.inf),
    "limits.timeout_s": (0.001, math.inf),
    "window_ms": (0, 1000),
    "programs": (1, math.inf),
    "engine.prompts_per_call": (1, math.inf),
}


def config(c: ConfigDict) -> None:
    """Checks what is of the server alone.

    Raises:
      ValueError: names the field, its value and the fix.
    """
    if "limits" not in c:
        raise ValueError("--config is not a server's: use configs/serve.py, or none")
    if not c.model.checkpoint:
        raise ValueError(
            "no policy given: --checkpoint=DIR of a run or a Hugging Face directory"
        )
    for name, (least, greatest) in RANGES.items():
        value = operator.attrgetter(name)(c)
        if not least <= value <= greatest:  # NaN is not
            raise ValueError(f"{name}={value}: must be in {least} .. {greatest}")
    if c.sampling.max_tokens > c.limits.max_tokens:
        raise ValueError(
            f"sampling.max_tokens={c.sampling.max_tokens} is more than limits.max_tokens="
            f"{c.limits.max_tokens}: lower it or raise the limit"
        )
