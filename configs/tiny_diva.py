"""DIVA-GRPO on the tiny job: 16 problems a step, each with a variant. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_diva.py --workdir=runs/tiny_diva

Runs on 2 CPU cores, as configs/tiny_gspo.py does; its score has not been measured over seeds.

`variants=3` is the paper's other number: 8 problems a step. The warm start sees neither variants nor
other words. A selector named behind the colon replaces DIVA's, and then its variants and advantages.
"""

from configs import arguments, default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py, but the selector is diva by default."""
    c = tiny.base(arg, "diva", variants=1)
    default.grpo(c)
    c.loss.kl_coef = 0.0
    c.data.max_prompt_length = 160  # all hints fit; few of their words are tokens
    c.data.length_multiple = 40
    if c.sampler.name == "diva":
        c.sampler.options.num_variants = arguments.of_run(arg, variants=1).variants
    return c
