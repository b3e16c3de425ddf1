r"""Table 2 of VADE (arXiv 2511.18902) and more: what each of its parts does, on any job.

    python -m experiments.sweep --config=configs/ablations.py:base=configs/tiny_grpo.py \
        --workdir=runs/ablations --parallel=2

12 arms x 3 seeds; each run takes as long as one of the base. An arm that would change nothing of the
base, such as `vade_warmup_none` where it has no warm-up, is left out. `--config.arms=vade,vade_greedy
--config.seeds=0` runs less. The tables are in {workdir}/ablations.

Arguments: `base=FILE`, with its own arguments behind another colon, such as
`base=configs/qwen7b_gspo.py:split`; by default configs/tiny_gspo.py. `--config.arms=vade,kalman`
compares others: every arm of configs/tiny_table1.py is known here too. `grid,base=FILE` takes both
decays of Eq. 5 and 6 instead, four values each, 16 arms, and draws decays.png. `losses,base=FILE` takes
VADE and the uniform selector under PPO's clipped loss and what came of it: GRPO, GSPO, DAPO's loss and
Dr. GRPO.
"""

import importlib.util
import os
import pathlib

from configs import arguments, sweeps


def get_config(arg=None):
    """Returns the sweep over VADE's options, over its decays, or over losses.

    Raises:
        ValueError: the base is missing, or is not a run with VADE; or both words are given.
    """
    is_grid, named = arguments.without(arg, "grid")
    with_losses, named = arguments.without(named, "losses")
    name, _, base = (named or "base=configs/tiny_gspo.py").partition("=")
    if name != "base":
        raise ValueError(f"config argument {arg!r}: give base=FILE")
    if is_grid and with_losses:
        raise ValueError(f"config argument {arg!r}: give grid or losses")
    file, _, words = base.partition(":")
    run = _load(file).get_config(words or None)
    if run.get("sampler", {}).get("name") != "vade":
        raise ValueError(f"config argument base={base!r}: give a run with VADE")
    if is_grid:
        return _of_decays(run)
    return _of_losses(run) if with_losses else _of_options(run)


def _of_options(run):
    variants = sweeps.variants(run)
    differing = [arm for arm, changes in variants.items() if changes["sampler"]["options"]]
    return sweeps.make(
        run,
        "ablations",
        arms=sweeps.rivals(run) | variants,
        chosen=",".join(["vade", "vanilla", *differing]),
        losses={sweeps.loss_name(run): {}},
        baseline="vade",
    )


def _of_decays(run):
    grid = sweeps.decay_grid(run)
    return sweeps.make(
        run,
        "decays",
        arms=sweeps.rivals(run) | grid,
        chosen=",".join(grid),
        losses={sweeps.loss_name(run): {}},
        baseline="decay_200_999",
    )


def _of_losses(run):
    if sweeps.loss_name(run) not in sweeps.LOSSES:  # what DAPO changes besides would stay in all
        raise ValueError("config argument 'losses': give a base with GRPO or GSPO")
    return sweeps.make(
        run,
        "losses",
        arms=sweeps.rivals(run),
        chosen="vanilla,vade",
        losses={name: sweeps.changes(run, put) for name, put in sweeps.PPO_STYLE.items()},
        baseline="vanilla",
    )


def _load(file):
    file = os.path.expanduser(file)
    if not pathlib.Path(file).is_file():
        raise ValueError(f"config argument base={file!r}: no such file")
    spec = importlib.util.spec_from_file_location("base_of_ablations", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
