"""Compares two numbers, formulas, names or words; `matching` compares combinations of them.

Numbers, names and words are compared here. SymPy, in a worker of `process`, compares formulas.
"""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

from vade_jax.rewards import process, units, values
from vade_jax.rewards.values import Formula, Number, Value

_ENOUGH = 3  # significant digits that a decimal needs to match an exact value


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of comparison, which depend on the kind of answer."""

    tolerance: float | None = None  # relative, around any number
    decimals: bool = False  # a decimal key allows half a unit of its last digit
    lists: bool = False  # brackets are ignored, and order counts in a list with commas
    ordered: bool | None = None  # whether the order of a list counts; None: by its kind
    formulas: bool = True  # whether a formula may equal a number; then a percent sign counts
    exact: bool = False  # for the steps of a chain: no percent sign may be left out
    clock: process.Clock = dataclasses.field(default_factory=process.Clock)  # of this answer


def same(response: Value, key: Value, rules: Rules) -> bool:
    """Returns whether two single values are equal; relations and collections are `matching.same`'s."""
    if not isinstance(response, Formula) or not isinstance(key, Formula):
        return response == key
    one, other = values.name_of(response), values.name_of(key)
    if one is not None and other is not None:
        return one == other
    may_ask = rules.formulas or not isinstance(key, Number)
    for x, y in _in_one_unit(response, key):
        # One of two numbers may have been converted from degrees to radians.
        if isinstance(x, Number) and isinstance(y, Number):
            if _same_number(x, y, rules):
                return True
        elif may_ask and (x == y or is_near(x.tree, y.tree, _tolerance(x, y, rules), rules)):
            return True
    return False


def _in_one_unit(response: Formula, key: Formula) -> Iterator[tuple[Formula, Formula]]:
    """Yields both in comparable units; nothing if they measure different things."""
    mine, other = response.unit, key.unit
    if (other and getattr(response, "percent", 0)) or (mine and getattr(key, "percent", 0)):
        return  # 45% is not 45 degrees
    if mine == other or None in (mine, other):
        yield response, key
        if {mine, other} == {None, units.UNITS["degree"]}:  # 60 degrees are pi/3
            yield (_in_radians(response), key) if mine else (response, _in_radians(key))
    elif mine and other and mine.bases == other.bases:
        factor = mine.factor / other.factor
        tree = ("*", response.tree, ("n", str(factor)))
        if isinstance(response, Number):  # a converted decimal matches no exact value: no digits
            yield (
                dataclasses.replace(response, value=response.value * factor, tree=tree, digits=0),
                key,
            )
        else:
            yield Formula(tree), key


def _in_radians(angle: Formula) -> Formula:
    return Formula(("*", angle.tree, ("/", ("c", "pi"), ("n", "180"))))


def _same_number(response: Number, key: Number, rules: Rules) -> bool:
    """Returns whether two numbers are the same, exactly or within the tolerance of the rules.

    50% is 0.5. The percent sign of a key may be left out unless it is a fraction of one: 50 is right for 50%.
    If a number is expected, it may follow an integer or decimal key: 50% is right for 50.
    """
    if response.percent != key.percent:
        bare = key if response.percent else response
        is_written = not rules.formulas and (key.last is not None or key.value.denominator == 1)
        may_differ = not rules.exact and abs(bare.value) >= 1 and (key.percent or is_written)
        if may_differ and abs(response.value - key.value) <= _tolerance(response, key, rules):
            return True
        places = -2 if response.percent else 2
        last = None if response.last is None else response.last + places
        response = dataclasses.replace(
            response, value=response.value * Fraction(10) ** places, last=last
        )
    return abs(response.value - key.value) <= _tolerance(response, key, rules)


def _tolerance(response: Formula, key: Formula, rules: Rules) -> Fraction:
    """Returns the largest allowed distance from the right number; decimals may approximate exact values."""
    numbers = [x for x in (response, key) if isinstance(x, Number)]
    if len(numbers) == 2 and rules.tolerance is not None:
        return abs(numbers[1].value) * Fraction(str(rules.tolerance))
    decimals = [x for x in numbers if x.last is not None]
    if len(numbers) == 2 and numbers[1] in decimals and rules.decimals:
        return Fraction(10) ** (numbers[1].last or 0) / 2
    is_whole = any(x.value.denominator == 1 for x in numbers)
    if len(decimals) != 1 or decimals[0].digits < _ENOUGH or is_whole:
        return Fraction(0)
    return Fraction(10) ** (decimals[0].last or 0) / 2


def is_near(response: values.Tree, key: values.Tree, tolerance: Fraction, rules: Rules) -> bool:
    """Returns whether two trees differ by at most `tolerance`."""
    x, y = values.exact(response), values.exact(key)
    if x is not None and y is not None:
        return abs(x - y) <= tolerance
    return process.ask(key, response, tolerance, rules.clock)
