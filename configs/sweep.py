r"""Sweeps: runs of one job that vary selector, loss, data and seed, then tables and figures over seeds.

    python -m experiments.sweep --config=configs/sweep.py --workdir=runs/table1 --parallel=2
    python -m experiments.sweep --config=configs/sweep.py:frontier --workdir=runs/frontier \
        --parallel=2 --config.seeds=0,1,2,3,4,5,6,7
    python -m experiments.sweep --config=configs/sweep.py:base=configs/tiny_grpo.py --workdir=runs/ablations

Words after the colon name the job that all runs share:

(none)     the tiny job; a run takes about two minutes on one quiet CPU core, DAPO's run twice that
frontier   an arena of solved, hopeless and learnable prompts; at first one answer in four to a learnable
           prompt is right
ladder     an arena: a letter of one color, then of two, then of three; each can be learned once the one below
           it is learned
digits     an arena like frontier, with real handwriting: read the digit, or find a letter of its name
lengths    rows of 3 to 38 numbers: the longer the answer, the harder and the dearer; four seeds of its
           controls have run
smollm     sums, differences, products, sequences and stories for SmolLM2-135M-Instruct, as it was pretrained;
           31 to 45 minutes a run on one CPU core. `dose` and `oracle` have not run
base=FILE  any config of a run with VADE. This word comes last: FILE's arguments follow after another colon,
           as in base=configs/qwen7b_gspo.py:split

and what the runs vary:

selectors  for the tiny job: Table 1 of VADE (arXiv 2511.18902), all selectors, with GSPO and GRPO
controls   for an arena: `uniform`, `dose` (three times the prompts a step) and `oracle` (which is told the
           pass rate of every kind of prompt); experiments/arenas/controls.py says what they have to show
ablations  for a base: Table 2 and more, VADE with one option changed; a variant that changes nothing is left
           out
decays     both decays of Eq. 5 and 6, four values each: 16 arms, and decays.png
losses     VADE and the uniform selector with GRPO, GSPO, DAPO's loss and Dr. GRPO
precision  for the tiny job: weights in bfloat16 compared with float32; docs/runs.md has the results

More words: `smoke` (for tests); for an arena `updates=8` of the policy a step, `prompts=32` a step,
`rollouts=4` answers a prompt, `pool=4096` prompts in all, `steps=200`, `model=tiny_6m` (not for smollm).

To choose others: `--config.arms=uniform,kalman,vade@5e-5` (VADE at that learning rate),
`--config.losses=grpo`, `--config.seeds=0,1`, `--config.data=clean,wrong10` (a tenth of the training golds is
wrong). To change what all runs share: `--config.run.num_steps=100`. The arms are:

uniform, dapo, vade, vade_dapo: the paper's rows. DAPO is dynamic sampling, around uniform or around VADE; it
    refills its batches until it has used three times the rollouts of the others
dapo_three_rounds: DAPO with at most three rounds a step, after which a batch may stay incomplete
vade_measured: VADE with the paper's warm-up, a pass over all prompts; in the tiny job and its arenas `vade`
    has no warm-up
vade_p1p, vade_greedy, vade_last_update, ...: VADE's ablations
remind_vade: a queue of mastered prompts around VADE; `remind` puts it around uniform, as its paper does
kalman, mopps, greso, sec, ...: all other selectors, with the options of their papers
decay_500_999: VADE that keeps 0.5 of a visited prompt's counts and 0.999 of the other prompts' counts
"""

import importlib.util
import os
import pathlib

from configs import arenas, arguments, arms, tiny
from experiments.arenas import controls

KINDS = ("selectors", "controls", "ablations", "decays", "losses", "precision")
ABLATED = ("vade_p1p", "vade_greedy", "vade_last_update")  # the ablations of Table 2


def get_config(arg=None):
    """Returns the sweep that the words of `arg` name.

    Raises:
        ValueError: a word is unknown or contradicts another, or the base is not a run with VADE.
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
        losses = {arms.loss_name(run): {}}  # the base's own loss
    elif base is not None and arms.loss_name(run) not in arms.LOSSES:
        # The other fields that DAPO's loss changes would stay changed under every loss.
        raise ValueError(f"config argument {arg!r}: losses are of a base with GRPO or GSPO")
    name = "arena" if arena else "table1" if kind == "selectors" else kind
    named = {"arms": known, "chosen": ",".join(chosen), "losses": losses, "baseline": baseline}
    c = arms.make(run, name, **named)
    if base is None and kind != "losses":
        c.losses = "gspo,grpo" if name == "table1" else "gspo"
    return c


def _words(arg):
    """Returns the name of the arena or "", the base or None, and the values of all words."""
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
    """Returns the arms that run by default, and the baseline that they are compared with."""
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
    """Returns the sweep over the weights' dtype. Everything else is float32, and selection is uniform.

    float32_halves sums its gradients over micro-batches of half the size, which shows the effect of rounding
    alone. bfloat16 stores the remainders of the weights (vade_jax/trainer/precision.py), bfloat16_plain does
    not.
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
    """Returns the config that `text` names, FILE or FILE:ARGUMENTS."""
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
