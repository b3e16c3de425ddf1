"""VADE + GRPO on the tiny job, on a laptop. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_grpo.py --workdir=runs/tiny_grpo

Its score has not been measured over seeds.
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py."""
    c = tiny.base(arg)
    default.grpo(c)
    return c
