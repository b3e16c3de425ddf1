"""DIVA-GRPO on the tiny job: 16 problems a step, each with a variant. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_diva.py --workdir=runs/tiny_diva

Runs on 2 CPU cores, as configs/tiny_gspo.py does; its score has not been measured over seeds.

`variants=3` is the paper's other number: 8 problems a step. The warm start sees neither variants nor
other words. A selector named behind the colon replaces DIVA's, and then its variants and advantages.
"""

from configs import arguments, default, tiny


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py, but the selector is diva by default."""
    args = arguments.of_run(arg, variants=1)
    words = [word for word in (arg or "").split(",") if "variants=" not in word]
    c = tiny.base(",".join(words))
    default.grpo(c)
    c.loss.kl_coef = 0.0
    c.data.max_prompt_length = 160  # all hints fit; few of their words are tokens
    c.data.length_multiple = 40
    if not (args.vade or args.uniform or "selector=" in (arg or "")):
        default.selector(c, "diva")
    if c.sampler.name == "diva" and args.variants != 1:
        c.sampler.options.num_variants = args.variants
    return c
