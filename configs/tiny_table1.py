r"""Table 1 of VADE (arXiv 2511.18902) on the tiny job: the selectors under two losses, over seeds.

    python -m experiments.sweep --config=configs/tiny_table1.py --workdir=runs/table1 --parallel=2

A run takes one and a half to two minutes on one quiet CPU core, DAPO's twice that; what five seeds
brought is in docs/tiny_job.md. Fewer of everything: `--config.arms=vanilla,vade --config.losses=gspo
--config.seeds=0,1 --config.data=clean,wrong10` (wrong10: a tenth of the training golds is wrong). What
all runs share: `--config.run.num_steps=100`. Argument: `smoke` (for tests). Arms:

vanilla, dapo, vade, vade_dapo: the paper's rows; DAPO is dynamic sampling, around either selector, with
    full batches while three times the others' rollouts last
dapo_three_rounds: at most three rounds a step instead, and part batches
vade_measured: the paper's warm-up, a pass over all prompts; `vade` has none here
vade_p1mp, vade_greedy, vade_last_update: its ablations, Table 2; configs/ablations.py has more
remind_vade: a queue of mastered prompts around VADE; `remind` is around vanilla, as its paper's
kalman, mopps, greso, sec, ...: every other selector there is, with the options of its paper
"""

from configs import arguments, sweeps, tiny

ABLATED = ("vade_p1mp", "vade_greedy", "vade_last_update")


def get_config(arg=None):
    """Returns the sweep."""
    args = arguments.parse(arg, smoke=False)
    run = tiny.base("smoke" if args.smoke else None)
    rivals, variants = sweeps.rivals(run), sweeps.variants(run)
    arms = [*rivals, *ABLATED]
    return sweeps.make(
        run,
        "table1",
        arms=rivals | variants,
        chosen=",".join(arms),
        losses={name: sweeps.changes(run, put) for name, put in sweeps.LOSSES.items()},
        baseline="vanilla",
    )
