"""The selector contract: pure functions over a frozen pytree of arrays.

A new selector is one file, an import and an entry in `samplers/__init__.py`, and one test. The file has

    a frozen dataclass of hyperparameters, derived from `Options`
    a frozen dataclass of arrays, the state
    a function from the hyperparameters to a `Sampler`, whose closure holds everything static
    SPEC, which names them

A selector declares what it needs from the run in its `Needs`, and the run settings that go with it in
its `Spec`. No other file checks for a selector's name.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays, fields, types
from vade_jax.types import Array

State = Any  # a frozen dataclass of arrays, which the selector alone looks into
S = TypeVar("S")  # that of one selector


@dataclasses.dataclass(frozen=True)
class PerItem:
    """A value of every item, which `init` takes as the argument `name`.

    It is "required", "optional", or "measured". A "measured" value may be left out if a pass over all
    items measures it.
    """

    name: str
    how: Literal["required", "optional", "measured"] = "optional"


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a selector needs from the run. The defaults fit most selectors.

    Attributes:
        items: values of every item that `init` takes.
        rounds: the number of rounds of rollouts in a step that the selector works with; None: any.
        passes: the passes over all items between steps (`trainer.passes`) that the selector works with.
            "any": any number, or none. "first": it needs one before step 1. "never": none, as it would
            take a pass for a round of a step.
        variants: whether it asks for variants of items, see `trainer.choosing`.
        uneven: whether it may ask for a different number of answers to each prompt.
        without: for the name of a need above, the option of the selector that removes it, such as
            {"rounds": "replay='next_step' of vcrl"}.
    """

    items: tuple[PerItem, ...] = ()
    rounds: int | None = None
    passes: Literal["any", "first", "never"] = "any"
    variants: bool = False
    uneven: bool = False
    without: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def named(self, *how: str) -> tuple[str, ...]:
        """Returns the names in `items`; only those with one of these values of `how`, if given."""
        return tuple(x.name for x in self.items if not how or x.how in how)

    def or_without(self, need: str) -> str:
        """Returns the end of a message about a need: the option that removes it, or ""."""
        return f", or give the option {self.without[need]}" if need in self.without else ""


class Sampler(NamedTuple):
    """A selector: five pure functions, and what they need from the run.

    Attributes:
        init: (num_items, **arrays) -> state.
        propose: (state, key, num_prompts) -> Proposal. `num_prompts` is static.
        keep: (state, feedback) -> keep_M, the groups to train on. `state` is the one that proposed them.
        update: (state, feedback) -> state.
        believe: (state, proposal) -> what the selector expects of the chosen prompts before their answers
            are known, as arrays with one entry per prompt. Every posterior has "posterior_mean" and
            "prob_mixed". "alpha" and "beta", the counts of a Beta posterior, go to the rollout log. A
            name with a slash is a metric of this selector; it is NaN where it does not apply.
        needs: what the selector needs from the run.
    """

    init: Callable[..., State]
    propose: Callable[[State, jax.Array, int], types.Proposal]
    keep: Callable[[State, types.Feedback], Array]
    update: Callable[[State, types.Feedback], State]
    believe: Callable[[State, types.Proposal], Mapping[str, Array]]
    needs: Needs = Needs()

    @property
    def drops(self) -> bool:
        """Whether `keep` may return False for a group."""
        return self.keep is not KEEP_ALL


# ------------------------------------------------------------------------------ hyperparameters
@dataclasses.dataclass(frozen=True)
class Options(fields.Section):
    """The hyperparameters that every selector has."""

    # G, answers to a prompt
    num_rollouts: int = fields.number(8, at_least=2, why="as a group of one has no advantage")


@dataclasses.dataclass(frozen=True)
class AroundOptions(Options):
    """The hyperparameters of a selector that wraps another one, see `below`."""

    base: str = "uniform"  # Name of the wrapped selector
    base_options: Mapping[str, Any] = fields.mapping()  # Hyperparameters of the wrapped selector


@dataclasses.dataclass(frozen=True, eq=False)
class Spec:
    """An entry of `SAMPLERS`: builds a selector from its hyperparameters."""

    name: str
    options: type[Options]
    build: Callable[[Any], Sampler]  # takes an instance of `options`
    # Settings of a run (dotted names) that go with this selector, and their values.
    goes_with: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of the hyperparameters, in order."""
        return tuple(field.name for field in dataclasses.fields(self.options))

    def __call__(self, **hyperparameters: Any) -> Sampler:
        """Returns the selector.

        Raises:
            ValueError: a hyperparameter is unknown or out of its range.
        """
        known = self.option_names
        if unknown := [name for name in hyperparameters if name not in known]:
            raise ValueError(
                f"{self.name} has no option {unknown[0]!r}: it takes {', '.join(known)}"
            )
        return self.build(self.options.from_dict(hyperparameters))


def below(specs: Mapping[str, Spec], options: AroundOptions) -> Sampler:
    """Returns the selector that `options` wraps, with the G of `options` and, if both have one, its seed.

    Raises:
        ValueError: `base` is not in `specs`, or has no such option.
    """
    fields.check_word("base", options.base, specs)
    spec = specs[options.base]
    known = [name for name in spec.option_names if name != "num_rollouts"]
    for name in options.base_options:
        if name not in known:
            raise ValueError(
                f"base_options: {options.base} has no option {name!r}: "
                f"{fields.did_you_mean(name, known)}it takes {', '.join(known) or 'none'}"
            )
    of_both = {"num_rollouts": options.num_rollouts}
    if "seed" in known and hasattr(options, "seed"):
        of_both["seed"] = getattr(options, "seed")  # noqa: B009 (not of every `AroundOptions`)
    return spec(**of_both | dict(options.base_options))


# ------------------------------------------------------------------------------ arrays of a state
def leaves(state: State) -> dict[str, Array]:
    """Returns the arrays of a state by name; `base.alpha_I` is one of the wrapped selector.

    Fields that are None are left out.
    """
    found = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in found}


def is_per_item(name: str) -> bool:
    """Returns whether the first axis of an array with this name is the items."""
    return re.search(r"_I\d*$", name) is not None


def check_per_item(selector: str, name: str, values: Any, num_items: int) -> None:
    """Raises ValueError unless `values` has one entry for each item, and none of them is None or NaN."""
    if values is None:
        raise ValueError(
            f"{selector} needs the {name} of every item:"
            f" call init({num_items}, {name}=...) with {num_items} values"
        )
    if np.shape(values) != (num_items,):
        raise ValueError(
            f"{name} has shape {np.shape(values)}: give one value for each of the {num_items} items"
        )
    value_I = np.asarray(values, object)  # an array of strings would turn NaN into "nan"
    missing = [i for i, value in enumerate(value_I) if value is None or value != value]
    if missing:
        raise ValueError(
            f"{name} of item {missing[0]} is {value_I[missing[0]]}: {len(missing)} of {num_items} items"
            f" lack one, and {selector} needs it of every item; give it or leave them out"
        )


def check_rates(selector: str, name: str, values: Any, num_items: int) -> None:
    """Raises ValueError unless `values` has a number from 0 to 1 for each item."""
    check_per_item(selector, name, values, num_items)
    for i, value in enumerate(np.asarray(values).tolist()):
        if not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(
                f"{name} of item {i} is {value!r}: {selector} wants numbers from 0 to 1"
            )


# The metadata that names an item's category: "family,level" in built-in data, "subset" in files.
BY_CATEGORY = "family,level|subset"


def categories(selector: str, category: Any, num_items: int) -> tuple[np.ndarray, int]:
    """Returns int32 `category_I`, numbered from 0, and the number of categories, A.

    It cannot be compiled: categories may be names, and A is a shape.

    Raises:
        ValueError: not every item has a category.
    """
    check_per_item(selector, "category", category, num_items)
    known, category_I = np.unique(np.asarray(category), return_inverse=True)
    return category_I.astype(np.int32), len(known)


# ------------------------------------------------------------------------------ choosing
def top_b(score_I: Array, key: jax.Array, num_prompts: int) -> jax.Array:
    """Returns the `num_prompts` items with the highest scores, in random order, without duplicates.

    NaN ranks below every number.

    Args:
        score_I: any floats, including infinities.
        key: decides which of several tied items get in, and the order. The order is random so that the
            mini-batches cut from it are alike.
        num_prompts: B, at most the number of items.

    Returns:
        int32 index_M.
    """
    chex.assert_rank(score_I, 1)
    check_num_prompts(num_prompts, len(score_I))
    score_I = jnp.where(jnp.isnan(score_I), -jnp.inf, score_I)
    tie_key, order_key = jax.random.split(key)
    random_I = jax.random.uniform(tie_key, score_I.shape)
    # A minimum, not [-1]: XLA on CPU turns a slice of top_k into a sort of all items, 211 ms for 1 M.
    threshold = jnp.min(score_I[jax.lax.top_k(score_I, num_prompts)[1]])
    # top_k alone breaks ties by index, which would favour the start of the data set. So a second top_k
    # ranks items by a random number: in [1, 2) above the threshold, so that all get in; in [0, 1) at the
    # threshold; -1 below it.
    rank_I = jnp.where(score_I == threshold, random_I, -1.0)
    rank_I = jnp.where(score_I > threshold, 1 + random_I, rank_I)
    index_M = jax.lax.top_k(rank_I, num_prompts)[1]
    return jax.random.permutation(order_key, index_M)


def check_num_prompts(num_prompts: int, num_items: int) -> None:
    """Raises ValueError unless there are `num_prompts` different items to choose."""
    if not 1 <= num_prompts <= num_items:
        raise ValueError(
            f"cannot choose {num_prompts} prompts of a data set of {num_items}:"
            f" set the prompts per step (B) to a value from 1 to {num_items}"
        )


def share_of(share: float, num_prompts: int) -> int:
    """Returns `share` x `num_prompts`, rounded down: 29 for 0.29 x 100. `share` may be above 1.

    In floats that product is 28.999999999999996, so 1e-6 is added before rounding.
    """
    return math.floor(share * num_prompts + 1e-6)


def least_visited(visits_I: Array) -> jax.Array:
    """Returns scores that rank the least visited items first, so that every epoch is a shuffled pass."""
    return (jnp.min(visits_I) - visits_I).astype(jnp.float32)


def gumbel_scores(log_weight_I: Array, key: jax.Array) -> Array:
    """Returns scores whose B largest are a weighted draw without replacement (Gumbel top-k).

    A score is log w + Gumbel noise. The largest one is a draw in proportion to w, the next one is such a
    draw among the other items, and so on. Weights need not sum to 1. An item of weight 0 is only chosen
    if too few others exist.

    Args:
        log_weight_I: log w, -inf for a weight of 0; NaN stays NaN.
        key: key of the noise; it must differ from the key of `top_b`.
    """
    return log_weight_I + jax.random.gumbel(key, log_weight_I.shape)


def mix_uniform(score_I: Array, key: jax.Array, num_uniform: int) -> Array:
    """Returns the scores with +inf for `num_uniform` items that are drawn uniformly.

    An item with score NaN is drawn only if too few others exist.
    """
    if num_uniform == 0:
        return score_I
    even_I = jnp.where(jnp.isnan(score_I), score_I, 0.0)
    index_M = top_b(even_I, key, min(num_uniform, len(score_I)))
    return jnp.asarray(score_I).at[index_M].set(jnp.inf)


def same_num_rollouts(index_M: Array, num_rollouts: int) -> types.Proposal:
    """Returns the proposal that asks for the same number of answers to every prompt."""
    num_M = jnp.full(index_M.shape, num_rollouts, jnp.int32)
    return types.Proposal(index_M=index_M, num_rollouts_M=num_M)


# ------------------------------------------------------------------------------ outcomes, keeping
def outcome(feedback: types.Feedback) -> Array:
    """Returns 1 for groups that are all right, -1 for all wrong, 0 for mixed or without valid answers."""
    asked_M = feedback.trials_M > 0
    right_M = asked_M & (feedback.successes_M == feedback.trials_M)
    wrong_M = asked_M & (feedback.successes_M == 0)
    return right_M.astype(jnp.int32) - wrong_M.astype(jnp.int32)


def is_pass(feedback: types.Feedback, num_items: int) -> bool:
    """Returns whether the feedback is of a pass over all items (`trainer.passes`): it has every item.

    The number of groups is a static shape, so `update` compiles to one program for steps and one for
    passes.
    """
    return len(feedback.index_M) == num_items


def still_unseen(unseen_I: jax.Array, feedback: types.Feedback) -> jax.Array:
    """Returns which items the warm-up has yet to visit; a prompt without valid answers stays unseen."""
    index_M = feedback.index_M
    return unseen_I.at[index_M].set(unseen_I[index_M] & (feedback.trials_M == 0))


def keep_all(state: State, feedback: types.Feedback) -> Array:
    """Returns True for every group: the `keep` of a selector that filters nothing."""
    del state
    return jnp.ones(feedback.index_M.shape, bool)


def keep_mixed(state: State, feedback: types.Feedback) -> Array:
    """Returns True for groups with both right and wrong answers."""
    del state
    return feedback.mixed_M


def keep_varied(state: State, feedback: types.Feedback) -> Array:
    """Returns True for groups whose training rewards differ, so that their advantages are not all 0."""
    del state
    num_groups = len(feedback.index_M)
    return arrays.varies(feedback.reward_N, feedback.group_N, num_groups, feedback.valid_N)


KEEP_ALL = jax.jit(keep_all)


# ------------------------------------------------------------------------------ putting together
def no_belief(state: State, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns nothing: the `believe` of a selector without a posterior."""
    del state, proposal
    return {}


def compiled(
    init: Callable[..., S],
    propose: Callable[[S, jax.Array, int], types.Proposal],
    update: Callable[[S, types.Feedback], S],
    *,
    keep: Callable[[S, types.Feedback], Array] = keep_all,
    believe: Callable[[S, types.Proposal], Mapping[str, Array]] = no_belief,
    needs: Needs = Needs(),
) -> Sampler:
    """Returns a selector with its functions compiled.

    `init` is not compiled: it runs once and may look at the values of its arrays. Its state is turned
    into jax arrays.
    """

    def initial(num_items: int, **arrays: Any) -> State:
        # `jnp.array` copies, so that no two arrays of the state share a buffer.
        return jax.tree.map(jnp.array, init(num_items, **arrays))

    return Sampler(
        init=initial,
        propose=jax.jit(propose, static_argnames="num_prompts"),
        keep=KEEP_ALL if keep is keep_all else jax.jit(keep),
        update=jax.jit(update),
        believe=jax.jit(believe),
        needs=needs,
    )


# ------------------------------------------------------------------------------ reporting
METRICS = {
    "posterior_mean": "vade/posterior_mean",
    "prob_mixed": "vade/predicted_effective_ratio",
}


def belief_metrics(belief: Mapping[str, Array]) -> types.Metrics:
    """Returns metrics: the mean over the prompts of each value that `Sampler.believe` returned.

    If `believe` was given the state that made the proposal, `vade/predicted_effective_ratio` is a
    forecast from before the rollouts, and shows whether the posterior is calibrated.
    """
    metrics = {METRICS[x]: float(np.mean(belief[x])) for x in METRICS if x in belief}
    for name in belief:
        if "/" in name:
            value_M = np.asarray(belief[name])
            value_M = value_M[~np.isnan(value_M)]
            if value_M.size:
                metrics[name] = float(value_M.mean())
    return metrics
