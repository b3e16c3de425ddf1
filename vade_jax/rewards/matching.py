"""Compares two values from `reading` with one function, whatever their forms.

`quantities` compares what is one number, formula or name. An equation equals another one up to a constant
factor. Values that cannot be compared are different.
"""

import functools
import re
from fractions import Fraction
from typing import NamedTuple

from vade_jax.rewards import quantities, units, values
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import Collection, Formula, Kind, Number, Relation, Tree, Value

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "\\in": "\\ni"}
_CERTAIN = {"<", "<=", ">", ">=", "!=", "in", "cup", "cap", "setminus", "[)", "(]"}
_BOTH = {Kind.OR, Kind.AND}  # of a plus or minus
_ORDERS = {"<", "<=", ">", ">=", "!="}


def same(given: Value, key: Value, rules: Rules) -> bool:
    """Returns whether two values are the same under the rules of a kind of answer.

    Raises:
        Failed: SymPy reached no verdict.
    """
    if ends(key):
        measures = {x.unit for x in (given, key) if isinstance(x, Formula)} - {None}
        return ends(given) == ends(key) and len(measures) < 2
    left, right = region(given), region(key)
    if left and right and (left.is_certain or right.is_certain) and not rules.lists:
        is_one = len({left.name, right.name} - {""}) < 2
        is_same = left.tree == right.tree
        return is_one and (is_same or quantities.ask(rules, right.tree, left.tree))
    if isinstance(given, Relation) and isinstance(key, Relation):
        mine, other = named(given, rules), named(key, rules)
        if mine and other and (mine.name == other.name or None in (mine.name, other.name)):
            return same(mine.value, other.value, rules)
        return _same_equation(given, key, rules)
    for one, other in ((given, key), (key, given)):
        if isinstance(one, Relation) and not _has_relation(_table(other)):
            if (found := named(one, rules)) is None:
                return False
            left, right = (found.value if x is one else x for x in (given, key))
            return same(left, right, rules)
    if isinstance(given, Collection) or isinstance(key, Collection):
        return _same_collection(given, key, rules)
    return quantities.same(given, key, rules)


def ends(value: Value) -> tuple[Fraction, ...] | None:
    """Returns the ends of the range 10 to 20, also written 10-20 or 10-20%, like a difference, else None."""
    if isinstance(value, Collection) and value.kind is Kind.RANGE:
        both = [x.value for x in value.items if isinstance(x, Number)]
        return tuple(both) if len(both) == 2 else None
    tree: Tree = value.tree if isinstance(value, Formula) else ("",)
    match tree[1] if tree[0] == "/" and tree[-1] == ("n", "100") else tree:
        case ("+", ("n", low), ("-", ("n", high))) if Fraction(low) < Fraction(high):
            return Fraction(low), Fraction(high)
    return None


def _same_equation(given: Relation, key: Relation, rules: Rules) -> bool:
    """Returns whether all sides correspond, or an equation of two sides is the other by a factor."""
    signs, sides = given.signs, given.sides
    if key.signs != signs:
        signs, sides = tuple(_FLIPPED.get(sign, sign) for sign in signs[::-1]), sides[::-1]
    if key.signs != signs:
        return False
    trees = [side.tree for side in (*key.sides, *sides) if isinstance(side, Formula)]
    if len(sides) == 2 and signs[0] in {"=", *_ORDERS} and len(trees) == 4:  # no x \sim y
        right, left = (signs[0], *trees[:2]), (signs[0], *trees[2:])
        return quantities.ask(rules, right, left, question="relation")
    orders = [sides, sides[::-1]] if set(signs) == {"="} else [sides]
    return any(all(same(x, y, rules) for x, y in zip(o, key.sides, strict=True)) for o in orders)


# ------------------------------------------------------------------------------ the value of a name
class Named(NamedTuple):
    """A value and its name; a true chain of constants gives one without a name."""

    name: str | None
    value: Value
    columns: tuple[str, ...] = ()  # x and y of (x, y)


def named(value: Value, rules: Rules) -> Named | None:
    """Returns the name that a relation gives a value, and the value.

    That is x = 5, 5 = x, |AB| = 5, A:B = 1:2, (p, q) = (3, 2), f(x) = x + 1, and x = 14/2 = 7 where the rest
    is equal; None of all others.
    """
    if not isinstance(value, Relation):
        return None
    signs, sides = value.signs, list(value.sides)
    name = _label(sides[0])
    if signs == ("\\in",) and isinstance(sides[1], Collection) and sides[1].kind is Kind.SET:
        return Named(name, sides[1]) if name else None  # x \in \{1, 2\}
    if not {"=", "\\approx"}.issuperset(signs):
        return None
    if len(sides) == 2 and not name and not values.names(sides[0]) and _label(sides[1]):
        sides.reverse()  # 5 = x, but not a + b = c
        name = _label(sides[0])
    first, rest = sides[0], sides[1:] if name else sides
    if name and any(values.names(first) & values.names(side) for side in rest):
        return None
    items = first.items if isinstance(first, Collection) else ()
    is_ratio = isinstance(first, Collection) and first.kind is Kind.RATIO  # A:B = 1
    sizes = {len(x.items) if isinstance(x, Collection) else is_ratio * len(items) for x in rest}
    if items and sizes != {len(items)}:
        return None
    exactly = Rules(exact=True, clock=rules.clock)
    steps = zip(signs[len(signs) - len(rest) + 1 :], rest, rest[1:], strict=False)
    if not all(_follows(sign, left, right, exactly) for sign, left, right in steps):
        return None
    columns = tuple(str(_label(item)) for item in items) if name else ()
    is_first = isinstance(rest[0], Number) or rules.formulas
    return Named(name, rest[0 if is_first else -1], columns)


def _follows(sign: str, left: Value, right: Value, rules: Rules) -> bool:
    """Returns whether a side equals the next one, which may be its value to any number of decimals."""
    if not isinstance(left, Formula) or not isinstance(right, Formula):
        return False
    if quantities.same(left, right, rules):
        return True
    if not isinstance(right, Number) or (right.last is None and sign != "\\approx"):
        return False
    room, value = Fraction(10) ** (right.last or 0) / 2, values.exact(left.tree)
    if value is not None:
        return abs(value - right.value) <= room
    return quantities.ask(rules, left.tree, right.tree, room=room)


def _label(side: Value) -> str | None:
    """Returns the name that a side only is: x_1, AB, |AB|, NO/BO, A:B, (p, q)."""
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
        case ("/", *parts):
            labels = [_spelled(tuple(part)) or "" for part in parts]
            return "/".join(labels) if all(labels) else None
    return None


# ------------------------------------------------------------------------------ regions
class Region(NamedTuple):
    """A set of numbers, for SymPy, and the name of what lies in it, or ""."""

    name: str
    tree: Tree

    @property
    def is_certain(self) -> bool:
        """Whether it is nothing else: (0, 1) may also be a point, and 0, 1 a list."""
        return any(x[0] in _CERTAIN or x == values.INFINITY for x in values.nodes(self.tree))


def region(value: Value) -> Region | None:
    r"""Returns the region of 0 <= x < 1, x != 3, x \in [0, 1), x < 1 and x != 0, [0, 1) or {1, 2}."""
    if isinstance(value, Relation):
        return _bounded(value)
    if not isinstance(value, Collection):
        return None
    kind, items = value.kind, value.items
    if kind is Kind.SET or (kind in values.PAIRS and len(items) == 2):
        trees = tuple(map(_constant, items))
        return None if None in trees else Region("", (kind.value, *trees))
    is_list = kind is Kind.LIST and all(map(is_inequality, items))
    if not is_list and kind not in (Kind.OR, Kind.AND, Kind.UNION, Kind.MEET, Kind.MINUS):
        return None
    parts = [part for part in map(region, items) if part is not None]
    names = {part.name for part in parts} - {""}
    op = "and" if is_list else kind.value
    is_one = len(parts) == len(items) and len(names) < 2
    return Region("".join(names), (op, *(part.tree for part in parts))) if is_one else None


def _constant(value: Value) -> Tree | None:
    """Returns the tree of a number without a name or a unit; degrees are a number of radians."""
    if not isinstance(value, Formula) or values.names(value):
        return None
    if value.unit == units.UNITS["degree"]:
        return ("*", value.tree, quantities.RADIANS)
    return None if value.unit and value.unit.bases else value.tree


def _bounded(value: Relation) -> Region | None:
    """Returns the region of a name between constants: its relations with each of them."""
    names = [name for name in map(values.name_of, value.sides) if name]
    if value.signs == ("\\in",) and names:
        inside = region(value.sides[1])
        return inside and Region(names[0], ("in", inside.tree))
    trees = [("v", values.name_of(x)) if values.name_of(x) else _constant(x) for x in value.sides]
    steps = tuple(zip(value.signs, trees, trees[1:], strict=False))
    if len(names) != 1 or None in trees or not {"=", *_ORDERS}.issuperset(value.signs):
        return None
    is_each = all(("v", names[0]) in step for step in steps)
    return Region(names[0], ("and", *steps)) if is_each else None


def is_inequality(value: Value) -> bool:
    """Returns whether a relation bounds or excludes something."""
    signs = value.signs if isinstance(value, Relation) else ()
    return not {*_ORDERS, "\\in"}.isdisjoint(signs)


# ------------------------------------------------------------------------------ several values
class _Table(NamedTuple):
    """Rows of values by name: x = 1, y = 2 is one row, x = 1 or x = 2 are two; "" is the name of none."""

    kind: Kind
    rows: tuple[dict[str, Value], ...]
    numbers: tuple[str, ...] = ()  # 1 and 2 of x_1 = 1, x_2 = 2, which are two rows of x


def _same_collection(given: Value, key: Value, rules: Rules) -> bool:
    left, right = _table(given), _table(key)
    mine, other = _named(left, rules), _named(right, rules)
    if mine and other:
        if len({mine.numbers, other.numbers} - {()}) > 1:
            return False
        is_point = Kind.OPEN in (mine.kind, other.kind)
        left, right = mine._replace(kind=other.kind) if is_point else mine, other
    elif mine and not _has_relation(right):
        left, right = mine, _beside(right, mine, rules, is_key=False)
    elif other and not _has_relation(left):
        left, right = _beside(left, other, rules, is_key=True), other
    if left is None or right is None or not _may_match(left, right, rules):
        return False
    is_set = right.kind in (Kind.OR, Kind.SET) or (right.kind in values.LOOSE and not rules.lists)
    is_ordered = not is_set if rules.ordered is None else rules.ordered
    return _same_rows(left.rows, right.rows, rules, is_ordered)


def _table(value: Value) -> _Table:
    """Returns the values as rows without names; those of a plus or minus one after the other."""
    if not isinstance(value, Collection):
        return _Table(Kind.SET, ({"": value},))
    items: list[Value] = []
    for item in value.items:
        both = item.items if isinstance(item, Collection) and item.kind in _BOTH else None
        items += both if both and value.kind in values.LOOSE else [item]
    return _Table(value.kind, tuple({"": item} for item in items))


def _has_relation(table: _Table) -> bool:
    return any(isinstance(item, Relation) for row in table.rows for item in row.values())


def _named(table: _Table, rules: Rules) -> _Table | None:
    """Returns rows of named values by these names; None where some have none."""
    found = [x for row in table.rows if (x := named(row[""], rules)) and x.name]
    if not found or len(found) < len(table.rows) or table.kind not in values.LOOSE:
        return None
    names, cells = [str(x.name) for x in found], [x.value for x in found]
    if len(cells) == 1 and isinstance(cells[0], Collection) and cells[0].kind in values.LOOSE:
        inner = _table(cells[0])  # x = {1, 2}
        return inner._replace(rows=tuple({names[0]: row[""]} for row in inner.rows))
    if found[0].columns and len(set(names)) == 1:  # (x, y) = (1, 2) or (x, y) = (3, 4)
        points = [cell.items for cell in cells if isinstance(cell, Collection)]
        rows = tuple(dict(zip(found[0].columns, point, strict=True)) for point in points)
        return _Table(Kind.OPEN if len(rows) == 1 else table.kind, rows)
    bases, numbers = zip(*(name.partition("_")[::2] for name in names), strict=True)
    is_numbered = {*bases} in ({"x"}, {"t"}) and all(n.isdecimal() for n in numbers if n)
    if is_numbered and (len(names) < 3 or not all(numbers)):
        rows = tuple({bases[0]: cell} for cell in cells)
        return _Table(table.kind, rows, tuple(sorted(filter(None, numbers))))
    size = len(set(names))
    if size > 1 and (table.kind is Kind.OR or names != names[:size] * (len(names) // size)):
        return _Table(table.kind, ())  # is nothing else
    parts = (slice(i, i + size) for i in range(0, len(cells), size))
    return _Table(table.kind, tuple(dict(zip(names[x], cells[x], strict=True)) for x in parts))


def _beside(table: _Table, named: _Table, rules: Rules, is_key: bool) -> _Table | None:
    """Returns rows like those of x = 1, y = 2: of (1, 2), of 1, 2 or of (1, 2), (3, 4).

    Values without names are in the order of the names, which a key may set for those with commas alone.
    """
    names, cells = [*named.rows[0]] if named.rows else [], [row[""] for row in table.rows]
    if len(names) == 1:
        return table._replace(rows=tuple({names[0]: cell} for cell in cells))
    rows = [x.items for x in cells if isinstance(x, Collection) and x.kind is Kind.OPEN]
    is_list = table.kind in (Kind.LIST, Kind.AND) or (rules.lists and table.kind is Kind.CLOSED)
    is_bare = is_list and len(rows) < len(cells)
    if is_bare or table.kind is Kind.OPEN:
        rows = [tuple(cells)]
    is_clear = names == sorted(names) or (is_key if is_bare else named.kind is Kind.OPEN)
    if is_bare and named.kind is Kind.OPEN:
        return None
    if not is_clear or not rows or any(len(row) != len(names) for row in rows):
        return None
    return _Table(named.kind, tuple(dict(zip(names, row, strict=True)) for row in rows))


def _may_match(given: _Table, key: _Table, rules: Rules) -> bool:
    """Returns whether the brackets, and the words between values, may mean the same."""
    pair = {given.kind, key.kind}
    if Kind.OR in pair and len(pair) > 1:
        items = [item for row in key.rows for item in row.values()]
        spelled = (isinstance(x, values.Words) or values.name_of(x) is not None for x in items)
        if any(spelled) or any(map(is_inequality, items)):
            return False  # A or C for A, C
    return rules.lists or len(pair) == 1 or pair <= values.LOOSE


def _same_rows(given: tuple, key: tuple, rules: Rules, is_ordered: bool) -> bool:
    """Returns whether each right row has a given one of its own (by augmenting paths)."""

    @functools.cache
    def is_same(i: int, j: int) -> bool:
        row, other = given[j], key[i]
        return row.keys() == other.keys() and all(same(row[x], other[x], rules) for x in other)

    if is_ordered or len(given) != len(key):
        return len(given) == len(key) and all(is_same(i, i) for i in range(len(key)))
    taken: dict[int, int] = {}  # given: right

    def place(i: int, seen: set[int]) -> bool:
        for j in range(len(given)):
            if j not in seen and is_same(i, j):
                seen.add(j)
                if j not in taken or place(taken[j], seen):
                    taken[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(key)))
