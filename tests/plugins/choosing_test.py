"""What the plug-ins share: which selectors fit, and that they run with JAX, NumPy and chex alone."""

import subprocess
import sys

import numpy as np
import pytest

from vade_jax import samplers
from vade_jax.plugins import choosing
from vade_jax.selector import Selector

IDS = [f"row-{i}" for i in range(24)]
UNFIT = ("diva", "gdro", "knapsack")
FITTING = sorted(set(samplers.SAMPLERS) - set(UNFIT))
OPTIONS = {
    "sec": {"arrays": {"category": [i % 3 for i in range(24)]}},
    "strata": {"arrays": {"category": [i % 3 for i in range(24)], "pass_rate": [0.5] * 24}},
    "mmr1": {"arrays": {"pass_rate": [0.5] * 24}, "diversity_weight": 0.0},  # without passes
    "vcrl": {"replay": "next_step"},  # without a second round
}

# An import of a name that is None here fails as if it were not installed.
CODE = """
import sys
for name in ("flax", "vllm", "optax", "orbax", "matplotlib", "ml_collections", "torch",
             "transformers", "datasets", "prime_rl", "verifiers"):
    sys.modules[name] = None
from vade_jax.plugins import choosing, prime_rl
from vade_jax.selector import keep
selector = choosing.make_selector(range(9), "vade", seed=0, num_rollouts=2)
ids = selector.select(3)
selector.observe(ids * 2, rewards=[0, 1, 1, 0, 0, 1])
assert keep([0, 0, 1], [5, 6, 6]).tolist() == [False, True, True]
selector.load_state_dict(selector.state_dict())
"""


def make(name="vade", **changes):
    given = dict(seed=0, num_rollouts=4, **changes)
    return choosing.make_selector(IDS, name, **given)


@pytest.mark.parametrize("name", FITTING)
def test_every_fitting_selector_asks_for_rows_and_nothing_else(name):
    selector = make(name, options=OPTIONS.get(name))
    rng = np.random.default_rng(0)
    for _ in range(8):
        proposal = selector.propose(5)  # sizes as in `samplers.contract_test`: the same programs
        ids = [IDS[i] for i in proposal.index_M]
        assert len(set(ids)) == 5
        assert proposal.num_rollouts_M.tolist() == [4] * 5
        selector.observe(ids * 4, rewards=rng.integers(0, 2, 20))


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in UNFIT), ("vade", {"per": "token"}), ("remind", {"base": "knapsack"})],
)
def test_the_others_are_refused(name, options):
    with pytest.raises(ValueError, match=name):
        make(name, options=options)


def test_options_reach_the_selector():
    made = make(options={"seed": 5, "decay_rest": 0.9})
    wanted = Selector(IDS, "vade", seed=5, num_rollouts=4, decay_rest=0.9)
    assert made.select(5) == wanted.select(5)
    with pytest.raises(ValueError, match="'decay'"):
        make(options={"decay": 0.9})


def test_the_selector_and_the_plugin_for_prime_rl_run_without_the_rest():
    subprocess.run([sys.executable, "-c", CODE], check=True)
