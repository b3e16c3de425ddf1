"""Who plays: selectors of the package with options, what else is paid for, and the oracle."""

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import samplers, types
from vade_jax.samplers import base, beta
from vade_jax.types import Array

MEASURES = ("", "paid", "free")


@chex.dataclass(frozen=True)
class OracleState:
    """The true pass rates, put in before every proposal."""

    pass_rate_I: Array  # float32


@dataclasses.dataclass(frozen=True)
class OracleOptions(base.Options):
    """The hyperparameters of the oracle."""

    info_gain: str = base.choice("p(1-p)^2", beta.INFO_GAINS)


def oracle(options: OracleOptions) -> base.Sampler:
    """Returns the selector that knows every pass rate and takes the best by `info_gain`."""
    info_gain = beta.INFO_GAINS[options.info_gain]

    def init(num_items: int) -> OracleState:
        return OracleState(pass_rate_I=jnp.zeros(num_items, jnp.float32))

    def propose(state: OracleState, key: jax.Array, num_prompts: int) -> types.Proposal:
        score_I = info_gain(state.pass_rate_I)
        index_M = base.top_b(score_I, key, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    return base.compiled(init, propose, lambda state, feedback: state)


SELECTORS: dict[str, base.Method] = {
    # There are no variants of an item here.
    **{name: x for name, x in samplers.SAMPLERS.items() if not x().variants},
    "oracle": base.Method("oracle", OracleOptions, oracle),
}


@dataclasses.dataclass(frozen=True)
class Contender:
    """A selector and what the arena does around it."""

    label: str
    name: str
    options: tuple[tuple[str, Any], ...] = ()
    max_rounds: int = 1  # of rollouts, until as many groups as a batch has are kept
    measure_first: str = ""  # all items before step 1: "paid", or "free"; "": not
    measure_every: int = 0  # rounds between two paid measurements; 0: none

    @classmethod
    def of(cls, label: str, settings: Mapping[str, Any]) -> "Contender":
        """Returns the contender of a config's entry.

        Raises:
            ValueError: an unknown selector, option or setting.
        """
        settings = {"name": label, **settings}
        fields = [f.name for f in dataclasses.fields(cls) if f.name != "label"]
        for name in settings:
            check_known(f"contender {label}: the setting", name, fields)
        check_known(f"contender {label}: the selector", settings["name"], SELECTORS)
        options = dict(settings.pop("options", {}))
        frozen = tuple((k, _frozen(v)) for k, v in sorted(options.items()))
        found = cls(label=label, options=frozen, **settings)
        of = f"contender {label}: "
        base.check_number(of + "max_rounds", found.max_rounds, at_least=1)
        base.check_number(of + "measure_every", found.measure_every, at_least=0)
        base.check_option(of + "measure_first", found.measure_first, MEASURES)
        return found

    def sampler(self, num_rollouts: int) -> base.Sampler:
        """Returns the selector.

        Raises:
            ValueError: an unknown option, or a value that the selector refuses.
        """
        known = set(SELECTORS[self.name].option_names) - {"num_rollouts"}
        options = dict(self.options)
        for name in options:
            check_known(f"contender {self.label}: {self.name}'s option", name, known)
        try:
            return _make(self.name, num_rollouts, tuple(options.items()))
        except ValueError as error:
            raise ValueError(f"contender {self.label}: {error}") from None

    def begin(self, num_rollouts: int, category_I: np.ndarray) -> Any:
        """Returns the selector's state before anything is known."""
        sampler, arrays = self.sampler(num_rollouts), {}
        if "category" in sampler.accepts:
            arrays = {"category": category_I}
        return sampler.init(len(category_I), **arrays)

    @property
    def measures(self) -> bool:
        """Tells whether all items are ever measured."""
        return bool(self.measure_first or self.measure_every)


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raises ValueError, with the nearest known name, unless `name` is one of `known`."""
    known = sorted(known)
    if name not in known:
        close = difflib.get_close_matches(str(name), known, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"{what} {name!r} is unknown: {hint}known are {known}")


@functools.cache
def _make(name: str, num_rollouts: int, options: tuple) -> base.Sampler:
    """Cached: the arena compiles once for each set of functions."""
    return SELECTORS[name](
        num_rollouts=num_rollouts, **{k: _thawed(v) for k, v in options}
    )


def _frozen(value):
    if isinstance(value, Mapping):
        return frozenset((k, _frozen(v)) for k, v in value.items())
    return tuple(value) if isinstance(value, list) else value


def _thawed(value):
    return dict(value) if isinstance(value, frozenset) else value
