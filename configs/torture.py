"""A job for `python -m experiments.torture`: the tiny job at its smallest, of which every step learns.

    python -m experiments.torture --config=configs/torture.py --kills=100 --workdir=runs/torture

Arguments: `selector=dapo`, `seed=3`.
"""

from configs import arguments, tiny_gspo


def get_config(arg=None):
    """Returns the config; `arg` as above."""
    args = arguments.parse(arg, selector="vade", seed=0)
    c = tiny_gspo.get_config(f"smoke,selector={args.selector},seed={args.seed}")
    c.num_steps = 3  # the first save, one that drops none before it, and one that does
    # A policy that knows nothing gets some of its answers right.
    c.reward.function = "experiments.torture.reward:odd"
    # Few programs to compile.
    c.data.length_multiple = 128
    c.batch.prompts_per_microbatch = 4
    c.batch.remat = False
    c.eval.every = 3
    c.eval.num_samples = 1
    return c
