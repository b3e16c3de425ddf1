"""Hyperparameters, what a selector says of its choice, and values that not every item has."""

import importlib
import pkgutil

import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax import samplers, types
from vade_jax.samplers import base, per_item, rivals, vade


def test_unknown_hyperparameters_are_named():
    with pytest.raises(ValueError, match=r"'decay'.*decay_rest"):
        samplers.SAMPLERS["vade"](decay=0.9)


def test_what_a_posterior_believes():
    state = vade.VadeState(
        alpha_I=jnp.array([0.0, 8, 2]), beta_I=jnp.array([0.0, 0, 2]), unseen_I=jnp.zeros(3, bool)
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


def test_every_file_with_a_method_is_listed():
    packages = samplers, rivals
    files = [
        importlib.import_module(f"{package.__name__}.{x.name}")
        for package in packages
        for x in pkgutil.iter_modules(package.__path__)
    ]
    specs = {x.name for file in files for x in vars(file).values() if isinstance(x, base.Spec)}
    assert specs | {"remind", "diva"} == samplers.SAMPLERS.keys()


def test_a_loop_is_told_what_it_lacks():
    needs = {name: samplers.SAMPLERS[name]().needs for name in samplers.SAMPLERS}
    can = lambda name, **loop: samplers.require(name, needs[name], **loop)
    can("vade", lacks=base.ASKS)
    can("strata", arrays=["category"], passes=True)
    can("vcrl", rounds=2)
    for name, loop, named in (
        ("sec", {}, "category"),
        ("uniform", {"arrays": ["level"]}, "level"),
        ("knapsack", {"lacks": ["uneven"]}, "more answers"),
        ("gdro", {"lacks": ["weights"]}, "advantages"),
        ("vcrl", {"rounds": 2, "passes": True}, "one batch"),
    ):
        with pytest.raises(ValueError, match=f"{name} .*{named}"):
            can(name, **loop)
    measured = samplers.SAMPLERS["vade"](warmup="measured").needs
    with pytest.raises(ValueError, match="pass over all items"):
        samplers.require("vade", measured)
    samplers.require("vade", measured, passes=True)


@pytest.mark.parametrize("values", [["a", None, "b", None], np.array([0, np.nan, 2, 2])])
def test_a_missing_value_of_an_item_is_named(values):
    with pytest.raises(ValueError, match="category of item 1 is "):
        per_item.check_per_item("sec", "category", values, 4)


def test_a_number_and_a_text_are_two_categories():
    category_I, count = per_item.categories("sec", [2, "1", 1, "2", 1], 5)
    assert category_I.tolist() == [1, 2, 0, 3, 0] and count == 4
    category_I, count = per_item.categories("sec", np.array(["b", "a", "b"]), 3)
    assert category_I.tolist() == [1, 0, 1] and count == 2


def test_arrays_over_the_items_are_known_by_their_names():
    names = ("alpha_I", "feature_ID", "base.count_I3", "weight_D", "likelihood_K", "cov_DD")
    assert [per_item.is_per_item(name) for name in names] == [True, True, True, False, False, False]
