"""The contract of a selector: pure functions over a frozen pytree of arrays.

A selector chooses prompts. Its type is called `Sampler`, after the data samplers that it replaces; it has
nothing to do with the sampling of tokens.

A new selector is one file, an import and an entry in `samplers/__init__.py`, and one test. The file has

    <Name>Options   a frozen dataclass of hyperparameters, derived from `Options`
    <Name>State     a frozen dataclass of arrays
    selector        a function from the options to a `Sampler`, whose closure holds everything static
    SPEC            the `Spec` that names them, and the run settings that go with it

A selector declares what it needs from its loop in its `Needs`, which `require` compares with what the loop
has. No other file of the package checks for a selector's name.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays, fields, types
from vade_jax.types import Array

State = Any  # a frozen dataclass of arrays, opaque to all but the selector
S = TypeVar("S")  # that of one selector


@dataclasses.dataclass(frozen=True)
class PerItem:
    """A value of every item, which `init` takes as the argument `name`.

    It is "required", "optional", "measured" or "states". A "measured" value may be left out if a pass over
    all items measures it. One of "states" is a vector; if it is left out, the run takes the policy's
    hidden state at the end of each prompt, before step 1.
    """

    name: str
    how: Literal["required", "optional", "measured", "states"] = "optional"


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a selector needs from the run. The defaults fit most selectors."""

    items: tuple[PerItem, ...] = ()  # values of every item that `init` takes
    rounds: int | None = None  # rounds of rollouts that a step must have; None: any number
    # Passes over all items between steps (`Collector.measure`). "any": as many as the run likes. "first":
    # there must be one before step 1. "never": none, because `update` could not tell them from rounds.
    passes: Literal["any", "first", "never"] = "any"
    variants: bool = False  # it asks for variants of items, see `trainer.choosing`
    places: int = 1  # of a batch that an item takes: 1, and 1 for each variant
    uneven: bool = False  # it may ask for more answers to one prompt than to another
    lengths: bool = False  # it learns from the lengths of answers
    weights: bool = False  # it multiplies the advantages of groups, see `types.Proposal.weight_M`
    # The option that removes a need above, such as {"rounds": "replay='next_step' of vcrl"}, for messages
    removed_by: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def named(self, *how: str) -> tuple[str, ...]:
        """Returns the names in `items`; only those with one of these values of `how`, if given."""
        return tuple(x.name for x in self.items if not how or x.how in how)

    def or_remove(self, need: str) -> str:
        """Returns the end of a message about a need: the option that removes it, or ""."""
        return f", or give the option {self.removed_by[need]}" if need in self.removed_by else ""


ASKS = {
    "variants": "variants of items",
    "uneven": "more answers to one item than to another",
    "weights": "weights on the advantages of groups",
    "lengths": "the lengths of answers",
}


def require(
    name: str,
    needs: Needs,
    *,
    arrays: Collection[str] = (),
    rounds: int = 1,
    passes: bool = False,
    lacks: Collection[str] = (),
    hints: Mapping[str, str] = {},
) -> None:
    """Checks that a loop has what the selector `name` needs, before anything is rolled out.

    Args:
        name: of the selector, for messages.
        needs: those of the selector.
        arrays: names of the values of every item that the loop has.
        rounds: rounds of rollouts in its steps.
        passes: whether it makes passes over all items, the first one before step 1.
        lacks: the names in `ASKS` that it cannot do.
        hints: how its user can fix "arrays", "rounds" and "passes".

    Raises:
        ValueError: names the need, and what meets or removes it.
    """

    def check(is_met: bool, need: str, why: str) -> None:
        if not is_met:
            hint = hints.get(need, "choose another selector")
            raise ValueError(f"{name} {why}: {hint}{needs.or_remove(need)}")

    known = needs.named()
    for array in arrays:
        check(array in known, "", f"takes {', '.join(known) or 'no array'}, not {array!r}")
    measured = () if passes else ("measured",)
    missing = [x for x in needs.named("required", *measured) if x not in arrays]
    check(not missing, "arrays", f"needs the {' and the '.join(missing)} of every item")
    for need in lacks:
        check(not getattr(needs, need), need, f"needs {ASKS[need]}, which this loop lacks")
    check(needs.passes != "first" or passes, "passes", "begins with a pass over all items")
    reason = "treats all answers that it sees as those of one batch"
    check(needs.passes != "never" or not passes, "passes", reason)
    check(
        needs.rounds in (None, rounds), "rounds", f"has {needs.rounds} rounds a step, not {rounds}"
    )


class Sampler(NamedTuple):
    """A selector: five pure functions, and what they need from the run.

    Attributes:
        init: (num_items, **values) -> state, from the values of `Needs.items`.
        propose: (state, key, num_prompts) -> Proposal. `num_prompts` is static.
        keep: (state, feedback) -> keep_M, the groups to train on. `state` is the one that proposed them.
        update: (state, feedback) -> state.
        believe: (state, proposal) -> a forecast for the chosen prompts, made before they are answered, as
            arrays with one entry per prompt. "posterior_mean" and "prob_mixed" become metrics; every
            posterior has them. "alpha" and "beta", the counts of a Beta posterior, go to the rollout log.
            A name with a slash is a metric of this selector alone, averaged over the entries that are not
            NaN.
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
        return self.keep is not keep_all


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
        return self.build(self.options.from_dict(hyperparameters))


def below(specs: Mapping[str, Spec], options: AroundOptions) -> Sampler:
    """Returns the selector that `options` wraps, with the G of `options` and, if both have one, its seed."""
    fields.check_word("base", options.base, specs)
    spec = specs[options.base]
    if "num_rollouts" in options.base_options:
        raise ValueError("base_options has num_rollouts, which is the same for both: leave it out")
    both = {"num_rollouts", "seed"}.intersection(vars(options), spec.option_names)
    return spec(**{name: vars(options)[name] for name in both} | dict(options.base_options))


def outcome(feedback: types.Feedback) -> Array:
    """Returns 1 for groups that are all right, -1 for all wrong, 0 for mixed or without valid answers."""
    asked_M = feedback.trials_M > 0
    right_M = asked_M & (feedback.successes_M == feedback.trials_M)
    wrong_M = asked_M & (feedback.successes_M == 0)
    return right_M.astype(jnp.int32) - wrong_M.astype(jnp.int32)


def is_pass(feedback: types.Feedback, num_items: int) -> bool:
    """Returns whether the feedback is that of a pass over all items (`Collector.measure`).

    Its size decides: a step that rolls out the entire data set looks like a pass. The size is a static
      shape, so `update` compiles to one program for steps and one for passes.
    """
    return len(feedback.index_M) == num_items


def keep_all(state: State, feedback: types.Feedback) -> Array:
    """Returns True for every group: the `keep` of a selector that filters nothing."""
    return np.ones(feedback.index_M.shape, bool)


def keep_mixed(state: State, feedback: types.Feedback) -> Array:
    """Returns True for groups with both right and wrong answers."""
    return feedback.mixed_M


def keep_varied(state: State, feedback: types.Feedback) -> Array:
    """Returns True for groups whose training rewards differ, so that their advantages are not all 0."""
    num_groups = len(feedback.index_M)
    return arrays.varies(feedback.reward_N, feedback.group_N, num_groups, feedback.valid_N)


def compiled(
    init: Callable[..., S],
    propose: Callable[[S, jax.Array, int], types.Proposal],
    update: Callable[[S, types.Feedback], S],
    *,
    keep: Callable[[S, types.Feedback], Array] = keep_all,
    believe: Callable[[S, types.Proposal], Mapping[str, Array]] = lambda *_: {},  # no posterior
    needs: Needs = Needs(),
) -> Sampler:
    """Returns a selector with its functions compiled.

    `init` is not compiled: it runs once and may look at the values of its arrays, and its state becomes jax
    arrays.
    """

    def initial(num_items: int, **values: Any) -> State:
        # `jnp.array` copies, so that no two arrays of the state share a buffer.
        return jax.tree.map(jnp.array, init(num_items, **values))

    return Sampler(
        init=initial,
        propose=jax.jit(propose, static_argnums=2),
        keep=keep if keep is keep_all else jax.jit(keep),
        update=jax.jit(update),
        believe=jax.jit(believe),
        needs=needs,
    )


METRICS = {"posterior_mean": "vade/posterior_mean", "prob_mixed": "vade/predicted_effective_ratio"}


def belief_metrics(belief: Mapping[str, Array]) -> types.Metrics:
    """Returns metrics: the mean over the prompts of each value that `Sampler.believe` returned."""
    metrics = {METRICS[x]: float(np.mean(belief[x])) for x in METRICS if x in belief}
    own = {name: np.asarray(x) for name, x in belief.items() if "/" in name}
    return metrics | {k: float(np.nanmean(x)) for k, x in own.items() if not np.isnan(x).all()}
