"""What can be wrong with an evaluation's config, found before a file is read."""

import operator

from ml_collections import ConfigDict

from vade_jax.evals import report
from vade_jax.evals.benchmarks import base

POLICIES = {  # flag: field of the config
    "--checkpoint": "model.checkpoint",
    "--server": "server.url",
    "--answers": "answers",
}
LEAST = {  # field: its least value
    "seed": 0,
    "num_items": 0,
    "chunk": 1,
    "sampling.temperature": 0.0,
    "sampling.top_k": 0,
    "sampling.num_samples": 0,
    "sampling.max_tokens": 0,
    "data.min_pixels": 1568,
    "server.timeout_s": 0.001,
    "judge.timeout_s": 0.001,
}


def config(c: ConfigDict) -> None:
    """Checks that one policy is given, and names and ranges.

    Raises:
      ValueError: names the field, its value and the fix.
    """
    named = [flag for flag, field in POLICIES.items() if operator.attrgetter(field)(c)]
    if len(named) != 1:
        raise ValueError(
            f"{' and '.join(named) or 'no policy'} given: give exactly one of "
            f"{', '.join(POLICIES)}"
        )
    base.check_profile(c.profile)
    if c.size and c.size not in report.PAPER:
        raise ValueError(f"size={c.size!r}: one of {', '.join(report.PAPER)}, or empty")
    for name, least in LEAST.items():
        value = operator.attrgetter(name)(c)
        if not value >= least:  # NaN is not
            raise ValueError(f"{name}={value}: must be at least {least}")
    if not 0 < c.sampling.top_p <= 1:
        raise ValueError(f"sampling.top_p={c.sampling.top_p}: must be in (0, 1]")
    if c.data.min_pixels > c.data.max_pixels:
        raise ValueError(
            f"data.min_pixels={c.data.min_pixels} is larger than data.max_pixels="
            f"{c.data.max_pixels}"
        )
