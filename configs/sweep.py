r"""Sweeps: runs of one job that vary selector, loss, data and seed, then tables and figures over seeds.

    python -m experiments.sweep --config=configs/sweep.py --workdir=runs/table1 --parallel=2
    python -m experiments.sweep --config=configs/sweep.py:frontier --workdir=runs/frontier \
        --parallel=2 --config.seeds=0,1,2,3,4,5,6,7
    python -m experiments.sweep --config=configs/sweep.py:base=configs/tiny_grpo.py --workdir=runs/ablations

Words after the colon name the job that all runs share:

(none)     the tiny job; a run takes about two minutes on one quiet CPU core, DAPO's run twice that
frontier, ladder, digits, lengths, easy_vqa, smollm: the arenas of docs/arenas.md
base=FILE  any config of a run with VADE, and its loss. This word comes last: FILE's arguments follow after
           another colon, as in base=configs/qwen7b_gspo.py:split

and what the runs vary:

selectors  for the tiny job: Table 1 of VADE (arXiv 2511.18902), all selectors, with GSPO and GRPO
controls   for an arena: `uniform`, `dose` (three times the prompts), `oracle` (told the pass rate of every
           kind of prompt), `stability` (other rounding); experiments/arenas/controls.py explains them
ablations  for a base: Table 2 and more, VADE with one option changed; a variant that changes nothing is left
           out
decays     both decays of Eq. 5 and 6, four values each: 16 arms

More words: `smoke` (for tests); for an arena `updates=8` of the policy a step, `prompts=32` and `steps=200`.

To choose others: `--config.arms=uniform,kalman,vade@5e-5` (VADE at that learning rate),
`--config.losses=grpo,dr_grpo`, `--config.seeds=0,1`, `--config.data=clean,wrong10` (a tenth of the training
golds is wrong). To change what all runs share: `--config.run.num_steps=100`, and what is taught before, once
a seed: `--config.lessons.num_steps=0` is nothing. The arms are all selectors, with their papers' options,
and:

vade_dapo: DAPO around VADE. DAPO refills until it has used three times the rollouts of the others;
    dapo_three_rounds has at most three rounds a step, after which a batch may stay incomplete
vade_measured: VADE with the paper's warm-up, a pass over all prompts; in the tiny job and its arenas `vade`
    has no warm-up
vade_p1p, vade_greedy, vade_last_update, ...: VADE's ablations
remind_vade: a queue of mastered prompts around VADE; `remind` puts it around uniform, as its paper does
decay_500_999: VADE that keeps 0.5 of a visited prompt's counts and 0.999 of the other prompts' counts
"""

from ml_collections import ConfigDict

from configs import arenas, arguments, arms, tiny
from experiments.arenas import controls
from experiments.warm_start import Lessons
from vade_jax import imports

KINDS = ("selectors", "controls", "ablations", "decays")
ABLATED = ("vade_p1p", "vade_greedy", "vade_last_update")  # the ablations of Table 2


def get_config(arg=None):
    """Returns the sweep that the words of `arg` name.

    Raises:
        ValueError: a word is unknown or contradicts another, or the base is not a run with VADE.
    """
    arena, base, args = _words(arg)
    usual = "controls" if arena else "selectors" if base is None else "ablations"
    kind = next((kind for kind in KINDS if args[kind]), usual)
    run = tiny.base("smoke" if args.smoke else None) if base is None else _base(base)
    lessons = tiny.taught(run) if base is None else None
    if arena and not args.smoke:
        arenas.put(run, lessons, arena, args)
    c = ConfigDict()
    c.name = "arena" if arena else "table1" if kind == "selectors" else kind
    chosen, c.baseline = _chosen(run, kind)
    c.arms = ",".join(chosen)
    c.losses = "gspo,grpo" if c.name == "table1" else "gspo" if base is None else "own"
    c.data, c.seeds = "clean", "0,1,2"
    c.run = run
    c.lessons = ConfigDict(Lessons().to_dict()) if lessons is None else lessons
    known = arms.RIVALS | arms.VARIANTS | arms.DECAY_GRID | arenas.CONTROLS
    # The tiny job's loss is GRPO: it is left as `--config.run.loss.FIELD=VALUE` may set it. So is a base's.
    losses = arms.LOSSES | {"grpo" if base is None else "own": arms.nothing}
    # What the words above stand for
    c.known = ConfigDict({"arms": known, "losses": losses, "data": arms.DATA})
    return c


def _words(arg):
    """Returns the name of the arena or "", the base or None, and the values of all words."""
    words, is_based, base = (arg or "").partition("base=")
    words = [word for word in words.split(",") if word]
    named = list(dict.fromkeys(word for word in words if word in arenas.ARENAS))
    sizes = arenas.sizes(named[0]) if named else {}
    flags = dict.fromkeys((*arenas.ARENAS, *KINDS, "smoke"), False)
    args = arguments.parse(",".join(words), base="", **flags, **sizes)
    kinds = [kind for kind in KINDS if args[kind]]
    if len(named) + bool(is_based) > 1 or len(kinds) > 1:
        raise ValueError(f"config argument {arg!r}: give one job, and one of {', '.join(KINDS)}")
    return (named or [""])[0], base if is_based else None, args


def _chosen(run, kind):
    """Returns the arms that run by default, and the baseline that they are compared with."""
    if kind == "controls":
        return ("uniform", *controls.ARMS), "uniform"
    if kind == "decays":
        return arms.DECAY_GRID, "decay_200_999"  # the paper's
    if kind == "selectors":
        return (*arms.RIVALS, *ABLATED), "uniform"
    differing = [arm for arm, change in arms.VARIANTS.items() if arms.changed(run, change) != run]
    return ("vade", "uniform", *differing), "vade"


def _base(text):
    """Returns the config that `text` names, FILE or FILE:ARGUMENTS."""
    file, _, words = text.partition(":")
    run = imports.load(f"{file}:get_config", "config argument base")(words or None)
    if run.get("selector", {}).get("name") != "vade":
        raise ValueError(f"config argument base={text!r}: give a run with VADE")
    return run
