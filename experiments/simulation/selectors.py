"""Which selectors play in which worlds, and for how many rollouts: the settings of `experiments.simulate`.

An entry is a selector of the package, or the oracle, with what the arena does around it. All entries
have the same budget of rollouts, so a selector that pays for more answers makes fewer steps.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.simulation.worlds import KINDS
from vade_jax import fields, imports, samplers, types
from vade_jax.samplers import base, beta
from vade_jax.types import Array


# ------------------------------------------------------------------------------ settings
@dataclasses.dataclass(frozen=True)
class Settings(fields.Section):
    """Every setting of a simulation; lists of names are comma-separated."""

    seeds: str = "0,1,2,3,4,5,6,7"
    num_items: int = fields.number(4000, at_least=1)  # where a world says nothing else
    num_prompts: int = fields.number(128, at_least=1)  # B
    num_rollouts: int = 8  # G
    rollouts: int = fields.number(300 * 128 * 8, at_least=1)  # a selector's budget
    worlds: str = "stationary,drift,skills,skills_clean,skills_slow,skills_hard"
    selectors: str = "uniform,vade"  # of `selector`, or of vade_jax.samplers.SAMPLERS
    highlight: str = "uniform,vade"  # in the figure
    # World: its kind and that kind's constants, sizes and selectors that differ from those above.
    world: Mapping[str, Any] = fields.mapping()
    # Selector: fields of `Entry` that differ from its defaults.
    selector: Mapping[str, Any] = fields.mapping()


def words(text: str) -> list[str]:
    """Returns the names in a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raises ValueError, with the nearest known name, unless `name` is one of `known`."""
    known = sorted(known)
    if name not in known:
        hint = fields.did_you_mean(str(name), known)
        raise ValueError(f"{what} {name!r} is unknown: {hint}known are {known}")


# ------------------------------------------------------------------------------ the oracle
@dataclasses.dataclass(frozen=True)
class OracleOptions(base.Options):
    """The hyperparameters of the oracle."""

    info_gain: str = fields.choice("p(1-p)^2", *beta.INFO_GAINS)


@chex.dataclass(frozen=True)
class OracleState:
    """The true pass rates, which the arena puts in before every proposal."""

    pass_rate_I: Array  # float32


def oracle(options: OracleOptions) -> base.Sampler:
    """Returns the selector that knows every pass rate and takes the best by `info_gain`."""
    info_gain = beta.INFO_GAINS[options.info_gain]

    def init(num_items: int) -> OracleState:
        return OracleState(pass_rate_I=jnp.zeros(num_items, jnp.float32))

    def propose(state: OracleState, key: jax.Array, num_prompts: int) -> types.Proposal:
        index_M = base.top_b(info_gain(state.pass_rate_I), key, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    return base.compiled(init, propose, lambda state, feedback: state)


SELECTORS: dict[str, base.Spec] = {
    # Items have no variants here.
    **{name: x for name, x in samplers.SAMPLERS.items() if not x().needs.variants},
    "oracle": base.Spec("oracle", OracleOptions, oracle),
}


def spec_of(name: str) -> base.Spec:
    """Returns the selector of a name, or of a user's own file.

    Raises:
        ValueError: there is none.
    """
    if ":" in name:
        return samplers.find(name, "selectors")
    check_known("the selector", name, SELECTORS)
    return SELECTORS[name]


# ------------------------------------------------------------------------------ entries
@dataclasses.dataclass(frozen=True)
class Entry(fields.Section):
    """A selector and what the arena does around it. Hashable: the key of selectors and programs."""

    label: str
    name: str
    options: str = "{}"  # JSON
    # of rollouts, until as many groups as a batch has are kept
    max_rounds: int = fields.number(1, at_least=1)
    measure_first: str = fields.choice("", "paid", "free")  # all items before step 1; "": not
    measure_every: int = fields.number(0, at_least=0)  # rounds between two paid ones; 0: none

    def __post_init__(self):
        super().__post_init__()
        spec_of(self.name)

    @classmethod
    def of(cls, label: str, given: Mapping[str, Any]) -> "Entry":
        """Returns the entry that a config gives a label.

        Raises:
            ValueError: an unknown selector or setting, or a value of a wrong type or out of its range.
        """
        fields.check_type(f"selector.{label}", given, Mapping)
        known = [field.name for field in dataclasses.fields(cls) if field.name != "label"]
        for name in given:
            check_known(f"selector {label}: the setting", name, known)
        options = given.get("options", {})
        try:
            fields.check_type("options", options, Mapping)
            options = json.dumps(options, sort_keys=True)
            return cls(
                **{"label": imports.label(label), "name": label, **given, "options": options}
            )
        except ValueError as error:
            raise ValueError(f"selector {label}: {error}") from None

    @functools.cache  # noqa: B019, entries are few
    def functions(self, num_rollouts: int) -> base.Sampler:
        """Returns the selector's functions, always the same object: JAX compiles once for each.

        Raises:
            ValueError: an unknown option, or a value that the selector refuses.
        """
        spec, options = spec_of(self.name), json.loads(self.options)
        for name in options:
            known = set(spec.option_names) - {"num_rollouts"}
            check_known(f"selector {self.label}: {self.name}'s option", name, known)
        try:
            return spec(num_rollouts=num_rollouts, **options)
        except ValueError as error:
            raise ValueError(f"selector {self.label}: {error}") from None

    def check(self, num_rollouts: int) -> None:
        """Raises ValueError unless the selector gets the measurements and rounds that it is made for."""
        needs = self.functions(num_rollouts).needs
        if (measured := needs.named("measured")) and not (
            self.measure_every or self.first(num_rollouts)
        ):
            raise ValueError(
                f"selector {self.label}: {self.name} needs the {' and the '.join(measured)} of every "
                "item: set measure_every to the rounds between two measurements, or measure_first"
            )
        if needs.rounds not in (None, self.max_rounds):
            raise ValueError(
                f"selector {self.label}: max_rounds={self.max_rounds}, but {self.name} with these options is "
                f"made for {needs.rounds}: set it to that"
            )

    def first(self, num_rollouts: int) -> str:
        """Returns how all items are measured before step 1: "paid", "free", or "" where they are not.

        `measure_first` decides; where it is empty, what the selector needs.
        """
        asks = self.functions(num_rollouts).needs.passes == "first"
        return self.measure_first or ("paid" if asks else "")

    def begin(self, num_rollouts: int, category_I: np.ndarray) -> Any:
        """Returns the selector's state before anything is known."""
        functions = self.functions(num_rollouts)
        arrays = {"category": category_I} if "category" in functions.needs.named() else {}
        return functions.init(len(category_I), **arrays)


# ------------------------------------------------------------------------------ what a budget buys
@dataclasses.dataclass(frozen=True)
class Shape(fields.Section):
    """The sizes of a run."""

    num_items: int  # I
    num_prompts: int  # B
    num_rollouts: int  # G
    rollouts: int  # the budget

    def __post_init__(self):
        super().__post_init__()
        fields.Interval(at_least=2).check("num_rollouts", self.num_rollouts)
        fields.Interval(at_least=1, at_most=self.num_items).check("num_prompts", self.num_prompts)
        if self.rollouts < self.of_round:
            raise ValueError(
                f"rollouts={self.rollouts}: a step of {self.num_prompts} prompts with"
                f" {self.num_rollouts} answers takes {self.of_round}; set it to that at least"
            )

    @property
    def of_round(self) -> int:
        """Rollouts of a round."""
        return self.num_prompts * self.num_rollouts

    @property
    def of_measurement(self) -> int:
        """Rollouts of a measurement of all items."""
        return self.num_items * self.num_rollouts


class Schedule(NamedTuple):
    """Before which rounds all items are measured, and what has been paid after each round."""

    measure_U: np.ndarray  # bool
    paid_U: np.ndarray  # rollouts


def schedule(entry: Entry, shape: Shape) -> Schedule:
    """Returns as many rounds as the budget of rollouts pays for.

    Raises:
        ValueError: the budget ends before the first round behind the first measurement.
    """
    measure, paid, spent = [], [], 0
    every, first = entry.measure_every, entry.first(shape.num_rollouts)
    while True:
        again = bool(every and paid and len(paid) % every == 0)
        cost = shape.of_measurement * (again or (not paid and first == "paid"))
        if spent + cost + shape.of_round > shape.rollouts:
            break
        spent += cost + shape.of_round
        measure.append(again or (not paid and bool(first)))
        paid.append(spent)
    if not paid:
        raise ValueError(
            f"rollouts={shape.rollouts}: {entry.label} measures {shape.num_items} items"
            f" first, {shape.of_measurement} rollouts, and a step takes {shape.of_round};"
            f" set it to {shape.of_measurement + shape.of_round} at least"
        )
    return Schedule(np.array(measure), np.array(paid))


# ------------------------------------------------------------------------------ cells
@dataclasses.dataclass(frozen=True)
class Cell:
    """One selector in one world."""

    world: str
    kind: str
    constants: fields.Section
    shape: Shape
    entry: Entry
    seeds: tuple[int, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """What the result depends on, as JSON has it."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def cells(given: Settings) -> dict[str, list[Cell]]:
    """Returns the cells of every world, all checked before any is played.

    Raises:
        ValueError: an unknown world, selector (one to highlight, too) or option, a value out of range,
            too small a budget.
    """
    worlds = words(given.worlds)
    if not worlds:
        raise ValueError(f"worlds={given.worlds!r}: name one of {sorted(given.world)}")
    for label in words(given.highlight):  # need not play: the default ones are of the long list
        if ":" not in label:
            check_known("highlight: the selector", label, _labels(given))
    return {world: _cells_of(given, world) for world in worlds}


def _labels(given: Settings) -> set[str]:
    """Returns what a list of selectors may name."""
    return {*given.selector, *SELECTORS}


def _cells_of(given: Settings, world: str) -> list[Cell]:
    check_known("the world", world, given.world)
    fields.check_type(f"world.{world}", given.world[world], Mapping)
    try:
        kind, constants, shape, selectors = _parts(given, dict(given.world[world]))
    except ValueError as error:
        raise ValueError(f"world {world}: {error}") from None
    found, seeds = [], _seeds(given.seeds)
    for label in selectors:
        if ":" not in label:  # the place of a user's own: `Entry` looks there
            check_known("the selector", label, _labels(given))
        entry = Entry.of(label, given.selector.get(label, {}))
        # Both are made again when the cell is played. Here they find mistakes before any is.
        entry.check(shape.num_rollouts)
        schedule(entry, shape)
        found.append(Cell(world, kind, constants, shape, entry, seeds))
    return found


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(dict.fromkeys(int(word) for word in words(text)))
    except ValueError:
        raise ValueError(f"seeds={text!r}: numbers with commas between") from None
    if not seeds:
        raise ValueError("seeds='': give one at least, such as seeds=0,1")
    for seed in seeds:
        fields.SEED.check("seeds", seed)
    return seeds


def _parts(given: Settings, values: dict[str, Any]) -> tuple[str, fields.Section, Shape, list[str]]:
    """Returns the kind, the constants, the sizes and the selectors of a world."""
    kind = values.pop("kind", "")
    check_known("the kind", kind, KINDS)
    selectors = values.pop("selectors", "")
    fields.check_type("selectors", selectors, str)
    labels = words(selectors or given.selectors)
    if not labels:
        raise ValueError(f"selectors={given.selectors!r}: name one of {sorted(given.selector)}")
    sizes = [field.name for field in dataclasses.fields(Shape)]
    shape = Shape(**{name: values.pop(name, getattr(given, name)) for name in sizes})
    known = {field.name for field in dataclasses.fields(KINDS[kind].Constants)}
    for name in values:  # what is left
        check_known("the constant", name, known)
    return kind, KINDS[kind].Constants(**values), shape, labels
