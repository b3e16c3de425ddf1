"""VADE + GSPO on the tiny job: 100 steps of 32 prompts with 8 answers each, on a laptop CPU.

    python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

The model, data and sizes are in configs/tiny.py, the loss is `settings.GSPO`. How much this config gains
has not been measured over several seeds.
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py."""
    return tiny.base(arg, loss=default.gspo)
