"""The values that an answer can have, and arithmetic on trees that needs no SymPy.

A tree is a nested tuple of texts: ("n", "6.02e23") is a number, ("v", "x_1") a name, also a spelled one (SAS,
"angle ABC", "4321_5"), ("c", "pi") a constant. The rest are operations: ("+", a, b), ("-", a), ("sin", a) or
another function of `formulas`, and in regions of `matching` intervals ("[)", a, b) and operations on sets.
"""

import dataclasses
import enum
import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

Tree = tuple
INFINITY = ("c", "oo")
_LARGEST = 40_000  # digits of a calculated number


class Unit(NamedTuple):
    """A multiple of a product of base units: 1/100 of (("m", 1),); counted things have no base."""

    factor: Fraction
    bases: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Formula:
    """Anything that can be calculated."""

    tree: Tree
    unit: Unit | None = None


@dataclasses.dataclass(frozen=True)
class Number(Formula):
    """A written number: 5, -2.50, 3/4, 3 1/2, 1.6 * 10^-19, 2 * 2^9, 50%, 2.5 million."""

    value: Fraction = Fraction(0)
    last: int | None = None  # position of its last decimal, -2 for 2.50; None: exact
    digits: int = 0  # significant digits of a decimal
    percent: bool = False


@dataclasses.dataclass(frozen=True)
class Relation:
    """Sides with signs between them: x = 5, 0 <= x < 1, 14/2 = 7."""

    signs: tuple[str, ...]
    sides: tuple["Value", ...]


class Kind(enum.Enum):
    """How several values are combined."""

    LIST, OR, AND, SET = ",", "or", "and", "{}"  # a comma alone
    OPEN, CLOSED, LEFT_OPEN, RIGHT_OPEN = "()", "[]", "(]", "[)"  # intervals, points and lists
    RATIO, RANGE, ROWS = ":", "to", "rows"  # 10 to 20; of a matrix, and the cells of a row
    UNION, MEET, MINUS = "cup", "cap", "setminus"


LOOSE = {Kind.LIST, Kind.OR, Kind.AND, Kind.SET}
PAIRS = {Kind.OPEN, Kind.CLOSED, Kind.LEFT_OPEN, Kind.RIGHT_OPEN}


@dataclasses.dataclass(frozen=True)
class Collection:
    """Several values."""

    kind: Kind
    items: tuple["Value", ...]


@dataclasses.dataclass(frozen=True)
class Words:
    """What is compared by spelling: prose, or the tokens of LaTeX outside the grammar."""

    spelled: tuple[str, ...]


Value = Formula | Relation | Collection | Words
_EXACT: dict[str, Any] = {
    **{"+": operator.add, "*": operator.mul, "-": operator.neg, "/": operator.truediv},
    "^": lambda x, y: x ** int(y) if y.denominator == 1 and (x or y > 0) else None,
    "!": lambda x: Fraction(math.factorial(int(x))) if x.denominator == 1 and x >= 0 else None,
}


def exact(tree: Tree) -> Fraction | None:
    """Returns the rational value of a tree of numbers, else None.

    Raises ArithmeticError if it divides by zero or would take too long.
    """
    return _weighed(tree)[0]


def _weighed(tree: Tree) -> tuple[Fraction | None, float]:
    """Returns the value and an upper bound on its digits; a name counts as one."""
    op, *parts = tree
    if op in ("n", "v", "c"):
        return (Fraction(parts[0]), len(parts[0])) if op == "n" else (None, 1)
    numbers, sizes = zip(*map(_weighed, parts), strict=True)
    most = sum(sizes)
    if op in ("^", "!", "binom"):  # of k choices there are at most n to the k
        most = sizes[0] * (9 if numbers[-1] is None else float(min(abs(numbers[-1]), 10**9)) + 1)
    if most > _LARGEST or (op == "/" and numbers[1] == 0):
        raise ArithmeticError
    return None if None in numbers or op not in _EXACT else _EXACT[op](*numbers), most


def literal(tree: Tree) -> tuple[int | None, int] | None:
    """Returns (last decimal place, digits) of a tree that is one written number, else None.

    That is a/b, a power of an integer, or a product with a power; other sums and products are to be
    calculated by the policy.
    """
    parts: Any = tree[1:]
    match tree:
        case ("n", text):
            mantissa, _, exponent = text.partition("e")
            integer, point, decimals = mantissa.partition(".")
            last = int(exponent or 0) - len(decimals) if point else None
            return last, len((integer + decimals).lstrip("0")) if point else 0
        case ("-", part):
            return literal(part)
        case ("*", left, ("^", ("n", "10"), power)) if (first := literal(left)) and exact(power):
            return None if first[0] is None else first[0] + int(exact(power) or 0), first[1]
        case ("*", left, right) if "^" in (left[0], right[0]):
            is_written = None not in (literal(left), literal(right))
        case ("/", ("n" | "-", *_), ("n" | "-", *_)):
            is_written = True
        case ("^", ("n" | "-", *_), ("n" | "-", *_)):
            is_written = all(x and x.denominator == 1 for x in map(exact, parts))
        case _:
            return None
    return (None, 0) if is_written and exact(tree) is not None else None


def nodes(tree: Tree) -> Iterator[Tree]:
    """Yields a tree and all trees in it."""
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from nodes(part)


def names(value: Value) -> set[str]:
    """Returns the names in a formula, or in all items of a collection."""
    if isinstance(value, Collection):
        return set().union(*map(names, value.items))
    return {x[1] for x in nodes(value.tree) if x[0] == "v"} if isinstance(value, Formula) else set()


def name_of(value: Value) -> str | None:
    """Returns the name if a formula is only a name, else None."""
    is_formula = isinstance(value, Formula)
    return value.tree[1] if is_formula and value.tree[0] == "v" and not value.unit else None
