r"""Arenas: sweeps on the tiny model that can tell selectors apart, and the controls that show it.

    python -m experiments.sweep --config=configs/arena.py:frontier --workdir=runs/frontier \
        --parallel=2 --config.seeds=0,1,2,3,4,5,6,7

By default the controls run: `vanilla` (uniform), `dose` (uniform with three times the prompts a step) and
`oracle` (told the pass rate of every kind of prompt, see samplers/strata.py). What they have to show is in
vade_jax/report/controls.py; their table is beside the others, in {workdir}/arena/controls.md.
`--config.arms=vanilla,vade,kalman,...` compares selectors, every arm of configs/tiny_table1.py; `vade@5e-5`
is VADE at that learning rate. `--config.losses=grpo` takes GRPO in GSPO's place, `dapo` and `dr_grpo` theirs.

The first word names the arena:

frontier: solved, hopeless and learnable prompts; of the last about one answer in four is right at first
ladder: a letter of one color, then of two, then of three: each can be learned once the one below it is
digits: as frontier, with real handwriting: read it, or find a letter of the digit's name

What their controls showed is in docs/arenas.md, what came of them in docs/results.md.

More words: `grid` for both decays of VADE (Eq. 5 and 6), four values each, in place of the controls;
`prompts=32` a step, `rollouts=4` answers a prompt, `pool=4096` prompts in all, `steps=200`,
`model=tiny_6m`; or else `smoke` (for tests), with sizes of its own.
"""

from ml_collections import ConfigDict

from configs import arguments, sweeps, tiny
from vade_jax.report import controls

DOSE = 3  # times the prompts a step

# How often the teacher gives the answer of another item of the same family and level, where right answers are
# to be rare at first. It is often the same answer: 0.66 to 0.76 of Frontier's letters are then wrong.
SHY = 0.9
ARENAS = {
    "frontier": {
        "mixture": dict(
            color_0=35, hidden_0=20, letter_0=12, letter_1=11, letter_2=11, letter_3=11
        ),
        "taught": dict(color_0=57, hidden_0=3, letter_0=10, letter_1=10, letter_2=10, letter_3=10),
        "noise": dict.fromkeys(("letter_0", "letter_1", "letter_2", "letter_3"), SHY),
        "warm_start": 500,
        "steps": 60,
    },
    "ladder": {
        "mixture": dict(
            color_0=28, color_1=6, hidden_0=20, letter_0=8, initials_0=34, initials_1=4
        ),
        "taught": dict(
            color_0=35, color_1=22, hidden_0=3, letter_0=14, initials_0=13, initials_1=13
        ),
        "noise": dict.fromkeys(("letter_0", "initials_0", "initials_1"), SHY),
        "warm_start": 500,
        "steps": 80,  # at 60 the second rung has hardly begun
    },
    "digits": {
        "mixture": dict(read_0=35, hidden_0=20, spell_0=18, spell_1=9, spell_2=18),
        "taught": dict(read_0=57, hidden_0=3, spell_0=15, spell_1=10, spell_2=15),
        # With more noise the letters that many digits share are likelier than the right ones. At 0.8
        # the teacher is wrong in 0.59 to 0.72 of the answers.
        "noise": dict.fromkeys(("spell_0", "spell_1", "spell_2"), 0.8),
        "warm_start": 500,
        "steps": 60,
    },
}


def get_config(arg=None):
    """Returns the sweep of an arena.

    Raises:
        ValueError: the arena or a word is unknown, or there are sizes beside `smoke`.
    """
    name, _, words = (arg or "").partition(",")
    if name not in ARENAS:
        raise ValueError(f"config argument {name!r}: give an arena, one of {', '.join(ARENAS)}")
    sizes = dict(prompts=16, pool=256, rollouts=8, steps=ARENAS[name]["steps"], model="tiny")
    args = arguments.parse(words, smoke=False, grid=False, **sizes)
    _, given = arguments.without(arguments.without(words, "grid")[1], "smoke")
    if args.smoke and given:
        raise ValueError(f"config argument {arg!r}: smoke has sizes of its own, leave out {given}")
    run = tiny.base("smoke" if args.smoke else None)
    if not args.smoke:
        _put(run, ARENAS[name], args)
    dose = {
        "num_prompts": DOSE * run.num_prompts,
        "batch": {
            "prompts_per_minibatch": DOSE * run.batch.prompts_per_minibatch,
            "prompts_per_microbatch": DOSE * run.batch.prompts_per_microbatch,
        },
    }
    rivals, grid = sweeps.rivals(run), sweeps.decay_grid(run)
    arms = {
        **rivals,
        **sweeps.variants(run),
        **grid,
        # Told nothing of families and levels: all items in one category.
        "pooled_blind": {"sampler": {**rivals["pooled"]["sampler"], "arrays": {}}},
        controls.DOSE: rivals["vanilla"] | dose,
        controls.ORACLE: sweeps.selector(run, "strata"),
    }
    c = sweeps.make(
        run,
        "arena",
        arms=arms,
        chosen=",".join(["vanilla", *(grid if args.grid else (controls.DOSE, controls.ORACLE))]),
        losses={name: sweeps.changes(run, put) for name, put in sweeps.PPO_STYLE.items()},
        baseline="vanilla",
    )
    c.losses = "gspo"
    return c


def _put(run, arena, args):
    """Puts an arena into a config of the tiny job."""
    run.num_prompts, run.num_steps, run.num_rollouts = args.prompts, args.steps, args.rollouts
    run.batch.prompts_per_minibatch = run.batch.prompts_per_microbatch = run.num_prompts // 4
    run.model.preset = args.model
    run.data.mixture = ConfigDict(arena["mixture"])
    run.data.num_train = args.pool
    run.warm_start.mixture = ConfigDict(arena["taught"])
    run.warm_start.noise = ConfigDict(arena["noise"])
    run.warm_start.num_steps = arena["warm_start"]
    # The same questions for all arms; fewer validations pay for more of them.
    run.data.num_validation, run.eval.num_samples, run.eval.every = 1024, 4, 20
    run.checkpoint.every = 30
    # With a constant rate two runs of one seed ended up to 0.08 apart; with this one their curves settle.
    run.optimizer.learning_rate, run.optimizer.decay_steps = 2e-4, 4 * run.num_steps
