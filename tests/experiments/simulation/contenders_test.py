"""Contenders: what a config's entry becomes, and what is wrong with one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.simulation import contenders
from experiments.simulation.contenders import Contender


def test_an_entry_of_a_config():
    found = Contender.of(
        "mine",
        {"name": "dapo", "options": {"base": "vade", "base_options": {"draw": "mean"}}},
    )
    assert (found.name, found.max_rounds, found.measures) == ("dapo", 1, False)
    assert hash(found) == hash(
        Contender.of(
            "mine",
            dict(
                name="dapo",
                options=dict(found.options) | {"base_options": {"draw": "mean"}},
            ),
        )
    )
    assert found.sampler(4) is found.sampler(4)  # one compilation
    proposal = found.sampler(4).propose(
        found.begin(4, np.arange(9)), jax.random.key(0), 3
    )
    assert proposal.num_rollouts_M.tolist() == [4, 4, 4]
    assert Contender.of("vade", {}).name == "vade"


def test_sec_gets_the_categories():
    state = Contender.of("sec", {}).begin(8, np.array([3, 5, 5, 3]))
    assert state.category_I.tolist() == [0, 1, 1, 0]


def test_the_oracle_takes_the_best_true_pass_rates():
    p_I = jnp.array([0.0, 0.34, 0.5, 0.9, 1.0])
    state = contenders.OracleState(pass_rate_I=p_I)
    choose = lambda number, **options: set(
        contenders.SELECTORS["oracle"](**options)
        .propose(state, jax.random.key(0), number)
        .index_M.tolist()
    )
    assert choose(1) == {1}
    assert choose(1, info_gain="p(1-p)") == {2}
    assert choose(3) == {1, 2, 3}


@pytest.mark.parametrize(
    ("label", "settings", "message"),
    [
        (
            "vaed",
            {},
            r"the selector 'vaed' is unknown: did you mean 'vade'\? known are",
        ),
        ("x", {"name": "diva"}, "contender x: the selector 'diva' is unknown"),
        (
            "vade",
            {"option": {}},
            "the setting 'option' is unknown: did you mean 'options'",
        ),
        (
            "vade",
            {"options": {"darw": "mean"}},
            "vade's option 'darw' is unknown: did you mean 'draw'",
        ),
        ("vade", {"options": {"mesh": None}}, "vade's option 'mesh' is unknown"),
        (
            "vade",
            {"options": {"draw": "best"}},
            "contender vade: draw='best': choose one of",
        ),
        ("vade", {"max_rounds": 0}, "max_rounds=0: set it to at least 1"),
        ("vade", {"measure_every": -1}, "measure_every=-1"),
        ("vade", {"measure_first": "yes"}, "measure_first='yes': choose one of"),
    ],
)
def test_a_bad_entry(label, settings, message):
    with pytest.raises(ValueError, match=message):
        Contender.of(label, settings).sampler(8)
