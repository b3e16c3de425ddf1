"""Compares selectors without a model, in simulated worlds with known pass rates.

    python -m experiments.simulate --config=configs/simulate.py --workdir=runs/simulate

Takes a quarter of an hour to two hours on 2 CPU cores, or minutes with a few selectors. The results are in
docs/simulator.md.
"""

import dataclasses

from ml_collections import ConfigDict

from configs import arguments, arms
from experiments.arenas.simulation.selectors import PRIORS, Settings
from experiments.arenas.simulation.worlds import KINDS

DEFAULT = (
    "uniform,cero,dapo,greso,vcrl,sec,mmr1,knapsack,mopps,dps,mapp,kgps,insight,arcus,"
    "bots,cures,dare,gdro,remind,remind_vade,retire,pooled,informed,kalman,kalman_p1p,vade,"
    "vade_measured,vade_no_warmup,vade_p1p,vade_mean,vade_mean_p1p,vade_greedy,vade_last_update,"
    "vade_slow_decay,vade_one_visit,vade_per_token,vade_per_token_p1p,vade_dapo,oracle,oracle_p1p"
)
P1P = {"info_gain": "p(1-p)"}
VARIANTS = arms.OPTIONS | {  # of VADE, by label: their options
    "vade": {},
    "vade_mean_p1p": {"draw": "mean", **P1P},
    "vade_slow_decay": {"decay_selected": 0.5},
    "vade_measured": {"warmup": "measured"},  # as in the paper
    "vade_per_token_p1p": {"per": "token", **P1P},
    "vade_one_visit": {"max_consecutive": 1},
}


def get_config(arg=None):
    """Returns the worlds, the selectors that play in them, and the number of rollouts."""
    arguments.parse(arg)  # no word is known
    c = ConfigDict(Settings().to_dict())
    c.selectors = DEFAULT
    c.world = worlds()
    c.selector = entries()
    return c


def worlds() -> ConfigDict:
    """Returns the worlds, each a kind and its constants; see experiments/arenas/simulation/worlds.py."""
    drift, skills = (
        {"kind": kind, **dataclasses.asdict(KINDS[kind].Constants())}
        for kind in ("drift", "skills")
    )
    slow = {**skills, "rate": 0.167}
    return ConfigDict(
        dict(
            stationary={**drift, "gain": 0.0, "drift": 0.0},
            drift=drift,
            skills=skills,  # 8 % mislabelled
            skills_clean={**skills, "hopeless": 0.0},
            skills_slow=slow,
            skills_hard={**slow, "hard": 1.0},  # prompts that are mostly failed teach more
            # answers differ in length: by prompt alone; or those to failed prompts are 7 times as long
            skills_lengths={**skills, "spread": 1.0},
            skills_long={**skills, "longer": 2.0, "spread": 0.5},
            # features show how hard an item is; or only how far it is from the usual; or nothing, elsewhere
            skills_told={**skills, "tells": 1.0},
            skills_misled={**skills, "misleads": 1.0},
        )
    )


def entries() -> ConfigDict:
    """Returns selectors with their options, and what the arena does for them.

    See `Entry` in experiments/arenas/simulation/selectors.py.
    """
    refill = {"max_rounds": 3}
    # The simulated answers have no text, so no prompt's answers are more diverse than another's.
    mmr1 = {"options": {"diversity_weight": 0.0}, "measure_first": True, "measure_every": 35}
    return ConfigDict(
        dict(
            dapo=refill,
            greso=refill,
            vcrl=dict(options={"replay": "next_step"}),  # a round has B prompts
            mmr1=mmr1,
            kalman_p1p=dict(name="kalman", options=P1P),
            **{label: {"name": "vade", "options": x} for label, x in VARIANTS.items()},
            **{f"{x}_{p}": dict(name=x, prior=p) for x in ("vade", "pooled") for p in PRIORS},
            vade_dapo={"name": "dapo", "options": {"base": "vade"}, **refill},
            remind_vade=dict(name="remind", options={"base": "vade"}),
            oracle_p1p=dict(name="oracle", options=P1P),
        )
    )
