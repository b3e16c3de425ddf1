"""What is kept, hyperparameters, and what a selector says of its choice."""

import dataclasses
import importlib
import pkgutil

import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers, types
from vade_jax.samplers import base, rivals, vade


@pytest.mark.parametrize("trials", [0, 2])
def test_keep_all_keeps_every_group_even_one_without_an_answer(trials):
    keep_M = base.keep_all(None, environment.counts([4, 0, 2], [0] * 3, trials))
    assert keep_M.dtype == bool and keep_M.tolist() == [True] * 3


def test_unknown_hyperparameters_are_named():
    with pytest.raises(ValueError, match="vade has no option 'decay': it takes num_ro"):
        samplers.SAMPLERS["vade"](decay=0.9)


def test_what_a_posterior_believes():
    state = vade.VadeState(
        alpha_I=jnp.array([0.0, 8, 2]),
        beta_I=jnp.array([0.0, 0, 2]),
        unseen_I=jnp.zeros(3, bool),
    )
    proposal = types.Proposal(index_M=jnp.array([2, 0]), num_rollouts_M=jnp.array([2, 2]))
    # Beta(3, 3): 1 - 2 x (3 x 4) / (6 x 7) = 3/7; Beta(1, 1): 1 - 2 / 3 = 1/3
    belief = samplers.SAMPLERS["vade"]().believe(state, proposal)
    np.testing.assert_allclose(belief["prob_mixed"], [3 / 7, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(belief["alpha"], [2, 0])
    metrics = samplers.belief_metrics(belief)
    np.testing.assert_allclose(metrics["vade/posterior_mean"], 0.5)
    np.testing.assert_allclose(metrics["vade/predicted_effective_ratio"], 8 / 21, rtol=1e-6)
    uniform = samplers.SAMPLERS["uniform"]()
    belief = uniform.believe(uniform.init(3), proposal)
    assert samplers.belief_metrics(belief) == belief == {}


def test_metrics_of_a_methods_own_leave_out_what_does_not_apply():
    nan = float("nan")
    belief = {"own/a": np.array([1, nan, 2]), "own/b": np.full(3, nan)}
    assert samplers.belief_metrics(belief) == {"own/a": 1.5}


def test_every_file_with_a_method_is_listed():
    packages = samplers, rivals
    files = [
        importlib.import_module(f"{package.__name__}.{x.name}")
        for package in packages
        for x in pkgutil.iter_modules(package.__path__)
    ]
    names = {file.SPEC.name for file in files if hasattr(file, "SPEC")}
    assert names | {"remind", "diva"} == samplers.SAMPLERS.keys()


def test_what_methods_need():
    required, optional, measured, states = (
        lambda name, how=how: base.PerItem(name, how)
        for how in ("required", "optional", "measured", "states")
    )
    expected = dict.fromkeys(samplers.SAMPLERS, base.Needs()) | {
        "bots": base.Needs(items=(optional("weak_rate"), optional("strong_rate"))),
        "diva": base.Needs(variants=True, places=2),
        "gdro": base.Needs(weights=True),
        "informed": base.Needs(items=(states("features"),)),
        "knapsack": base.Needs(uneven=True),
        "mmr1": base.Needs(items=(measured("pass_rate"), measured("self_bleu"))),
        "pooled": base.Needs(items=(optional("category"),)),
        "sec": base.Needs(items=(required("category"),)),
        "strata": base.Needs(items=(required("category"), measured("pass_rate"))),
        "vcrl": base.Needs(rounds=2, passes="never"),
    }
    for name, spec in samplers.SAMPLERS.items():
        found = dataclasses.replace(spec().needs, removed_by=base.Needs().removed_by)
        assert found == expected[name], name
        assert spec().drops == (name in ("dapo", "greso", "vcrl"))
    assert samplers.SAMPLERS["vade"](warmup="measured").needs.passes == "first"
    assert not samplers.SAMPLERS["remind"](base="vade").drops
    assert samplers.SAMPLERS["remind"](base="greso").drops
    for replay in ("next_step", "none"):
        needs = samplers.SAMPLERS["vcrl"](replay=replay).needs
        assert needs.rounds == (1 if replay == "next_step" else None)
        assert (needs.passes == "any") == (replay == "none")
