"""VADE + GSPO on the tiny job: about three minutes on 2 CPU cores. See configs/tiny.py.

python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py."""
    c = tiny.base(arg)
    default.gspo(c)
    return c
