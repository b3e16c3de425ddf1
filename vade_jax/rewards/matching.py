"""Compares two values from `reading` of any forms.

`quantities` compares single numbers, formulas and names. Two equations are equal up to a constant factor.
Values that cannot be compared are different.
"""

import dataclasses
import re
from fractions import Fraction
from typing import NamedTuple

from vade_jax.rewards import process, quantities, values
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import Collection, Formula, Kind, Number, Relation, Tree, Value

_EXACTLY = Fraction(0)
_ORDERS = {"<", "<=", "!="}  # `reading` turns x > 5 around
_CERTAIN = {*_ORDERS, "in", "cup", "cap", "setminus", "[)", "(]"}  # only in regions


def same(response: Value, key: Value, rules: Rules) -> bool:
    """Returns whether two values are the same under the rules; raises like `process.ask`."""
    if ends(key):
        measures = {x.unit for x in (response, key) if isinstance(x, Formula)} - {None}
        return ends(response) == ends(key) and len(measures) < 2
    left, right = _region(response), _region(key)
    if left and right and not rules.lists and any(map(_is_certain, (left, right))):
        is_one = len(_names(left) | _names(right)) < 2
        return is_one and (left == right or process.ask(right, left, _EXACTLY, rules.clock))
    if isinstance(response, Relation) and isinstance(key, Relation):
        mine, other = named(response, rules), named(key, rules)
        if mine and other and (mine.name == other.name or None in (mine.name, other.name)):
            return same(mine.value, other.value, rules)
        return _same_equation(response, key, rules)
    if isinstance(response, Relation) and not _has_relation(key):
        return bool(x := named(response, rules)) and same(x.value, key, rules)
    if isinstance(key, Relation) and not _has_relation(response):
        return bool(x := named(key, rules)) and same(response, x.value, rules)
    if isinstance(response, Collection) or isinstance(key, Collection):
        return _same_several(response, key, rules)
    return quantities.same(response, key, rules)


def ends(value: Value) -> tuple[Fraction, ...] | None:
    """Returns the ends of the range 10 to 20, also written 10-20 or 10-20% like a difference, else None."""
    if isinstance(value, Collection) and value.kind is Kind.RANGE:
        both = tuple(x.value for x in value.items if isinstance(x, Number))
        return both if len(both) == 2 else None
    tree: Tree = value.tree if isinstance(value, Formula) else ("",)
    match tree[1] if tree[0] == "/" and tree[-1] == ("n", "100") else tree:
        case ("+", ("n", low), ("-", ("n", high))) if Fraction(low) < Fraction(high):
            return Fraction(low), Fraction(high)
    return None


def _same_equation(response: Relation, key: Relation, rules: Rules) -> bool:
    """Returns whether all sides correspond, or two equations of two sides differ by a factor."""
    if key.signs != response.signs:
        return False
    sign, both = key.signs[0], (*key.sides, *response.sides)
    trees = [side.tree for side in both if isinstance(side, Formula)]
    if len(both) == len(trees) == 4 and sign in {"=", *_ORDERS}:  # no x \sim y
        return process.ask((sign, *trees[:2]), (sign, *trees[2:]), _EXACTLY, rules.clock)
    return all(same(x, y, rules) for x, y in zip(response.sides, key.sides, strict=True))


# ------------------------------------------------------------------------------ the value of a name
class Named(NamedTuple):
    """A value and its name; a true chain of constants has no name."""

    name: str | None
    value: Value
    columns: tuple[str, ...] = ()  # x and y of (x, y)


def named(equation: Value, rules: Rules) -> Named | None:
    """Returns the value that a relation names, and the name.

    That is x = 5, 5 = x, |AB| = 5, A:B = 1:2, (p, q) = (3, 2), f(x) = x + 1, and x = 14/2 = 7 if the rest is
    equal; None for all other relations.
    """
    if not isinstance(equation, Relation):
        return None
    signs, sides = equation.signs, list(equation.sides)
    is_element = signs == ("\\in",) and isinstance(sides[1], Collection)  # x \in \{1, 2\}
    if not is_element and not {"=", "\\approx"}.issuperset(signs):
        return None
    if not values.names(sides[0]) and _label(sides[1]):
        sides.reverse()  # 5 = x, but not a + b = c
    name = _label(sides[0])
    first, rest = sides[0], sides[1:] if name else sides
    if name and any(values.names(first) & values.names(side) for side in rest):
        return None
    columns: tuple[str, ...] = ()
    if isinstance(first, Collection):
        size, is_ratio = len(first.items), first.kind is Kind.RATIO  # A:B = 1
        if any(len(getattr(x, "items", [0] * size * is_ratio)) != size for x in rest):
            return None
        columns = tuple(str(_label(item)) for item in first.items if name and not is_ratio)
    exactly = Rules(exact=True, clock=rules.clock)
    steps = zip(signs[len(signs) - len(rest) + 1 :], rest, rest[1:], strict=False)
    if not all(_follows(sign, left, right, exactly) for sign, left, right in steps):
        return None
    has_value = isinstance(rest[0], Number) or rules.formulas
    return Named(name, rest[0 if has_value else -1], columns)


def _follows(sign: str, left: Value, right: Value, rules: Rules) -> bool:
    """Returns whether a side equals the next one, which may be its value rounded to any decimals."""
    if quantities.same(left, right, rules):
        return True
    if not isinstance(left, Formula) or not isinstance(right, Number):
        return False
    if right.last is None and sign != "\\approx":
        return False
    return quantities.is_near(left.tree, right.tree, Fraction(10) ** (right.last or 0) / 2, rules)


def _label(side: Value) -> str | None:
    """Returns the name that a side consists of: x_1, AB, |AB|, NO/BO, A:B, (p, q)."""
    if isinstance(side, Collection):
        labels = [_label(item) or "" for item in side.items]
        is_named = side.kind in (Kind.OPEN, Kind.RATIO) and labels and all(labels)
        return f"{side.kind.value}{','.join(labels)}" if is_named else None
    return _spelled(side.tree) if isinstance(side, Formula) and not side.unit else None


def _spelled(tree: Tree) -> str | None:
    match tree:
        case ("v", name):
            return name
        case ("*", ("v", one), ("v", other)) if re.fullmatch("[A-Z]{2}", one + other):
            return one + other
        case ("abs", ("*", *factors)):
            inside = _spelled(("*", *factors))
            return inside and f"|{inside}|"
        case ("/", top, bottom):
            labels = _spelled(top), _spelled(bottom)
            return None if None in labels else f"{labels[0]}/{labels[1]}"
    return None


# ------------------------------------------------------------------------------ regions
def _region(value: Value) -> Tree | None:
    r"""Returns a set of numbers, for SymPy: 0 <= x < 1, x \in [0, 1), x < 1 and x != 0, [0, 1) or {1, 2}."""
    tree = _bounded(value) if isinstance(value, Relation) else None
    if isinstance(value, Collection):
        kind, items = value.kind, value.items
        is_list = kind is Kind.LIST and all(map(is_inequality, items))
        if kind is Kind.SET or (kind in values.PAIRS and len(items) == 2):
            tree = None if values.names(value) else (kind.value, *map(_bound, items))
        elif is_list or kind in (Kind.OR, Kind.AND, Kind.UNION, Kind.MEET, Kind.MINUS):
            tree = ("and" if is_list else kind.value, *map(_region, items))
    return None if tree is None or None in tree or len(_names(tree)) > 1 else tree


def _bounded(value: Relation) -> Tree | None:
    """Returns the region of a name between constants: its relations with each of them."""
    name = values.name_of(value.sides[0])
    if value.signs == ("\\in",):
        inside = _region(value.sides[1])
        return ("in", ("v", name), inside) if name and inside else None
    bounds = [bound for side in value.sides if (bound := _bound(side))]
    if len(bounds) < len(value.sides) or not {"=", *_ORDERS}.issuperset(value.signs):
        return None
    steps = tuple(zip(value.signs, bounds, bounds[1:], strict=False))
    is_each = all((left[0] == "v") != (right[0] == "v") for _, left, right in steps)
    return ("and", *steps) if is_each else None


def _bound(value: Value) -> Tree | None:
    """Returns the tree of a name, or of a number without a unit."""
    if not isinstance(value, Formula) or (values.names(value) and not values.name_of(value)):
        return None
    return None if value.unit and value.unit.bases else value.tree


def _names(region: Tree) -> set[Tree]:
    return {node for node in values.nodes(region) if node[0] == "v"}


def _is_certain(region: Tree) -> bool:
    """Returns whether it can only be a region: (0, 1) may also be a point, and 0, 1 a list."""
    return any(x[0] in _CERTAIN or x == values.INFINITY for x in values.nodes(region))


def is_inequality(value: Value) -> bool:
    """Returns whether a relation bounds or excludes something."""
    signs = value.signs if isinstance(value, Relation) else ()
    return not {*_ORDERS, "\\in"}.isdisjoint(signs)


# ------------------------------------------------------------------------------ several values
class _Table(NamedTuple):
    """Rows of values by name: x = 1, y = 2 is one row, x = 1 or x = 2 are two."""

    kind: Kind
    rows: list[dict[str, Value]]
    numbers: tuple[str, ...] = ()  # 1 and 2 of x_1 = 1, x_2 = 2, which are two rows of x


def _kind(value: Value) -> Kind:
    return value.kind if isinstance(value, Collection) else Kind.SET


def _items(value: Value) -> list[Value]:
    """Returns the items of a collection, with both values of a plus or minus, or the value alone."""
    if not isinstance(value, Collection) or value.kind not in values.LOOSE:
        return [*value.items] if isinstance(value, Collection) else [value]
    both = {Kind.OR, Kind.AND}
    parts = [x.items if isinstance(x, Collection) and x.kind in both else (x,) for x in value.items]
    return [item for part in parts for item in part]


def _has_relation(value: Value) -> bool:
    return any(isinstance(item, Relation) for item in _items(value))


def _same_several(response: Value, key: Value, rules: Rules) -> bool:
    mine, other = _by_name(response, rules), _by_name(key, rules)
    if mine and other and (mine.rows or other.rows):
        if mine.numbers and other.numbers and mine.numbers != other.numbers:
            return False
        return _same_rows(mine.rows, other.rows, (mine.kind, other.kind), rules)
    if mine and not _has_relation(key):
        return any(same(x, key, its) for x, its in _without_names(mine, _kind(key), rules, False))
    if other and not _has_relation(response):
        forms = _without_names(other, _kind(response), rules, is_key=True)
        return any(same(response, x, its) for x, its in forms)
    return _same_rows(_items(response), _items(key), (_kind(response), _kind(key)), rules)


def _by_name(value: Value, rules: Rules) -> _Table | None:
    """Returns rows of named values; None where some have no name."""
    equations, kind = [named(item, rules) for item in _items(value)], _kind(value)
    named_values = [(x.name, x.value, x.columns) for x in equations if x and x.name]
    if not named_values or len(named_values) < len(equations) or kind not in values.LOOSE:
        return None
    name, first, columns = named_values[0]
    if len(named_values) == 1 and isinstance(first, Collection) and first.kind in values.LOOSE:
        return _Table(first.kind, [{name: item} for item in _items(first)])  # x = {1, 2}
    bases, numbers = zip(*(name.partition("_")[::2] for name, *_ in named_values), strict=True)
    is_numbered = {*bases} in ({"x"}, {"t"}) and all(n.isdecimal() for n in numbers if n)
    is_numbered &= len(named_values) < 3 or not all(numbers)
    rows: list[dict[str, Value]] = []
    for base, (name, cell, columns) in zip(bases, named_values, strict=True):
        cells = {base if is_numbered else name: cell}
        if columns and isinstance(cell, Collection):
            cells = dict(zip(columns, cell.items, strict=True))
        if not rows or rows[-1].keys() & cells.keys():
            rows.append({})
        rows[-1] |= cells
    if (kind is Kind.OR and len(rows) < len(named_values)) or len(set(map(frozenset, rows))) > 1:
        rows = []  # x = 1 or y = 2 has no table
    return _Table(kind, rows, tuple(sorted(filter(None, numbers))) if is_numbered else ())


def _without_names(table: _Table, other: Kind, rules: Rules, is_key: bool) -> list:
    """Returns x = 1, y = 2 as the point (1, 2) and as the list 1, 2, each with its rules.

    Values are ordered by name. A key with commas alone sets the order itself.
    """
    names = [*table.rows[0]] if table.rows else []
    points = [tuple(row[x] for x in names) for row in table.rows]
    is_sorted = names == sorted(names)
    if len(names) == 1:
        return [(Collection(table.kind, tuple(cell for (cell,) in points)), rules)]
    if len(points) > 1 and is_sorted:
        items = tuple(Collection(Kind.OPEN, point) for point in points)
        return [(Collection(table.kind, items), rules)]
    if len(points) == 1 and is_sorted and other is Kind.OPEN:
        return [(Collection(Kind.OPEN, points[0]), rules)]
    is_list = other in (Kind.LIST, Kind.AND) or (rules.lists and other is Kind.CLOSED)
    if len(points) == 1 and is_list and (is_sorted or is_key):
        return [(Collection(Kind.LIST, points[0]), dataclasses.replace(rules, ordered=True))]
    return []


def _same_rows(response: list, key: list, kinds: tuple[Kind, Kind], rules: Rules) -> bool:
    """Returns whether the values or rows of response and key can be paired one to one."""
    if not (rules.lists or kinds[0] == kinds[1] or values.LOOSE.issuperset(kinds)):
        return False
    if Kind.OR in kinds and kinds[0] != kinds[1]:
        cells = [x for row in key for x in (row.values() if isinstance(row, dict) else [row])]
        is_word = lambda x: isinstance(x, values.Words) or values.name_of(x) or is_inequality(x)
        if any(map(is_word, cells)):
            return False  # A or C for A, C

    def is_same(row, other) -> bool:
        if not isinstance(row, dict):
            return same(row, other, rules)
        return row.keys() == other.keys() and all(same(row[x], other[x], rules) for x in other)

    is_set = kinds[1] in (Kind.OR, Kind.SET) or (kinds[1] in values.LOOSE and not rules.lists)
    is_ordered = not is_set if rules.ordered is None else rules.ordered
    if is_ordered or len(response) != len(key):
        return len(response) == len(key) and all(map(is_same, response, key))
    size = lambda x: getattr(x, "value", 0)  # lists of numbers are paired in ascending order
    left = sorted(response, key=size)
    for other in sorted(key, key=size):
        match = next((i for i, row in enumerate(left) if is_same(row, other)), None)
        if match is None:
            return False
        del left[match]
    return True
