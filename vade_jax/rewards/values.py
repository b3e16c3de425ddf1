"""The values that an answer can have, and arithmetic on trees that needs no SymPy.

A tree is a nested tuple of texts, so that it can be sent as JSON: ("n", "6.02e23") is a number, ("v", "x_1")
a name, also a spelled one (SAS, "angle ABC", "4321_5"), ("c", "pi") a constant. The rest are operations:
("+", a, b), ("*", a, b), ("/", a, b), ("^", a, b), ("-", a), ("pm", a), ("mp", a), and ("sin", a) or another
function of `formulas`.
"""

import dataclasses
import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

Tree = tuple
_LARGEST = 1000  # number before an exclamation mark that is calculated here
DIGITS = 4000  # of a number that is written out


@dataclasses.dataclass(frozen=True)
class Number:
    """A written number: 5, -2.50, 3/4, 3 1/2, 1.6 * 10^-19, 10^6, 50%, 2.5 million."""

    value: Fraction
    tree: Tree
    last: int | None = None  # the place of its last decimal, -2 of 2.50; None: it is exact
    digits: int = 0  # significant ones of a decimal
    unit: str | None = None  # as pint calls it; "" of things that are counted
    percent: bool = False


@dataclasses.dataclass(frozen=True)
class Formula:
    """Anything else that can be calculated."""

    tree: Tree
    unit: str | None = None


@dataclasses.dataclass(frozen=True)
class Relation:
    """Sides with signs between them: x = 5, 0 <= x < 1, 14/2 = 7."""

    signs: tuple[str, ...]
    sides: tuple["Value", ...]


@dataclasses.dataclass(frozen=True)
class Collection:
    r"""Several values.

    Brackets are "()", "[)", "{}" and so on; "" of values with commas alone, "or" of alternatives, "and" of
    inequalities that hold together, ":" of a ratio, "u" of a union of intervals, "rows" of a matrix.
    """

    brackets: str
    items: tuple["Value", ...]


class Both(Collection):
    """The two values of a plus or minus; the brackets are "or"."""


@dataclasses.dataclass(frozen=True)
class Words:
    """Prose, compared by spelling."""

    text: str


@dataclasses.dataclass(frozen=True)
class Latex:
    """A formula with other commands: it is spelled, or SymPy's own reader knows sums, integrals, limits."""

    text: str
    spelled: tuple[str, ...]
    asks: bool  # SymPy's reader


Value = Number | Formula | Relation | Collection | Words | Latex
INFINITY = Formula(("c", "oo"))


def exact(tree: Tree) -> Fraction | None:
    """Returns the value of a tree of numbers; None if it is not rational or too large."""
    op, *parts = tree
    if op == "n":
        return Fraction(parts[0])
    if op not in _EXACT:
        return None
    found = [exact(part) for part in parts]
    return None if None in found else _EXACT[op](*found)


def _power(x: Fraction, y: Fraction) -> Fraction | None:
    if y.denominator != 1 or (x == 0 and y <= 0):
        return None
    size = max(abs(x.numerator), x.denominator).bit_length()
    return x ** int(y) if abs(y) * size < 3.4 * DIGITS else None


def _factorial(x: Fraction) -> Fraction | None:
    is_small = x.denominator == 1 and 0 <= x <= _LARGEST
    return Fraction(math.factorial(int(x))) if is_small else None


_EXACT: dict[str, Any] = {
    **{"+": operator.add, "*": operator.mul, "-": operator.neg, "^": _power, "!": _factorial},
    "/": lambda x, y: x / y if y else None,
}


def literal(tree: Tree) -> tuple[Fraction, int | None, int] | None:
    """Returns (value, last decimal place, digits) of a tree that is one written number, else None.

    That is a/b, a times a power of ten, and a power of a whole number, with a sign; sums and products are
    left to be calculated by who was asked.
    """
    op, *parts = tree
    if op == "n":
        mantissa, _, exponent = parts[0].partition("e")
        whole, point, decimals = mantissa.partition(".")
        digits = (whole + decimals).lstrip("0") if point else ""
        return (
            Fraction(parts[0]),
            int(exponent or 0) - len(decimals) if point else None,
            len(digits),
        )
    if op == "-":
        found = literal(parts[0])
        return found and (-found[0], *found[1:])
    if op not in ("/", "*", "^") or (value := exact(tree)) is None:
        return None
    left, right = parts
    is_written = left[0] in ("n", "-")
    if op == "*":
        zeros = _whole(right[2]) if right[:2] == ("^", ("n", "10")) else None
        first = literal(left) if is_written else None
        if first is None or zeros is None:
            return None
        return value, None if first[1] is None else first[1] + zeros, first[2]
    is_fraction = op == "/" and is_written and right[0] in ("n", "-")
    is_power = op == "^" and None not in (_whole(left), _whole(right))
    return (value, None, 0) if is_fraction or is_power else None


def _whole(tree: Tree) -> int | None:
    value = exact(tree) if tree[0] in ("n", "-") else None
    return int(value) if value is not None and value.denominator == 1 else None


def size(tree: Tree) -> float | None:
    """Returns an upper bound on the digits of a tree's value; a name counts as one.

    None if calculating it would take too long, or it divides by zero.
    """
    op, *parts = tree
    if op == "n":
        return float(len(str(Fraction(parts[0]))))
    if op in ("v", "c"):
        return 1.0
    sizes = [x for x in map(size, parts) if x is not None]
    if len(sizes) < len(parts) or (op == "/" and exact(parts[1]) == 0):
        return None
    most = sum(sizes)
    if op in ("^", "!", "binom"):  # of k choices there are at most n to the k
        last = exact(parts[-1])
        most = sizes[0] * (9.0 if last is None else float(min(abs(last), 10**9)) + 1)
    return most if most < 10 * DIGITS else None


def expanded(tree: Tree, upper: bool) -> Tree:
    r"""Returns a tree with one sign of each \pm, and the other one of each \mp."""
    op, *parts = tree
    if op in ("n", "v", "c"):
        return tree
    parts = [expanded(part, upper) for part in parts]
    if op in ("pm", "mp"):
        return parts[0] if upper == (op == "pm") else ("-", parts[0])
    return (op, *parts)


def nodes(tree: Tree) -> Iterator[Tree]:
    """Yields a tree and all trees in it."""
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from nodes(part)


def names(tree: Tree) -> set[str]:
    return {node[1] for node in nodes(tree) if node[0] == "v"}


def name_of(value: Value) -> str | None:
    """Returns the name that a formula only is, else None."""
    if isinstance(value, Formula) and value.tree[0] == "v" and not value.unit:
        return value.tree[1]
    return None
