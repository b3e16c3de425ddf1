"""The settings of `experiments.simulate`: which selectors play in which worlds, for how many rollouts.

An entry is a selector of the package, or the oracle, together with what the arena does for it. All entries
have the same budget of rollouts, so a selector that pays for more answers takes fewer steps.
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

from experiments.arenas.simulation.worlds import KINDS
from vade_jax import fields, imports, samplers, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.types import Array


# ------------------------------------------------------------------------------ settings
@dataclasses.dataclass(frozen=True)
class Settings(fields.Section):
    """Every setting of a simulation; lists of names are comma-separated."""

    seeds: str = "0,1,2,3,4,5,6,7"
    num_items: int = fields.number(
        4000, at_least=1, below=1e9
    )  # unless a world sets another number
    num_prompts: int = fields.number(128, at_least=1)  # B
    num_rollouts: int = 8  # G
    rollouts: int = fields.number(300 * 128 * 8, at_least=1)  # a selector's budget
    worlds: str = "stationary,drift,skills,skills_clean,skills_slow,skills_hard"
    selectors: str = "uniform,vade"  # names in `selector`, or in vade_jax.samplers.SAMPLERS
    highlight: str = "uniform,vade"  # drawn in colour in the figure
    # World -> its kind, the kind's constants, and sizes and selectors that differ from those above.
    world: Mapping[str, Any] = fields.mapping()
    # Selector -> fields of `Entry` that differ from their defaults.
    selector: Mapping[str, Any] = fields.mapping()


# Keys are made for all seeds up to the largest.
_SEED = fields.Interval(at_least=0, below=100_000, why="as it costs memory")


def words(text: str) -> list[str]:
    """Returns the names in a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raises ValueError unless `name` is one of `known`; the message has the nearest known name."""
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
    """The true pass rates, which the arena sets before every proposal."""

    pass_rate_I: Array  # float32


def oracle(options: OracleOptions) -> base.Sampler:
    """Returns the selector that knows every pass rate and takes the items with the best `info_gain`."""
    info_gain = beta.INFO_GAINS[options.info_gain]

    def init(num_items: int) -> OracleState:
        return OracleState(pass_rate_I=jnp.zeros(num_items, jnp.float32))

    def propose(state: OracleState, key: jax.Array, num_prompts: int) -> types.Proposal:
        index_M = ranking.top_b(info_gain(state.pass_rate_I), key, num_prompts)
        return ranking.same_num_rollouts(index_M, options.num_rollouts)

    return base.compiled(init, propose, lambda state, feedback: state)


SELECTORS: dict[str, base.Spec] = {
    # Simulated items have no variants.
    **{name: x for name, x in samplers.SAMPLERS.items() if not x().needs.variants},
    "oracle": base.Spec("oracle", OracleOptions, oracle),
}


def spec_of(name: str) -> base.Spec:
    """Returns the selector with a name, which may be from a user's file.

    Raises:
        ValueError: there is no such selector.
    """
    if ":" in name:
        return samplers.find(name, "selectors")
    check_known("the selector", name, SELECTORS)
    return SELECTORS[name]


# ------------------------------------------------------------------------------ entries
@dataclasses.dataclass(frozen=True)
class Entry(fields.Section):
    """A selector and what the arena does for it. Hashable: the cache key of selectors and programs."""

    label: str
    name: str
    options: str = "{}"  # JSON
    # The most rounds of rollouts to collect a batch of kept groups.
    max_rounds: int = fields.number(1, at_least=1)
    measure_first: str = fields.choice("", "paid", "free")  # a pass before step 1; "": none
    measure_every: int = fields.number(0, at_least=0)  # rounds between two paid passes; 0: none

    def __post_init__(self):
        super().__post_init__()
        spec_of(self.name)

    @classmethod
    def of(cls, label: str, given: Mapping[str, Any]) -> "Entry":
        """Returns the entry for a label of a config.

        Raises:
            ValueError: the selector or a setting is unknown, or a value has a wrong type or is out of range.
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
        """Returns the selector's functions, always as the same object, so that JAX compiles them once.

        Raises:
            ValueError: an option is unknown, or the selector refuses its value.
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
        """Raises ValueError unless the selector gets the measurements and rounds that it needs."""
        needs = self.functions(num_rollouts).needs
        measures = self.measure_every or self.first(num_rollouts)
        if needs.passes == "never" and measures:
            raise ValueError(
                f"selector {self.label}: {self.name} would take a measurement of all items for a round: set "
                f"measure_every=0 and measure_first=''{needs.or_remove('passes')}"
            )
        if unknown := [x for x in needs.named("required") if x not in ("category", "features")]:
            raise ValueError(
                f"selector {self.label}: {self.name} needs the {unknown[0]} of every item, which simulated items "
                "do not have: choose another one"
            )
        if (measured := needs.named("measured")) and not measures:
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
        """Returns how the pass over all items before step 1 counts: "paid", "free", or "" for no pass.

        `measure_first` decides; if it is "", the selector's needs decide.
        """
        asks = self.functions(num_rollouts).needs.passes == "first"
        return self.measure_first or ("paid" if asks else "")

    def begin(
        self, num_rollouts: int, category_I: np.ndarray, feature_SIE: np.ndarray
    ) -> tuple[Any, int | None]:
        """Returns the selector's state before anything is known, and its axis of seeds.

        Only features differ between seeds; without them there is one state for all, and no axis.
        """
        functions = self.functions(num_rollouts)
        needed = functions.needs.named()
        arrays = {"category": category_I} if "category" in needed else {}
        if "features" not in needed:
            return functions.init(len(category_I), **arrays), None
        begun = [functions.init(len(category_I), features=x_IE, **arrays) for x_IE in feature_SIE]
        return jax.tree.map(lambda *x: jnp.stack(x), *begun), 0


# ------------------------------------------------------------------------------ what a budget buys
@dataclasses.dataclass(frozen=True)
class Shape(fields.Section):
    """The sizes of a play."""

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
        """The rollouts of a round."""
        return self.num_prompts * self.num_rollouts

    @property
    def of_measurement(self) -> int:
        """The rollouts of a measurement of all items."""
        return self.num_items * self.num_rollouts


class Schedule(NamedTuple):
    """The rounds of a play: when all items are measured, and what has been paid."""

    measure_U: np.ndarray  # bool, whether all items are measured before the round
    paid_U: np.ndarray  # rollouts paid for by the end of the round


def schedule(entry: Entry, shape: Shape) -> Schedule:
    """Returns as many rounds as the budget of rollouts pays for.

    Raises:
        ValueError: the budget does not pay for the first measurement and one round.
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
        """All settings that the result depends on, as JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def cells(given: Settings) -> dict[str, list[Cell]]:
    """Returns the cells of every world, all checked before any is played.

    Raises:
        ValueError: a world, a selector (also a highlighted one) or an option is unknown, a value is out of
            range, or the budget is too small.
    """
    worlds = words(given.worlds)
    if not worlds:
        raise ValueError(f"worlds={given.worlds!r}: name one of {sorted(given.world)}")
    # Highlighted selectors must be known but need not play: the default ones suit the long default list.
    for label in words(given.highlight):
        if ":" not in label:
            check_known("highlight: the selector", label, _labels(given))
    return {world: _cells_of(given, world) for world in worlds}


def _labels(given: Settings) -> set[str]:
    """Returns the names that a list of selectors may have."""
    return {*given.selector, *SELECTORS}


def _cells_of(given: Settings, world: str) -> list[Cell]:
    check_known("the world", world, given.world)
    fields.check_type(f"world.{world}", given.world[world], Mapping)
    try:
        kind, constants, shape, selectors = _parts(given, dict(given.world[world]))
    except ValueError as error:
        raise ValueError(f"world {world}: {error}") from None
    found, seeds = [], _seeds(given.seeds)
    for label in imports.labelled("selectors", selectors).values():
        if ":" not in label:  # with ":" it is a selector in a user's file, which `Entry` loads
            check_known("the selector", label, _labels(given))
        entry = Entry.of(label, given.selector.get(label, {}))
        # Playing the cell does both again. Here they find mistakes before any cell is played.
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
        _SEED.check("seeds", seed)
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
    for name in values:  # the rest must be constants
        check_known("the constant", name, known)
    return kind, KINDS[kind].Constants(**values), shape, labels
