r"""DIVA-GRPO on the tiny job: 16 problems a step, each with a variant. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_diva.py --workdir=runs/tiny_diva
    python -m experiments.sweep --config=configs/tiny_diva.py:arms --workdir=runs/diva \
        --config.seeds=0,1,2,3,4

Runs on 2 CPU cores, as configs/tiny_gspo.py does. `arms` is the comparison of its paper: `grpo` has the
same 16 problems a step, without variants and with as many answers in all. What came out over five seeds
is in docs/tiny_job.md.

`variants=3` is the paper's other number: 8 problems a step. The warm start sees neither variants nor
other words. A selector named behind the colon replaces DIVA's, and then its variants and advantages.
"""

from configs import arguments, arms, default, tiny


def get_config(arg=None):
    """Returns the config, or with the word `arms` a sweep; the rest of `arg` as in configs/tiny.py.

    Raises:
        ValueError: an unknown word, a selector beside `arms`, or `variants` beside a selector that is not
            DIVA's.
    """
    is_sweep, words = arguments.without(arg, "arms")
    run = _run(words)
    if not is_sweep:
        return run
    if run.selector.name != "diva":
        raise ValueError(f"config argument {arg!r}: name no selector, --config.arms says which")
    tiny.taught(run)
    slots = 1 + run.selector.options.num_variants  # of a problem and its variants
    smaller = {
        name: max(run.batch[name] // slots, 1) for name in run.batch if name.startswith("prompts_")
    }
    grpo = arms.selector(run, "uniform") | {
        "num_prompts": run.num_prompts // slots,
        "num_rollouts": run.num_rollouts * slots,
        "batch": smaller,
        "engine": {"prompts_per_call": max(run.engine.prompts_per_call // slots, 1)},
    }
    known = {"grpo": grpo, "diva": {}}
    chosen = ",".join(known)
    return arms.make(run, "diva", arms=known, chosen=chosen, losses={"grpo": {}}, baseline="grpo")


def _run(arg):
    c = tiny.base(arg, "diva", variants=1)
    default.grpo(c)
    c.loss.kl_coef = 0.0
    c.data.max_prompt_length = 160  # all hints fit; few of their words are tokens
    c.data.length_multiple = 40
    if c.selector.name == "diva":
        c.selector.options.num_variants = arguments.of_run(arg, variants=1).variants
    elif "variants=" in (arg or ""):
        raise ValueError(
            f"config argument {arg!r}: the selector {c.selector.name} makes no variants"
        )
    return c
