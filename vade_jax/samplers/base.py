"""The selector contract: pure functions over a frozen pytree of arrays.

A new selector is one file, an import and an entry in `samplers/__init__.py`, and one test. The file has

    a frozen dataclass of hyperparameters, derived from `Options`
    a frozen dataclass of arrays, the state
    a function from the first to a `Sampler`, whose closure holds all that is static
    SPEC, which names them

What a selector needs of the run is declared in its `Needs`, and the run settings that go with it in its
`Spec`: no other file asks for a selector's name.
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
    """A value of every item that `init` takes as an argument of this name.

    It is "required", "optional", or "measured": then it may be left out where a pass over all items
    measures it.
    """

    name: str
    how: Literal["required", "optional", "measured"] = "optional"


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a selector needs of the run around it, and asks of it. The defaults are those of most selectors.

    Attributes:
        items: values of every item that `init` takes.
        rounds: the rounds of rollouts in a step that the selector is made for; None: any number.
        passes: whether passes over all items come between the steps (`trainer.passes`): "any" number
            may, the "first" one comes before step 1, or "never", as the selector would take a pass
            for a round of a step.
        variants: whether it asks for variants of items, see `trainer.choosing`.
        uneven: whether the prompts of a proposal may get different numbers of answers.
        without: options that do without one of the above, by its name, such as
            {"rounds": "replay='next_step' of vcrl"}.
    """

    items: tuple[PerItem, ...] = ()
    rounds: int | None = None
    passes: Literal["any", "first", "never"] = "any"
    variants: bool = False
    uneven: bool = False
    without: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def named(self, *how: str) -> tuple[str, ...]:
        """Returns the names of `items` of these sorts, of all by default."""
        return tuple(x.name for x in self.items if not how or x.how in how)

    def or_without(self, need: str) -> str:
        """Returns the other way out for a message about a need, as `without` has it, or ""."""
        return f", or give the option {self.without[need]}" if need in self.without else ""


class Sampler(NamedTuple):
    """A selector: four pure functions, what it thinks, and what it needs.

    Attributes:
        init: (num_items, **arrays) -> state.
        propose: (state, key, num_prompts) -> Proposal. `num_prompts` is static.
        keep: (state, feedback) -> keep_M, the groups to train on.
        update: (state, feedback) -> state.
        believe: (state, proposal) -> what the selector thinks of the chosen prompts before their
            answers are there, arrays with one entry a prompt. "posterior_mean" and "prob_mixed" are
            what every posterior can tell; "alpha" and "beta", the counts of a Beta posterior, go to
            the rollout log; a name with a slash is a metric of the selector's own, NaN where it does
            not apply.
        needs: of the run.
    """

    init: Callable[..., State]
    propose: Callable[[State, jax.Array, int], types.Proposal]
    keep: Callable[[State, types.Feedback], Array]
    update: Callable[[State, types.Feedback], State]
    believe: Callable[[State, types.Proposal], Mapping[str, Array]]
    needs: Needs = Needs()

    @property
    def drops(self) -> bool:
        """Whether `keep` may be False."""
        return self.keep is not KEEP_ALL


# ------------------------------------------------------------------------------ hyperparameters
@dataclasses.dataclass(frozen=True)
class Options(fields.Section):
    """The hyperparameters that every selector has."""

    # G, answers to a prompt
    num_rollouts: int = fields.number(8, at_least=2, why="as a group of one has no advantage")


@dataclasses.dataclass(frozen=True)
class AroundOptions(Options):
    """The hyperparameters that every selector around another one has, see `below`."""

    base: str = "uniform"  # the name of the other one
    base_options: Mapping[str, Any] = fields.mapping()  # its hyperparameters


@dataclasses.dataclass(frozen=True, eq=False)
class Spec:
    """What `SAMPLERS` holds of a selector: how its hyperparameters become a `Sampler`."""

    name: str
    options: type[Options]
    build: Callable[[Any], Sampler]  # from an instance of `options`
    # Dotted settings of a run to the values that go with this selector.
    goes_with: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def option_names(self) -> tuple[str, ...]:
        """The hyperparameters, in order."""
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
    """Returns the selector that `options` name. G, and the seed if there is one, are those of `options`.

    Raises:
        ValueError: it is none of `specs`, or has no such option.
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
    """Returns the arrays of a state by name, `base.alpha_I` for those of a selector inside of it.

    A field that the options leave empty is not among them.
    """
    found = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in found}


def is_per_item(name: str) -> bool:
    """Returns whether an array of this name has one entry an item along its first axis."""
    return re.search(r"_I\d*$", name) is not None


def check_per_item(selector: str, name: str, values: Any, num_items: int) -> None:
    """Raises ValueError unless `values` has one, not None or NaN, for each of `num_items` items."""
    if values is None:
        raise ValueError(
            f"{selector} needs the {name} of every item:"
            f" call init({num_items}, {name}=...) with {num_items} values"
        )
    if np.shape(values) != (num_items,):
        raise ValueError(
            f"{name} has shape {np.shape(values)}: give one value for each of the {num_items} items"
        )
    value_I = np.asarray(values, object)  # an array of strings would make one of NaN
    missing = [i for i, value in enumerate(value_I) if value is None or value != value]
    if missing:
        raise ValueError(
            f"{name} of item {missing[0]} is {value_I[missing[0]]}: {len(missing)} of {num_items} items"
            f" lack one, and {selector} needs it of every item; give it or leave them out"
        )


def check_rates(selector: str, name: str, values: Any, num_items: int) -> None:
    """Raises ValueError unless `values` has a number from 0 to 1 for each of `num_items` items."""
    check_per_item(selector, name, values, num_items)
    for i, value in enumerate(np.asarray(values).tolist()):
        if not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(
                f"{name} of item {i} is {value!r}: {selector} wants numbers from 0 to 1"
            )


# What names an item's category in built-in data, and in files.
BY_CATEGORY = "family,level|subset"


def categories(selector: str, category: Any, num_items: int) -> tuple[np.ndarray, int]:
    """Returns int32 `category_I`, counted from 0, and how many there are.

    Done outside of a compiled `init`: categories may be names, and A is a shape.

    Raises:
        ValueError: not every item has one.
    """
    check_per_item(selector, "category", category, num_items)
    known, category_I = np.unique(np.asarray(category), return_inverse=True)
    return category_I.astype(np.int32), len(known)


# ------------------------------------------------------------------------------ choosing
def top_b(score_I: Array, key: jax.Array, num_prompts: int) -> jax.Array:
    """Returns the `num_prompts` items of highest score, in random order, without duplicates.

    NaN loses against every number.

    Args:
        score_I: any floats, infinities too.
        key: decides which of several tied items get in, and the order: mini-batches cut from it are
            alike.
        num_prompts: B, at most as many as there are items.

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
    # top_k alone breaks ties by index, which would favour the head of the data set. So a second one:
    # above the threshold, all are in [1, 2); at it, the luckiest of [0, 1) get in; below it, none.
    rank_I = jnp.where(score_I == threshold, random_I, -1.0)
    rank_I = jnp.where(score_I > threshold, 1 + random_I, rank_I)
    index_M = jax.lax.top_k(rank_I, num_prompts)[1]
    return jax.random.permutation(order_key, index_M)


def check_num_prompts(num_prompts: int, num_items: int) -> None:
    """Raises ValueError unless so many different items exist."""
    if not 1 <= num_prompts <= num_items:
        raise ValueError(
            f"cannot choose {num_prompts} prompts of a data set of {num_items}:"
            f" set the prompts per step (B) to a value from 1 to {num_items}"
        )


def share_of(share: float, num_prompts: int) -> int:
    """Returns the whole places that a share of a batch has, or a multiple of it: 29 of 0.29 x 100.

    In floats that product is 28.999999999999996, hence the 1e-6 before it is rounded down.
    """
    return math.floor(share * num_prompts + 1e-6)


def least_visited(visits_I: Array) -> jax.Array:
    """Returns scores that put the items visited least first: an epoch is a shuffled pass."""
    return (jnp.min(visits_I) - visits_I).astype(jnp.float32)


def gumbel_scores(log_weight_I: Array, key: jax.Array) -> Array:
    """Returns scores of which the B largest are a draw by weight, without replacement (Gumbel top-k).

    They are log w + Gumbel noise: first one item is drawn with probability w over the sum, then one of
    the others with what is left, and so on. Weights need not sum to 1; one of 0 only fills a batch.

    Args:
        log_weight_I: log w, -inf for a weight of 0; NaN stays.
        key: of the noise, another one than that of `top_b`.
    """
    return log_weight_I + jax.random.gumbel(key, log_weight_I.shape)


def mix_uniform(score_I: Array, key: jax.Array, num_uniform: int) -> Array:
    """Returns the scores with +inf for `num_uniform` items, each as likely as any other.

    NaN stays, where that many others exist.
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
    """Returns 1 for groups all right, -1 for all wrong, 0 for mixed ones and those without answers."""
    asked_M = feedback.trials_M > 0
    right_M = asked_M & (feedback.successes_M == feedback.trials_M)
    wrong_M = asked_M & (feedback.successes_M == 0)
    return right_M.astype(jnp.int32) - wrong_M.astype(jnp.int32)


def is_pass(feedback: types.Feedback, num_items: int) -> bool:
    """Returns whether the answers are of a pass over all items: `trainer.passes`.

    Sizes are static, so steps and passes are two programs.
    """
    return len(feedback.index_M) == num_items


def still_unseen(unseen_I: jax.Array, feedback: types.Feedback) -> jax.Array:
    """Returns what a warm-up has still to visit: a prompt without valid answers stays unseen."""
    index_M = feedback.index_M
    return unseen_I.at[index_M].set(unseen_I[index_M] & (feedback.trials_M == 0))


def keep_all(state: State, feedback: types.Feedback) -> Array:
    """Returns True for every group: the `keep` of a selector that filters nothing."""
    del state
    return jnp.ones(feedback.index_M.shape, bool)


def keep_mixed(state: State, feedback: types.Feedback) -> Array:
    """Returns True for groups of right and wrong answers."""
    del state
    return feedback.mixed_M


def keep_varied(state: State, feedback: types.Feedback) -> Array:
    """Returns True for groups whose training rewards are not all equal: some advantage is not 0."""
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

    `init` runs once and may look at its arrays, so it is left as it is; its state is made of jax arrays.
    """

    def initial(num_items: int, **arrays: Any) -> State:
        return jax.tree.map(jnp.array, init(num_items, **arrays))  # a buffer each

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
    """Returns the means of what `Sampler.believe` has said.

    With the state that made the proposal, `vade/predicted_effective_ratio` is a forecast, made before
    the rollouts: it shows whether the posterior is calibrated.
    """
    metrics = {METRICS[x]: float(np.mean(belief[x])) for x in METRICS if x in belief}
    for name in belief:
        if "/" in name:
            value_M = np.asarray(belief[name])
            value_M = value_M[~np.isnan(value_M)]
            if value_M.size:
                metrics[name] = float(value_M.mean())
    return metrics
