"""Top-B, what is kept, hyperparameters, and what a selector says of its choice."""

import dataclasses
import importlib
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers, types
from vade_jax.samplers import base, rivals, vade

top_b = jax.jit(base.top_b, static_argnames="num_prompts")


def test_top_b_takes_the_best_once():
    score_I = np.random.default_rng(0).permutation(100).astype(np.float32)
    index_M = np.asarray(top_b(score_I, jax.random.key(0), 10))
    assert sorted(index_M) == sorted(np.argsort(-score_I)[:10])
    assert index_M.dtype == np.int32


def test_ties_are_broken_evenly():
    """2 and 2 certain winners, 2 of 6 tied: each of the six in a third of 3,000 draws."""
    score_I = jnp.array([jnp.inf, 0, 3, 1, 1, 1, 1, 1, 1, -jnp.inf, jnp.nan])
    keys = jax.random.split(jax.random.key(0), 3000)
    index_KM = jax.vmap(lambda key: base.top_b(score_I, key, 4))(keys)
    count_I = np.bincount(np.ravel(index_KM), minlength=11)
    assert count_I[[0, 2]].tolist() == [3000, 3000]
    assert count_I[[1, 9, 10]].tolist() == [0, 0, 0]
    assert np.all(abs(count_I[3:9] - 1000) < 4 * np.sqrt(3000 * 2 / 9))
    first_I = np.bincount(index_KM[:, 0], minlength=11)  # the order is random as well
    assert np.all(abs(first_I[[0, 2]] - 750) < 4 * np.sqrt(3000 * 3 / 16))


def test_nan_wins_only_when_nothing_else_is_left():
    score_I = jnp.array([jnp.nan, -5.0, jnp.nan, 2.0])
    index_M = top_b(score_I, jax.random.key(0), 3)
    assert {1, 3} < set(index_M.tolist())


def test_bad_sizes_are_named():
    score_I, key = jnp.zeros(12), jax.random.key(0)
    with pytest.raises(ValueError, match=r"13 prompts of a data set of 12.*1 to 12"):
        top_b(score_I, key, 13)
    with pytest.raises(ValueError, match="0 prompts"):
        top_b(score_I, key, 0)


def test_a_share_is_as_it_is_written():
    """In floats 0.29 x 100, 0.57 x 100 and 1.1 x 10 are not whole."""
    for share, num_prompts, expected in (
        *((0.29, 100, 29), (0.57, 100, 57), (1.1, 10, 11), (16.0, 12, 192)),
        *((0.1, 16, 1), (0.05, 16, 0), (0.299, 100, 29), (1.0, 7, 7), (0.0, 7, 0)),
    ):
        assert base.share_of(share, num_prompts) == expected


def test_a_draw_by_weight_without_replacement():
    """Weights 4, 2, 1 and 0, two drawn: {i, j} by w_i / 7 x w_j / (7 - w_i), both orders."""
    log_I = jnp.log(jnp.array([4.0, 2, 1, 0])) - 30  # the scale does not matter
    keys = jax.random.split(jax.random.key(0), (4000, 2))
    draw = lambda key: base.top_b(base.gumbel_scores(log_I, key[0]), key[1], 2)
    pair_K = [tuple(pair) for pair in np.sort(jax.vmap(draw)(keys)).tolist()]
    expected = {
        (0, 1): 4 / 7 * 2 / 3 + 2 / 7 * 4 / 5,
        (0, 2): 4 / 7 * 1 / 3 + 1 / 7 * 4 / 6,
        (1, 2): 2 / 7 * 1 / 5 + 1 / 7 * 2 / 6,
    }
    assert set(pair_K) == set(expected)
    for pair, share in expected.items():
        assert pair_K.count(pair) / 4000 == pytest.approx(share, abs=0.03)
    whole = base.top_b(base.gumbel_scores(log_I, keys[0, 0]), keys[0, 1], 4)
    assert sorted(whole.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("trials", [0, 2])
def test_keep_all_keeps_every_group_even_one_without_an_answer(trials):
    keep_M = base.keep_all(None, environment.counts([4, 0, 2], [0] * 3, trials))
    assert keep_M.dtype == bool and keep_M.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", None, "b", None], "category of item 1 is None: 2 of 4 items lack one, and sec"),
        (["a", "b", "c", float("nan")], "category of item 3 is nan: 1 of 4 items lack one"),
        (np.array([np.nan, 1, 2, 2]), "category of item 0 is nan: 1 of 4 items lack one"),
    ],
)
def test_a_missing_value_of_an_item_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        base.check_per_item("sec", "category", values, 4)


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
    assert names | {"remind"} == samplers.SAMPLERS.keys()


def test_what_methods_need():
    required, optional, measured = (
        lambda name, how=how: base.PerItem(name, how)
        for how in ("required", "optional", "measured")
    )
    expected = dict.fromkeys(samplers.SAMPLERS, base.Needs()) | {
        "bots": base.Needs(items=(optional("weak_rate"), optional("strong_rate"))),
        "diva": base.Needs(variants=True),
        "knapsack": base.Needs(uneven=True),
        "mmr1": base.Needs(items=(measured("pass_rate"), measured("self_bleu"))),
        "pooled": base.Needs(items=(optional("category"),)),
        "sec": base.Needs(items=(required("category"),)),
        "strata": base.Needs(items=(required("category"), measured("pass_rate"))),
        "vcrl": base.Needs(rounds=2, passes="never"),
    }
    for name, spec in samplers.SAMPLERS.items():
        found = dataclasses.replace(spec().needs, without=base.Needs().without)
        assert found == expected[name], name
        assert spec().drops == (name in ("dapo", "greso", "vcrl"))
    assert samplers.SAMPLERS["vade"](warmup="measured").needs.passes == "first"
    assert not samplers.SAMPLERS["remind"](base="vade").drops
    assert samplers.SAMPLERS["remind"](base="greso").drops
    for replay in ("next_step", "none"):
        needs = samplers.SAMPLERS["vcrl"](replay=replay).needs
        assert needs.rounds is None and (needs.passes == "any") == (replay == "none")
