"""A job for `python -m experiments.torture`: the smallest tiny job in which every step learns.

    python -m experiments.torture --config=configs/torture.py --kills=100 --workdir=runs/torture

Arguments: `selector=dapo`, `seed=3`.
"""

from configs import arguments, tiny_gspo


def get_config(arg=None):
    """Returns the config; `arg` is as above."""
    args = arguments.parse(arg, selector="vade", seed=0)
    c = tiny_gspo.get_config(f"smoke,selector={args.selector},seed={args.seed}")
    c.num_steps = 3  # three saves: the first, one that deletes no older save, and one that does
    # Even a policy that knows nothing gets some of its answers right.
    c.reward.function = "experiments.torture.reward:odd"
    # These sizes leave few programs to compile.
    c.data.length_multiple = 128
    c.batch.prompts_per_microbatch = 4
    c.eval.every = 3
    c.eval.num_samples = 1
    return c
