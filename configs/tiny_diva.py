"""DIVA-GRPO on the tiny job: 16 problems a step, each with a variant. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_diva.py --workdir=runs/tiny_diva

`--config.selector.options.num_variants=3` is the paper's other number of variants, with 8 problems a step. A
selector named after the colon replaces DIVA's, and with it the variants and the advantages.
"""

from configs import tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py."""
    c = tiny.base(arg, "diva")
    c.loss.kl_coef = 0.0
    c.data.max_prompt_length = 160  # fits all hints, whose words mostly take several tokens
    c.data.length_multiple = 40
    return c
