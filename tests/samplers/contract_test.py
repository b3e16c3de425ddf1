"""What holds of every selector in SAMPLERS, and of their variants."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers
from vade_jax.samplers import base, per_item

NUM_ITEMS, NUM_PROMPTS = 24, 5
VARIANTS = {name: (name, {}) for name in samplers.SAMPLERS} | {
    "remind vade": ("remind", {"base": "vade", "every": 2, "share": 0.4, "enter": 1.0}),
    "remind knapsack": ("remind", {"base": "knapsack", "every": 2, "share": 0.4, "enter": 1.0}),
    "retire soon": ("retire", {"rate": 0.6, "review": 0.5}),
    "vade varied": ("vade", {"max_consecutive": 2, "uniform_share": 0.4, "per": "token"}),
    "informed few": ("informed", {"dimensions": 2}),
    "diva several": ("diva", {"num_variants": 3}),
}
RATE = np.random.default_rng(0).random(NUM_ITEMS)
ARRAYS = {  # name: the per-item arrays that its init needs
    "sec": lambda num_items: {"category": np.arange(num_items) % 3},
    "strata": lambda num_items: {"category": np.arange(num_items) % 3},
    "mmr1": lambda num_items: {"self_bleu": np.linspace(0.2, 0.8, num_items)},
    "informed": lambda num_items: {
        "features": np.random.default_rng(2).normal(size=(num_items, 3))
    },
}


# A problem comes with variants: as many slots of a batch are its.
SLOTS = {"diva": 2, "diva several": 4}
# No number of an item that may be NaN decides: visits are whole, strata has rates of categories, and a
# queue does not ask what the selector below thinks of an item.
IN_ORDER = (
    *("uniform", "dapo", "gdro", "knapsack", "sec", "strata", "vcrl", *SLOTS),
    *("remind", "remind vade", "remind knapsack", "retire", "retire soon"),
)
NO_DRAWS = ("kgps",)


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


@functools.cache
def run(variant, num_steps, num_items=NUM_ITEMS, num_problems=NUM_PROMPTS):
    """Returns the proposals, the last feedback and the last state."""
    steps, state = environment.play(
        make(variant), init(variant, num_items), RATE, size(variant, num_problems), num_steps
    )
    return [proposal for proposal, _ in steps], steps[-1][1], state


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
        assert (proposal.weight_M is not None) == make(variant).needs.weights


@variants
def test_a_key_repeats_and_two_keys_differ(variant):
    *_, state = run(variant, 6)
    propose = lambda seed: make(variant).propose(state, jax.random.key(seed), size(variant))
    chex.assert_trees_all_equal(propose(0), propose(0))
    # Without draws, which prompts are chosen follows from the state, but for ties; their order does not.
    kind = tuple if variant in NO_DRAWS else frozenset
    chosen = {kind(propose(seed).index_M.tolist()) for seed in range(6)}
    assert len(chosen) > 1


def poison(state, item):
    """Returns the state with NaN in place of all that is a float of this item."""

    def poisoned(path, value):
        name = jax.tree_util.keystr(path, simple=True)
        is_float = jnp.issubdtype(value.dtype, jnp.floating)
        return value.at[item].set(jnp.nan) if is_float and per_item.is_per_item(name) else value

    return jax.tree_util.tree_map_with_path(poisoned, state)


@pytest.mark.parametrize("variant", [x for x in VARIANTS if x not in IN_ORDER])
def test_an_item_whose_numbers_are_nan_is_never_chosen(variant):
    *_, state = run(variant, 6)  # by now VADE has seen all
    for item in (0, 7):
        poisoned = poison(state, item)
        assert any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(poisoned))
        for seed in range(8):
            proposal = make(variant).propose(poisoned, jax.random.key(seed), 5)
            assert item not in proposal.index_M.tolist()


@variants
def test_the_order_of_the_feedback_does_not_matter(variant):
    _, feedback, state = run(variant, 6)
    rng = np.random.default_rng(1)
    slot_M, n_N = (rng.permutation(len(x)) for x in (feedback.index_M, feedback.group_N))
    given = [name for name in feedback if feedback[name] is not None]
    by_slot = {
        name: jax.tree.map(lambda x_M: x_M[slot_M], feedback[name])
        for name in given
        if name[-1] == "M"
    }
    by_answer = {name: feedback[name][n_N] for name in given if name[-1] == "N"}
    by_answer["group_N"] = jnp.asarray(np.argsort(slot_M)[by_answer["group_N"]])
    selector, permuted = make(variant), feedback.replace(**by_slot, **by_answer)
    chex.assert_trees_all_close(
        selector.update(state, feedback), selector.update(state, permuted), rtol=1e-5
    )
    keep_M, permuted_M = (selector.keep(state, f) for f in (feedback, permuted))
    assert keep_M[slot_M].tolist() == permuted_M.tolist()


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_one_item_and_the_whole_data_set(name):
    for num_items in (1, NUM_ITEMS):
        proposals, _, state = run(name, 3, num_items, num_items)
        for proposal in proposals:
            index_M = np.repeat(np.arange(num_items), SLOTS.get(name, 1)).tolist()
            assert sorted(proposal.index_M.tolist()) == index_M
        assert not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(state))


@variants
def test_groups_without_answers_leave_numbers(variant):
    _, feedback, state = run(variant, 6)
    zeros = {name: jnp.zeros(size(variant)) for name in ("successes_M", "trials_M")}
    feedback = feedback.replace(
        **zeros, valid_N=jnp.zeros_like(feedback.valid_N), reward_N=feedback.reward_N * 0
    )
    state = make(variant).update(state, feedback)
    assert not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(state))
    chosen = make(variant).propose(state, jax.random.key(0), size(variant)).index_M
    assert len(set(chosen.tolist())) == NUM_PROMPTS


class Even:
    """In place of random numbers: a pass rate of 1/2 is half of each group, 3/4 three of four."""

    def __init__(self, num_rollouts_M):
        self.group = np.concatenate([(np.arange(n) + 0.5) / n for n in num_rollouts_M.tolist()])

    def random(self, num_answers):
        assert num_answers == len(self.group)
        return self.group


def asked_after_a_change(name, rate_I, num_steps=200):
    """Yields the items of every step after one in which the pass rates become `rate_I`.

    In the 20 steps before, items 0 and 1 are all right, 2 and 3 all wrong, all others mixed.
    """
    selector, state = make(name), init(name)
    before_I = np.full(NUM_ITEMS, 0.5)
    before_I[:4] = 1, 1, 0, 0
    for step in range(20 + num_steps):
        proposal = selector.propose(state, jax.random.fold_in(jax.random.key(0), step), size(name))
        rates = before_I if step < 20 else rate_I
        seen = environment.feedback(proposal, rates, Even(proposal.num_rollouts_M))
        state = selector.update(state, seen)
        if step >= 20:
            yield set(seen.index_M.tolist())


# They choose what is likeliest to be mixed, and so nothing else while as much as a batch surely is.
SURE = ("arcus", "dare", "dps", "kgps")


@pytest.mark.parametrize("name", [name for name in samplers.SAMPLERS if name not in SURE])
def test_what_was_all_right_or_all_wrong_and_changes_is_taken_back(name):
    """All others stay mixed, so a pool that only shrinks never runs empty (prime-rl#2667, prime-rl#3261)."""
    rate_I, left = np.full(NUM_ITEMS, 0.75), {0, 1, 2, 3}
    rate_I[:4] = 0.5
    for asked in asked_after_a_change(name, rate_I):
        left -= asked
        if not left:
            break
    assert not left, "never asked again"


@pytest.mark.parametrize("name", SURE)
def test_what_was_all_right_or_all_wrong_is_found_once_it_is_all_that_teaches(name):
    """All others become all right or all wrong: the four that changed stay in (prime-rl#2667, #3261)."""
    rate_I = np.arange(NUM_ITEMS) % 2.0
    rate_I[:4] = 0.5
    *_, last = asked_after_a_change(name, rate_I)
    assert {0, 1, 2, 3} < last


@variants
def test_a_run_compiles_once(variant):
    made = make(variant)
    functions = [x for x in (made.propose, made.keep, made.update) if x is not base.keep_all]
    run.__wrapped__(variant, 2)  # the first brings a state from elsewhere
    sizes = [function._cache_size() for function in functions]
    run.__wrapped__(variant, 4)
    assert [function._cache_size() for function in functions] == sizes


def outside(field):
    """Yields values that the declaration of a hyperparameter leaves out."""
    if "words" in field.metadata:
        yield "no such word"
    if interval := field.metadata.get("interval"):
        ends = interval.at_least, interval.above, interval.at_most, interval.below
        numbers = [x for x in ends if x is not None and np.isfinite(x)]
        beyond = [x for end in numbers for x in (end - 1, end + 1)]
        yield from (x for x in (*beyond, float("nan")) if x not in interval)


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_values_outside_of_a_declaration_are_refused(name):
    spec = samplers.SAMPLERS[name]
    assert spec.option_names[0] == "num_rollouts"
    for field in dataclasses.fields(spec.options):
        for value in outside(field):
            with pytest.raises(ValueError, match=field.name):
                spec(**{field.name: value})


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("dapo", {"base": "mopps"}, "base"),
        ("dapo", {"base_options": {"draw": "mean"}}, "draw"),
        ("dapo", {"base_options": {"num_rollouts": 3}}, "num_rollouts"),
        ("dapo", {"base": "vade", "base_options": {"draw": "best"}}, "draw"),
        ("knapsack", {"min_rollouts": 9}, "min_rollouts"),
        ("knapsack", {"max_rollouts": 7}, "max_rollouts"),
        ("remind", {"base": "remind"}, "base"),
    ],
)
def test_values_that_do_not_go_together_are_refused(name, options, named):
    with pytest.raises(ValueError, match=named):
        samplers.SAMPLERS[name](**options)


@variants
def test_more_prompts_than_items_is_an_error(variant):
    with pytest.raises(ValueError, match="25 prompts from a data set of 24"):
        make(variant).propose(init(variant), jax.random.key(0), size(variant, 25))
