r"""Sweeps: runs of one job that differ in selector, loss, data and seed, then tables and figures over seeds.

    python -m experiments.sweep --config=configs/sweep.py --workdir=runs/table1 --parallel=2
    python -m experiments.sweep --config=configs/sweep.py:frontier --workdir=runs/frontier \
        --parallel=2 --config.seeds=0,1,2,3,4,5,6,7
    python -m experiments.sweep --config=configs/sweep.py:base=configs/tiny_grpo.py --workdir=runs/ablations

Words behind the colon name the job that all runs share:

(none)     the tiny job; a run takes about two minutes on one quiet CPU core, DAPO's twice that
frontier   an arena: solved, hopeless and learnable prompts; of the last one answer in four is right at first
ladder     a letter of one color, then of two, then of three: each can be learned once the one below it is
digits     as frontier, with real handwriting: read it, or find a letter of the digit's name
base=FILE  any config of a run with VADE. This word comes last: behind its own colon are FILE's arguments, as
           in base=configs/qwen7b_gspo.py:split

and what they differ in:

selectors  Table 1 of VADE (arXiv 2511.18902), of the tiny job: all selectors, with GSPO and GRPO
controls   of an arena: `uniform`, `dose` (three times the prompts a step) and `oracle` (told the
           pass rate of every kind of prompt); vade_jax/report/controls.py says what they have to show
ablations  of a base: Table 2 and more, VADE with one option changed; one that changes nothing is left out
decays     both decays of Eq. 5 and 6, four values each: 16 arms, and decays.png
losses     VADE and the uniform selector under GRPO, GSPO, DAPO's loss and Dr. GRPO
precision  of the tiny job: weights in bfloat16 beside float32; docs/runs.md has what came out

More words: `smoke` (for tests); of an arena `prompts=32` a step, `rollouts=4` answers a prompt, `pool=4096`
prompts in all, `steps=200`, `model=tiny_6m`.

Others are at hand: `--config.arms=uniform,kalman,vade@5e-5` (VADE at that learning rate),
`--config.losses=grpo`, `--config.seeds=0,1`, `--config.data=clean,wrong10` (a tenth of the training golds is
wrong). What all runs share: `--config.run.num_steps=100`. Of the arms:

uniform, dapo, vade, vade_dapo: the paper's rows; DAPO is dynamic sampling, around either selector, with
    full batches while three times the others' rollouts last
dapo_three_rounds: at most three rounds a step instead, and part batches
vade_measured: the paper's warm-up, a pass over all prompts; `vade` has none in the tiny job and its arenas
vade_p1p, vade_greedy, vade_last_update, ...: VADE's ablations
remind_vade: a queue of mastered prompts around VADE; `remind` is around uniform, as its paper's
kalman, mopps, greso, sec, ...: every other selector there is, with the options of its paper
decay_500_999: VADE that keeps 0.5 of a visited prompt's counts and 0.999 of the others'
"""

import importlib.util
import os
import pathlib

from configs import arenas, arguments, arms, tiny
from vade_jax.report import controls

KINDS = ("selectors", "controls", "ablations", "decays", "losses", "precision")
ABLATED = ("vade_p1p", "vade_greedy", "vade_last_update")  # those of Table 2


def get_config(arg=None):
    """Returns the sweep that the words of `arg` name.

    Raises:
        ValueError: a word is unknown or does not go with another, or the base is no run with VADE.
    """
    arena, base, args = _words(arg)
    is_tiny = not arena and base is None
    kind = next((kind for kind in KINDS if args[kind]), None)
    kind = kind or ("selectors" if is_tiny else "controls" if arena else "ablations")
    if kind == "precision":
        return _of_precision(args.smoke)
    words = "smoke" if args.smoke else None
    run = tiny.taught(tiny.base(words)) if base is None else _base(base)
    if arena and not args.smoke:
        arenas.put(run, arena, args)
    known = arms.rivals(run) | arms.variants(run) | arms.decay_grid(run)
    known |= arenas.controls_of(run) if arena else {}
    chosen, baseline = _chosen(run, kind)
    losses = {name: arms.changes(run, put) for name, put in arms.PPO_STYLE.items()}
    if base is not None and kind != "losses":
        losses = {arms.loss_name(run): {}}  # as the base has set it
    elif base is not None and arms.loss_name(run) not in arms.LOSSES:
        # What DAPO changes besides would stay in all.
        raise ValueError(f"config argument {arg!r}: losses are of a base with GRPO or GSPO")
    name = "arena" if arena else "table1" if kind == "selectors" else kind
    named = {"arms": known, "chosen": ",".join(chosen), "losses": losses, "baseline": baseline}
    c = arms.make(run, name, **named)
    if base is None and kind != "losses":
        c.losses = "gspo,grpo" if name == "table1" else "gspo"
    return c


def _words(arg):
    """Returns the arena or "", the base or None, and all other words."""
    words = [word for word in (arg or "").split(",") if word]
    place = next((i for i, x in enumerate(words) if x.partition("=")[0] == "base"), len(words))
    base = ",".join(words[place:]).partition("=")[2] if place < len(words) else None
    words = words[:place]
    named = list(dict.fromkeys(word for word in words if word in arenas.ARENAS))
    sizes = arenas.sizes(named[0]) if named else {}
    flags = dict.fromkeys((*arenas.ARENAS, *KINDS, "smoke"), False)
    args = arguments.parse(",".join(words), base="", **flags, **sizes)
    kinds = [kind for kind in KINDS if args[kind]]
    given = ",".join(word for word in words if word.partition("=")[0] in sizes)
    known = ", ".join(arenas.ARENAS)
    for is_wrong, said in (
        (len(named) + (base is not None) > 1, f"give one job, {', '.join(named)} or base=FILE"),
        (len(kinds) > 1, f"give {' or '.join(kinds)}"),
        (args.smoke and given, f"smoke has sizes of its own, leave out {given}"),
        (args.smoke and base is not None, "smoke is for the base, base=FILE:smoke"),
        (args.controls and not named, f"controls are of an arena, one of {known}"),
        (args.precision and (named or base is not None), "precision is of the tiny job alone"),
    ):
        if is_wrong:
            raise ValueError(f"config argument {arg!r}: {said}")
    return (named or [""])[0], base, args


def _chosen(run, kind):
    """Returns the arms that run unless others are asked for, and the one that they are compared with."""
    if kind == "controls":
        return ("uniform", controls.DOSE, controls.ORACLE), "uniform"
    if kind == "decays":
        return arms.decay_grid(run), "decay_200_999"  # the paper's
    if kind == "losses":
        return ("uniform", "vade"), "uniform"
    if kind == "selectors":
        return (*arms.rivals(run), *ABLATED), "uniform"
    variants = arms.variants(run)
    differing = [arm for arm, changes in variants.items() if changes["selector"]["options"]]
    return ("vade", "uniform", *differing), "vade"


def _of_precision(is_smoke):
    """Returns the sweep over the weights' dtype. All else is in float32, and selection is uniform.

    float32_halves sums its gradients over half as large micro-batches: what rounding alone changes.
    bfloat16 has its remainders (vade_jax/trainer/precision.py), bfloat16_plain has not.
    """
    run = tiny.taught(tiny.base("smoke" if is_smoke else None, selector="uniform"))
    run.model.dtype = "float32"
    if not is_smoke:
        run.data.num_validation, run.eval.every = 1024, 40
    halves = {"model": {"param_dtype": "bfloat16"}}
    smaller = {"prompts_per_microbatch": run.batch.prompts_per_microbatch // 2}
    known = {
        "float32": {},
        "float32_halves": {"batch": smaller},
        "bfloat16": halves,
        "bfloat16_plain": halves | {"optimizer": {"remainders": False}},
    }
    losses = {name: arms.changes(run, put) for name, put in arms.LOSSES.items()}
    named = {"arms": known, "chosen": ",".join(known), "losses": losses, "baseline": "float32"}
    c = arms.make(run, "precision", **named)
    c.losses = "gspo"
    return c


def _base(text):
    """Returns the config of a run: FILE, or FILE:ARGUMENTS."""
    file, _, words = text.partition(":")
    file = os.path.expanduser(file)
    if not pathlib.Path(file).is_file():
        raise ValueError(f"config argument base={text!r}: no such file")
    spec = importlib.util.spec_from_file_location("base_of_a_sweep", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.get_config(words or None)
    if run.get("selector", {}).get("name") != "vade":
        raise ValueError(f"config argument base={text!r}: give a run with VADE")
    return run
