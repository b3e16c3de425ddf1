"""VADE + GSPO on the tiny job: about ten minutes on 2 CPU cores. See configs/tiny.py.

python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py."""
    c = tiny.base(arg)
    default.gspo(c)
    # The paper's bounds suit steps of 1e-6; a tiny model moves a hundred times further.
    c.loss.clip_low, c.loss.clip_high = 0.2, 0.2
    return c
