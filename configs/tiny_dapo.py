"""DAPO on the tiny job, with its filter of groups and its loss. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_dapo.py --workdir=runs/tiny_dapo

Takes up to three times the rollouts of configs/tiny_gspo.py, and about twice its time. A selector named
after the colon replaces the filter: `tiny_dapo.py:vade` is VADE with DAPO's loss.
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; `arg` is as in configs/tiny.py, but the default selector is dapo."""
    return tiny.base(arg, "dapo", loss=default.dapo)
