"""VADE + GSPO on the tiny job, on a laptop. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

Its score has not been measured over seeds.
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py."""
    c = tiny.base(arg)
    default.gspo(c)
    return c
