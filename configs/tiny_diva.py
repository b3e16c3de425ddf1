r"""DIVA-GRPO on the tiny job: 16 problems a step, each with a variant. See configs/tiny.py.

    python -m experiments.train --config=configs/tiny_diva.py --workdir=runs/tiny_diva
    python -m experiments.sweep --config=configs/tiny_diva.py:arms --workdir=runs/diva \
        --config.seeds=0,1,2,3,4

Runs on 2 CPU cores, like configs/tiny_gspo.py. `arms` makes the comparison of DIVA's paper: the arm `grpo`
has the same 16 problems a step and the same total of answers, but no variants. docs/arenas/appendix.md has
the results over five seeds.

`--config.selector.options.num_variants=3` is the paper's other number of variants, with 8 problems a step.
The lessons of a sweep have neither variants nor other wordings. A selector named after the colon replaces
DIVA's, and with it the variants and the advantages.
"""

from configs import arms, tiny


def get_config(arg=None):
    """Returns the config, or a sweep if `arg` has the word `arms`; the other words are as in configs/tiny.py.

    Raises:
        ValueError: a word is unknown, or a selector is named together with `arms`.
    """
    run = tiny.base(arg, "diva", arms=False)
    run.loss.kl_coef = 0.0
    run.data.max_prompt_length = 160  # fits all hints, whose words mostly take several tokens
    run.data.length_multiple = 40
    if "arms" not in (arg or "").split(","):
        return run
    if run.selector.name != "diva":
        raise ValueError(f"config argument {arg!r}: name no selector, --config.arms says which")
    return arms.make(
        run,
        "diva",
        arms={"grpo": _grpo, "diva": arms.nothing},
        chosen="grpo,diva",
        losses={"grpo": arms.nothing},
        baseline="grpo",
        lessons=tiny.taught(run),
    )


def _grpo(c):
    """Changes a run to as many answers to as many problems, without variants."""
    slots = 1 + c.selector.options.num_variants  # a problem and its variants
    arms.selector("uniform")(c)
    c.num_prompts //= slots
    c.num_rollouts *= slots
    for name in ("prompts_per_minibatch", "prompts_per_microbatch"):
        c.batch[name] = max(c.batch[name] // slots, 1)
    c.engine.prompts_per_call = max(c.engine.prompts_per_call // slots, 1)
