"""DAPO on the tiny job, its filter of groups and its loss. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_dapo.py --workdir=runs/tiny_dapo

Up to three times the rollouts of configs/tiny_gspo.py, and about twice its time. A selector named behind
the colon replaces the filter: `tiny_dapo.py:vade` is VADE with DAPO's loss.
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py, but the selector is dapo by default."""
    c = tiny.base(arg, "dapo")
    default.dapo(c)
    return c
