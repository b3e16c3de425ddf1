"""What holds of every selector in SAMPLERS, and of their variants."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers

NUM_ITEMS, NUM_PROMPTS = 24, 5
VARIANTS = {name: (name, {}) for name in samplers.SAMPLERS} | {
    "mopps threshold": ("mopps", {"selection": "threshold", "candidates": 2}),
    "kalman fixed": ("kalman", {"noise": "fixed"}),
    "knapsack vade": ("knapsack", {"posterior": "vade"}),
    "vade varied": (
        "vade",
        {"half_life_epochs": 2, "max_consecutive": 2, "uniform_share": 0.4},
    ),
    "sec code": ("sec", {"variant": "code"}),
    "mmr1 code": ("mmr1", {"variant": "code", "update_every": 2}),
    "mmr1 visits": ("mmr1", {"refresh": "visits", "update_every": 2}),
    "diva code": ("diva", {"num_variants": 3, "rule": "table", "when": "step"}),
}
RATE = np.random.default_rng(0).random(NUM_ITEMS)
ARRAYS = {  # name: the per-item arrays that its init needs
    "sec": lambda num_items: {"category": np.arange(num_items) % 3},
    "mmr1": lambda num_items: {"self_bleu": np.linspace(0.2, 0.8, num_items)},
}


# A problem comes with variants: as many slots of a batch are its.
SLOTS = {"diva": 2, "diva code": 4}
# Their order of items looks at visits only, which are whole numbers.
IN_ORDER = ("uniform", "dapo", "knapsack", "sec", "sec code", "vcrl", *SLOTS)


@functools.cache
def make(variant):
    name, options = VARIANTS[variant]
    return samplers.SAMPLERS[name](num_rollouts=4, **options)


def init(variant, num_items=NUM_ITEMS):
    arrays = ARRAYS.get(VARIANTS[variant][0], lambda _: {})(num_items)
    return make(variant).init(num_items, **arrays)


def size(variant, num_problems=NUM_PROMPTS):
    """Returns B, which counts variants too."""
    return num_problems * SLOTS.get(variant, 1)


def answered(proposal, rng):
    """Returns the feedback as the loop has it, with the arrays of the host."""
    feedback = environment.feedback(jax.device_get(proposal), RATE, rng)
    return jax.device_get(feedback.replace(extra_M=proposal.extra_M))


def run(variant, num_steps, num_items=NUM_ITEMS, num_problems=NUM_PROMPTS, seed=0):
    """Returns the proposals, the last feedback and the last state."""
    num_prompts = size(variant, num_problems)
    sampler, state, proposals = make(variant), init(variant, num_items), []
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    feedback = None
    for step in range(num_steps):
        key_of_step = jax.random.fold_in(key, step)
        proposals.append(sampler.propose(state, key_of_step, num_prompts))
        feedback = answered(proposals[-1], rng)
        keep_M = sampler.keep(state, feedback)
        assert keep_M.shape == (num_prompts,) and keep_M.dtype == bool
        state = sampler.update(state, feedback)
    return proposals, feedback, state


variants = pytest.mark.parametrize("variant", VARIANTS)


@variants
def test_batches_have_no_duplicates_and_the_fixed_budget(variant):
    for proposal in run(variant, 12)[0]:
        index_M, slots = proposal.index_M.tolist(), SLOTS.get(variant, 1)
        assert len(set(index_M)) == NUM_PROMPTS
        assert np.repeat(index_M[::slots], slots).tolist() == index_M
        assert proposal.index_M.dtype == proposal.num_rollouts_M.dtype == jnp.int32
        assert np.all((proposal.index_M >= 0) & (proposal.index_M < NUM_ITEMS))
        assert proposal.num_rollouts_M.sum() == 4 * size(variant)
        assert np.all(proposal.num_rollouts_M >= 2)


@variants
def test_a_key_repeats_and_two_keys_differ(variant):
    *_, state = run(variant, 3)
    propose = lambda seed: make(variant).propose(
        state, jax.random.key(seed), size(variant)
    )
    chex.assert_trees_all_equal(propose(0), propose(0))
    chosen = {frozenset(propose(seed).index_M.tolist()) for seed in range(6)}
    assert len(chosen) > 1


def is_float(value):
    return value is not None and jnp.issubdtype(value.dtype, jnp.floating)


@pytest.mark.parametrize("variant", [x for x in VARIANTS if x not in IN_ORDER])
def test_an_item_whose_numbers_are_nan_is_never_chosen(variant):
    *_, state = run(variant, 6)  # by now VADE has seen all
    for item in (0, 7):
        poisoned = state.replace(
            **{
                name: value.at[item].set(jnp.nan)
                for name, value in state.items()
                if name.endswith("_I") and is_float(value)
            }
        )
        assert any(poisoned[name] is not state[name] for name in state)
        for seed in range(8):
            proposal = make(variant).propose(poisoned, jax.random.key(seed), 5)
            assert item not in proposal.index_M.tolist()


@variants
def test_the_order_of_the_feedback_does_not_matter(variant):
    _, feedback, state = run(variant, 5)
    rng = np.random.default_rng(1)
    slot_M, n_N = (
        rng.permutation(len(x)) for x in (feedback.index_M, feedback.group_N)
    )
    given = [name for name in feedback if feedback[name] is not None]
    by_slot = {
        name: jax.tree.map(lambda x_M: x_M[slot_M], feedback[name])
        for name in given
        if name[-1] == "M"
    }
    by_answer = {name: feedback[name][n_N] for name in given if name[-1] == "N"}
    by_answer["group_N"] = jnp.asarray(np.argsort(slot_M)[by_answer["group_N"]])
    sampler, permuted = make(variant), feedback.replace(**by_slot, **by_answer)
    chex.assert_trees_all_close(
        sampler.update(state, feedback), sampler.update(state, permuted), rtol=1e-5
    )
    keep_M, permuted_M = (sampler.keep(state, f) for f in (feedback, permuted))
    assert keep_M[slot_M].tolist() == permuted_M.tolist()


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_one_item_and_the_whole_data_set(name):
    for num_items in (1, 6):
        proposals, _, state = run(name, 3, num_items, num_items)
        for proposal in proposals:
            index_M = np.repeat(np.arange(num_items), SLOTS.get(name, 1)).tolist()
            assert sorted(proposal.index_M.tolist()) == index_M
        assert not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(state))


@variants
def test_groups_without_answers_leave_numbers(variant):
    _, feedback, state = run(variant, 3)
    zeros = {name: jnp.zeros(size(variant)) for name in ("successes_M", "trials_M")}
    feedback = feedback.replace(
        **zeros,
        valid_N=jnp.zeros_like(feedback.valid_N),
        reward_N=feedback.reward_N * 0,
    )
    state = make(variant).update(state, feedback)
    assert not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(state))
    chosen = make(variant).propose(state, jax.random.key(0), size(variant)).index_M
    assert len(set(chosen.tolist())) == NUM_PROMPTS


@variants
def test_a_run_compiles_once(variant):
    functions = make(variant)[1:4]
    run(variant, 2)  # the first brings a state from elsewhere
    sizes = [function._cache_size() for function in functions]
    run(variant, 4)
    assert [function._cache_size() for function in functions] == sizes


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_num_rollouts_is_the_first_keyword_and_one_is_an_error(name):
    with pytest.raises(ValueError, match=r"num_rollouts=1.*at least 2"):
        samplers.SAMPLERS[name](num_rollouts=1)


@variants
def test_more_prompts_than_items_is_an_error(variant):
    with pytest.raises(ValueError, match="9 prompts of a data set of 8"):
        make(variant).propose(init(variant, 8), jax.random.key(0), size(variant, 9))
