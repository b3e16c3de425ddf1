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
from scipy import special

from experiments.arenas.simulation.worlds import KINDS
from vade_jax import fields, imports, samplers, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.types import Array


# ------------------------------------------------------------------------------ settings
@dataclasses.dataclass(frozen=True)
class Settings(fields.Section):
    """Every setting of a simulation; lists of names are comma-separated."""

    seeds: str = "0,1,2,3,4,5,6,7"
    num_items: int = fields.number(4000, at_least=1, below=1e9)  # I
    num_prompts: int = fields.number(128, at_least=1)  # B
    num_rollouts: int = 8  # G
    rollouts: int = fields.number(300 * 128 * 8, at_least=1)  # a selector's budget
    worlds: str = "stationary,drift,skills,skills_clean,skills_slow,skills_hard"
    selectors: str = "uniform,vade"  # names in `selector`, or in vade_jax.samplers.SAMPLERS
    # World -> its kind and the kind's constants.
    world: Mapping[str, Any] = fields.mapping()
    # Selector -> fields of `Entry` that differ from their defaults.
    selector: Mapping[str, Any] = fields.mapping()


def words(text: str) -> list[str]:
    """Returns the names in a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def check_label(setting: str, label: str, known: Iterable[str]) -> None:
    """Raises ValueError unless `label` is known, or has a colon: then it is a selector in a user's file."""
    if ":" not in label:
        fields.check_word(setting, label, sorted(known))


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


# ------------------------------------------------------------------------------ entries
PRIORS = {  # what a selector knows before step 1 of pass rates: (generator, true ones) -> rates
    "right": lambda rng, p_I: p_I,
    "noisy": lambda rng, p_I: special.expit(special.logit(p_I) + rng.normal(0, 2, p_I.shape)),
    "wrong": lambda rng, p_I: rng.permutation(p_I),  # those of other items
}


@dataclasses.dataclass(frozen=True)
class Entry(fields.Section):
    """A selector and what the arena does for it. Hashable: the cache key of selectors and programs."""

    label: str
    name: str
    options: str = "{}"  # JSON
    # The most rounds of rollouts to collect a batch of kept groups.
    max_rounds: int = fields.number(1, at_least=1)
    measure_first: bool = False  # a paid pass before step 1, also if the selector needs none
    measure_every: int = fields.number(0, at_least=0)  # rounds between two paid passes; 0: none
    prior: str = fields.choice("", *PRIORS)  # the pass rates that `init` gets

    @classmethod
    def of(cls, label: str, overrides: Mapping[str, Any]) -> "Entry":
        """Returns the entry for a label of a config.

        Raises:
            ValueError: the selector or a setting is unknown, or a value has a wrong type or is out of range.
        """
        try:
            options = overrides.get("options", {})
            values = {"label": imports.label(label), "name": label, **overrides}
            entry = cls.from_dict(values | {"options": json.dumps(options, sort_keys=True)})
            check_label("name", entry.name, SELECTORS)
            return entry
        except ValueError as error:
            raise ValueError(f"selector {label}: {error}") from None

    @functools.cache  # noqa: B019, entries are few
    def functions(self, num_rollouts: int) -> base.Sampler:
        """Returns the selector's functions, always as the same object, so that JAX compiles them once.

        Raises:
            ValueError: an option is unknown, or the selector refuses its value.
        """
        options = json.loads(self.options)
        try:
            is_own = ":" in self.name
            spec = samplers.find(self.name, "selectors") if is_own else SELECTORS[self.name]
            for name in options:  # G is the world's
                fields.check_word("option", name, set(spec.option_names) - {"num_rollouts"})
            return spec(num_rollouts=num_rollouts, **options)
        except ValueError as error:
            raise ValueError(f"selector {self.label}: {error}") from None

    def check(self, num_rollouts: int) -> None:
        """Raises ValueError unless the selector gets the measurements and rounds that it needs."""
        needs = self.functions(num_rollouts).needs
        arrays = {"category", "features"}.intersection(needs.named())
        samplers.require(
            f"selector {self.label}: {self.name}",
            needs,
            arrays=arrays | {"pass_rate"} if self.prior else arrays,
            lacks=("variants",),
            rounds=self.max_rounds,
            passes=bool(self.measure_every or self.first(num_rollouts)),
            hints={
                "arrays": "set measure_every or measure_first",
                "passes": "set measure_every=0 and measure_first=False",
                "rounds": "set max_rounds to that",
            },
        )

    def first(self, num_rollouts: int) -> bool:
        """Returns whether a pass over all items precedes step 1."""
        return self.measure_first or self.functions(num_rollouts).needs.passes == "first"

    def begin(
        self, num_rollouts: int, category_I: np.ndarray, known: Mapping[str, np.ndarray]
    ) -> tuple[Any, int | None]:
        """Returns the selector's state before the first answer, and its axis of seeds.

        What is `known` of items, features and pass rates, differs between seeds. A selector that takes
        neither has one state for all, and no axis.
        """
        functions, num_items = self.functions(num_rollouts), len(category_I)
        needed = functions.needs.named()
        arrays = {"category": category_I} if "category" in needed else {}
        varying = {"features": known["features"]} if "features" in needed else {}
        if self.prior:
            rng = np.random.default_rng(0)
            varying["pass_rate"] = [PRIORS[self.prior](rng, p_I) for p_I in known["pass_rate"]]
        if not varying:
            return functions.init(num_items, **arrays), None
        of_seeds = [dict(zip(varying, x, strict=True)) for x in zip(*varying.values(), strict=True)]
        begun = [functions.init(num_items, **arrays, **x) for x in of_seeds]
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
        measured = bool(every and len(paid) % every == 0) if paid else first
        cost = shape.of_measurement * measured
        if spent + cost + shape.of_round > shape.rollouts:
            break
        spent += cost + shape.of_round
        measure.append(measured)
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


def cells(config: Settings) -> dict[str, list[Cell]]:
    """Returns the cells of every world, all checked before any is played.

    Raises:
        ValueError: a world, a selector or an option is unknown, a value is out of
            range, or the budget is too small.
    """
    worlds = words(config.worlds)
    if not worlds:
        raise ValueError(f"worlds={config.worlds!r}: name one of {sorted(config.world)}")
    for world in worlds:
        fields.check_word("worlds", world, sorted(config.world))
    labels = words(config.selectors)
    if not labels:
        raise ValueError(f"selectors={config.selectors!r}: name one of {sorted(config.selector)}")
    shape = Shape(config.num_items, config.num_prompts, config.num_rollouts, config.rollouts)
    entries = []
    for label in dict.fromkeys(labels):
        check_label("selectors", label, {*config.selector, *SELECTORS})
        entries.append(entry := Entry.of(label, config.selector.get(label, {})))
        # Playing a cell does both again. Here they find mistakes before any cell is played.
        entry.check(shape.num_rollouts)
        schedule(entry, shape)
    seeds, by_world = _seeds(config.seeds), {}
    for world in worlds:
        values = dict(config.world[world])
        try:
            fields.check_word("kind", kind := values.pop("kind", None), KINDS)
            constants = KINDS[kind].Constants.from_dict(values)
        except ValueError as error:
            raise ValueError(f"world {world}: {error}") from None
        by_world[world] = [Cell(world, kind, constants, shape, entry, seeds) for entry in entries]
    return by_world


def _seeds(text: str) -> tuple[int, ...]:
    seeds = dict.fromkeys(words(text))
    if not seeds or not all(seed.isdecimal() for seed in seeds):
        raise ValueError(f"seeds={text!r}: numbers with commas between, such as 0,1")
    return tuple(map(int, seeds))
